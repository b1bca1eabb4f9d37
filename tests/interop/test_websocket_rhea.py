"""rhea over WebSocket, by way of the package ws."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.tls.pki import Pki
from tests.interop.broker_process import BrokerProcess
from tests.interop.rhea_client import needs_rhea, run

pytestmark = [pytest.mark.interop, needs_rhea]

SIZES = [0, 1, 65_535, 65_536, 1_000_000]
ALICE = """
[security]
anonymous = false
[security.users]
alice = "open sesame"
"""


def test_without_tls(address: str) -> None:
    with BrokerProcess(scheme="ws") as broker:
        assert run(broker, "over_websocket", url=broker.url, address=address, sizes=SIZES) == SIZES


def test_inside_tls_with_a_password(address: str, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    tls = f'[tls]\ncertificate = "{pki.path("server")}"\nkey = "{pki.path("server-key")}"\n'
    with BrokerProcess(tls + ALICE, "wss") as broker:
        received = run(
            broker,
            "over_websocket",
            url=broker.url,
            address=address,
            sizes=SIZES,
            options={"username": "alice", "password": "open sesame"},
            websocket={"ca": pki.path("ca").read_text()},
        )
    assert received == SIZES
