"""Clients that nobody here wrote, on connections that one worker accepts and another serves."""

from __future__ import annotations

from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from tests.broker.tls.pki import Pki
from tests.broker.workers.several import HOSTS, TENANT, WorkerBroker
from tests.interop.rhea_client import needs_rhea, run

pytestmark = pytest.mark.interop

CONFIG = """
[security]
anonymous = true
[security.users]
shop = "correct horse"
[tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[[listener]]
url = "amqp://127.0.0.1:0"
[[listener]]
url = "amqps://127.0.0.1:0"
{tenant}
"""

ways = pytest.mark.parametrize(
    ("acceptor", "server"), [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["00", "01", "10", "11"]
)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """The certificate of the broker."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def config(pki: Pki) -> str:
    """The configuration of the broker."""
    return CONFIG.format(folder=pki.folder, tenant=TENANT)


def proton(
    broker: WorkerBroker, acceptor: int, server: int, listener: int = 0, **options: Any
) -> BlockingConnection:
    """Connect with Proton's blocking client."""
    scheme = ("amqp", "amqps")[listener]
    with broker.accepting(acceptor, listener):
        return BlockingConnection(
            f"{scheme}://127.0.0.1:{broker.ports[listener]}",
            timeout=20,
            virtual_host=HOSTS[server],
            **options,
        )


@ways
@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "PLAIN"])
def test_proton(
    broker: WorkerBroker,
    pki: Pki,
    address: str,
    acceptor: int,
    server: int,
    tls: bool,
    mechanism: str,
) -> None:
    options: dict[str, Any] = {"allowed_mechs": mechanism, "allow_insecure_mechs": True}
    if mechanism == "PLAIN":
        options.update(user="shop", password="correct horse")
    if tls:
        from proton import SSLDomain

        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(pki.path("ca")))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        options["ssl_domain"] = domain
    connection = proton(broker, acceptor, server, int(tls), **options)
    sender = connection.create_sender(address)
    receiver = connection.create_receiver(address)
    for size in (1, 100_000):
        sender.send(Message(body=b"x" * size))
        assert len(receiver.receive(timeout=20).body) == size
        receiver.accept()
    connection.close()


@pytest.mark.parametrize("acceptor", [0, 1])
def test_proton_is_refused(broker: WorkerBroker, acceptor: int) -> None:
    with pytest.raises(ConnectionException, match="not-found"):
        with broker.accepting(acceptor):
            connection = BlockingConnection(
                broker.url, timeout=20, virtual_host="vhost:nobody", allowed_mechs="ANONYMOUS"
            )
        connection.create_sender("orders")


@needs_rhea
@ways
def test_rhea(broker: WorkerBroker, address: str, acceptor: int, server: int) -> None:
    hostname = HOSTS[server]
    for left in ([], [hostname]):
        with broker.accepting(acceptor):
            found = run(broker, "host", hostname=hostname, address=address)  # type: ignore[arg-type]
        assert found == left
