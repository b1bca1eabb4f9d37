"""Proton over amqps, with passwords and with certificates."""

from __future__ import annotations

import pytest
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

from tests.broker.tls.pki import Pki
from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import TIMEOUT

pytestmark = pytest.mark.interop


def domain(pki: Pki, client: str | None = None, authority: str = "ca") -> SSLDomain:
    made = SSLDomain(SSLDomain.MODE_CLIENT)
    made.set_trusted_ca_db(str(pki.path(authority)))
    made.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if client is not None:
        made.set_credentials(str(pki.path(client)), str(pki.path(f"{client}-key")), None)
    return made


def exchange(broker: BrokerProcess, address: str, **options: object) -> int:
    """Send a large message and receive it; how large it was."""
    connection = BlockingConnection(f"amqps://localhost:{broker.port}", timeout=TIMEOUT, **options)
    try:
        connection.create_sender(address).send(Message(body=b"x" * 1_000_000))
        receiver = connection.create_receiver(address)
        received = receiver.receive()
        receiver.accept()
        return len(received.body)
    finally:
        connection.close()


def test_a_password_inside_tls(secured: tuple[BrokerProcess, Pki], address: str) -> None:
    broker, pki = secured
    options = {"user": "bob", "password": "open sesame", "allowed_mechs": "PLAIN"}
    assert exchange(broker, address, ssl_domain=domain(pki), **options) == 1_000_000


def test_a_certificate_and_external(secured: tuple[BrokerProcess, Pki], address: str) -> None:
    broker, pki = secured
    context = domain(pki, "alice")
    assert exchange(broker, address, ssl_domain=context, allowed_mechs="EXTERNAL") == 1_000_000
    assert "mechanism=EXTERNAL" in broker.log and "user=alice" in broker.log


@pytest.mark.parametrize("client", [None, "mallory"])
def test_external_without_a_certificate_that_is_somebodys(
    secured: tuple[BrokerProcess, Pki], address: str, client: str | None
) -> None:
    broker, pki = secured
    with pytest.raises(ConnectionException):
        exchange(broker, address, ssl_domain=domain(pki, client), allowed_mechs="EXTERNAL")


def test_proton_trusts_nobody_else(secured: tuple[BrokerProcess, Pki], address: str) -> None:
    broker, pki = secured
    with pytest.raises(ConnectionException):
        exchange(broker, address, ssl_domain=domain(pki, authority="stranger"))
    assert "Traceback" not in broker.log
