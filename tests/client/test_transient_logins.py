"""A client that connects again, and what it makes of the outcome of its login (§5.3.3.6)."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq.reconnect import ReconnectPolicy
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    sasl_frame,
    transfer_frame,
)
from tests.raw.server import Server
from tests.raw.values import TRUE, array, binary, data_section, ubyte, uint

AUTH, SYS_PERM, SYS_TEMP = 1, 3, 4


def refuse(server: Server, code: int) -> None:
    """Take a connection and refuse its login."""
    with server.accept() as peer:
        assert peer.take(8) == SASL_HEADER
        mechanisms = array(b"\xa3", 1, b"\x09ANONYMOUS")
        peer.send(SASL_HEADER, sasl_frame(SASL_MECHANISMS, mechanisms))
        peer.expect("sasl-init")
        peer.send(sasl_frame(SASL_OUTCOME, ubyte(code)))
        assert peer.ended()


async def at_once(_: float) -> None:
    """Wait no time between attempts."""


POLICY = ReconnectPolicy(attempts=5, sleep=at_once)


@pytest.mark.spec("5.3.3.6")
async def test_a_login_that_fails_for_now_is_tried_again() -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            peer.begin().attached()
        refuse(server, SYS_TEMP)
        refuse(server, SYS_TEMP)
        with server.accept() as peer:
            handle = peer.begin().attached().field(1)
            assert isinstance(handle, int)
            peer.expect("flow")
            peer.send(transfer_frame(data_section(), handle, uint(0), binary(b"t"), TRUE))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url, reconnect=POLICY) as connection:
            receiver = await connection.receiver("orders", credit=1)
            assert (await receiver.receive(timeout=10)).message.body == b"x"


@pytest.mark.spec("5.3.3.6")
@pytest.mark.parametrize("code", [AUTH, SYS_PERM])
async def test_a_login_that_is_refused_for_good_is_not(code: int) -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            peer.open()
        refuse(server, code)

    with Server(script) as server:
        connection = await ferrymq.connect(server.url, reconnect=POLICY)
        with pytest.raises(ferrymq.ConnectionClosed) as caught:
            await connection.wait_closed(timeout=10)
        refused = caught.value.__cause__
        assert isinstance(refused, ferrymq.AuthenticationError) and refused.code == code


@pytest.mark.spec("5.3.3.2")
async def test_without_tls_the_hostname_of_the_init_is_that_of_the_open() -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            assert peer.take(8) == SASL_HEADER
            mechanisms = array(b"\xa3", 1, b"\x09ANONYMOUS")
            peer.send(SASL_HEADER, sasl_frame(SASL_MECHANISMS, mechanisms))
            assert peer.expect("sasl-init").field(2) == "vhost:tenant"
            peer.send(sasl_frame(SASL_OUTCOME, ubyte(0)))
            assert peer.take(8) == AMQP_HEADER

    with Server(script) as server, pytest.raises(ferrymq.AmqpError):
        await ferrymq.connect(server.url, hostname="vhost:tenant")
