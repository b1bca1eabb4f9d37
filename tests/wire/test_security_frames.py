"""Frames of the security layer, byte by byte, of the broker and of the client (AMQP 1.0 §5.3.1)."""

from __future__ import annotations

import pytest

import ferrymq
from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    frame,
    open_frame,
    sasl_frame,
    sasl_init,
)
from tests.raw.process import Broker
from tests.raw.server import Server
from tests.raw.values import NULL, array, binary, composite, string, symbol, ubyte

MECHANISMS = composite(SASL_MECHANISMS, [array(b"\xa3", 1, b"\x09ANONYMOUS")])
OUTCOME = composite(SASL_OUTCOME, [ubyte(0)])
# Octets 6 and 7 mean nothing in this layer, nor does what stands before the data.
ODD = {"channel": 0x1234, "doff": 5, "kind": 1}


@pytest.mark.spec("5.3.1")
def test_the_broker_writes_frames_of_two_words_and_reads_any(broker: Broker) -> None:
    init = composite(SASL_INIT, [symbol("ANONYMOUS"), binary(b"")])
    with Client(broker.port) as client:
        client.send(SASL_HEADER, frame(init, **ODD))
        assert client.take(8) == SASL_HEADER
        for name in ("mechanisms", "outcome"):
            size = client.take(4)
            assert client.take(4) == b"\x02\x01\x00\x00", name
            client.take(int.from_bytes(size, "big") - 8)
        client.open().close()


@pytest.mark.spec("5.3.1")
async def test_the_client_writes_frames_of_two_words_and_reads_any() -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            assert peer.take(8) == SASL_HEADER
            peer.send(SASL_HEADER, frame(MECHANISMS, **ODD))
            size = peer.take(4)
            assert peer.take(4) == b"\x02\x01\x00\x00"
            peer.take(int.from_bytes(size, "big") - 8)
            peer.send(frame(OUTCOME, **ODD))
            assert peer.take(8) == AMQP_HEADER
            peer.send(AMQP_HEADER, open_frame(string("server")))
            peer.expect("open")
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url):
            pass


WRONG = {
    "empty": frame(b"", kind=1),
    "bytes-behind": frame(MECHANISMS + NULL, kind=1),
    "no-performative": frame(string("mechanisms"), kind=1),
    "of-the-client": sasl_init(),
    "of-amqp": frame(MECHANISMS),
    "null-mechanisms": sasl_frame(SASL_MECHANISMS, NULL),
    "an-outcome-first": sasl_frame(SASL_OUTCOME, ubyte(0)),
    "a-failure": frame(MECHANISMS, kind=1) + sasl_frame(SASL_OUTCOME, ubyte(1)),
    "a-failure-of-the-server": frame(MECHANISMS, kind=1) + sasl_frame(SASL_OUTCOME, ubyte(3)),
}


@pytest.mark.spec("5.3.1")
@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG)
async def test_the_client_takes_nothing_else_for_a_login(said: bytes) -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            assert peer.take(8) == SASL_HEADER
            peer.send(SASL_HEADER, said)
            # There may be an init, and then nothing: no header of AMQP.
            rest = b""
            while chunk := peer.take(1):
                rest += chunk
            assert AMQP_HEADER not in rest

    with Server(script) as server, pytest.raises(ferrymq.AmqpError):
        async with ferrymq.connect(server.url):
            pass
