"""rhea over amqps, with passwords and with certificates."""

from __future__ import annotations

import pytest

from tests.broker.tls.pki import Pki
from tests.interop.broker_process import BrokerProcess
from tests.interop.rhea_client import needs_rhea, run

pytestmark = [pytest.mark.interop, needs_rhea]


def options(pki: Pki, client: str | None = None, **more: object) -> dict[str, object]:
    """Options of rhea for TLS, and others."""
    found: dict[str, object] = {"transport": "tls", "ca": pki.path("ca").read_text(), **more}
    if client is not None:
        found["cert"] = pki.path(client).read_text()
        found["key"] = pki.path(f"{client}-key").read_text()
        found["enable_sasl_external"] = True
    return found


def test_a_password_inside_tls(secured: tuple[BrokerProcess, Pki], address: str) -> None:
    broker, pki = secured
    login = options(pki, username="bob", password="open sesame")
    assert run(broker, "come_in", address=address, options=login)["body"] == "hello"


def test_a_certificate_and_external(secured: tuple[BrokerProcess, Pki], address: str) -> None:
    broker, pki = secured
    login = options(pki, "alice")
    assert run(broker, "come_in", address=address, options=login)["body"] == "hello"
    assert "mechanism=EXTERNAL" in broker.log and "user=alice" in broker.log


def test_a_certificate_that_is_nobodys(secured: tuple[BrokerProcess, Pki]) -> None:
    broker, pki = secured
    assert "connection_open" not in run(broker, "stay_out", options=options(pki, "mallory"))
    assert "Traceback" not in broker.log
