"""Pieces of output are written in order, and payloads do not wait in memory for a client."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from ferrymq_broker.management.traces import SENT
from ferrymq_broker.server.connection_driver import ConnectionDriver
from ferrymq_broker.server.read_fairness import Round

PAYLOAD = bytes(range(256)) * 4096


def pieces_of(payload: bytes) -> list[bytes | memoryview]:
    view = memoryview(payload)
    half = len(payload) // 2
    return [b"first", view[:half], b"second", view[half:]]


EXPECTED = b"".join(pieces_of(PAYLOAD))


def driver(begin: Callable[[bytes], bytes] | None = None) -> ConnectionDriver:
    def nothing() -> None:
        pass

    return ConnectionDriver(
        lambda: 0.0, Round(lambda call: None), begin, nothing, nothing, nothing, nothing
    )


async def connect() -> tuple[ConnectionDriver, Any, socket.socket]:
    """Return a driver, its transport on one end of a connection, and the other end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    made = driver()
    made.use(transport)
    return made, transport, theirs


async def receive(client: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        data += await loop.sock_recv(client, 65_536)
    return data


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    def run(main: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main)

    return run


def test_the_rest_of_what_the_socket_does_not_take_is_a_copy(run: Callable[[Any], Any]) -> None:
    async def play() -> None:
        made, transport, client = await connect()
        payload = bytes(bytearray(PAYLOAD))
        before = sys.getrefcount(payload)
        made.write_pieces(pieces_of(payload))
        assert transport.get_write_buffer_size() > 0
        assert sys.getrefcount(payload) == before
        # These come after what waits in the transport.
        made.write_pieces([b"third", memoryview(b"fourth")])
        expected = EXPECTED + b"thirdfourth"
        assert await receive(client, len(expected)) == expected
        transport.abort()
        client.close()

    run(play())


def test_what_the_socket_takes_is_written_at_once(run: Callable[[Any], Any]) -> None:
    async def play() -> None:
        made, transport, client = await connect()
        made.write_pieces([b"one", memoryview(b"two"), b"three"])
        assert transport.get_write_buffer_size() == 0
        assert client.recv(100) == b"onetwothree"
        transport.abort()
        client.close()

    run(play())


def test_a_transport_that_changes_the_bytes_gets_all_of_them(run: Callable[[Any], Any]) -> None:
    class Changing:
        def __init__(self) -> None:
            self.written: list[bytes] = []

        def is_closing(self) -> bool:
            return False

        def write(self, data: bytes) -> None:
            self.written.append(data)

    async def play() -> None:
        transport = Changing()
        made = driver()
        made.use(transport)
        made.write_pieces(pieces_of(PAYLOAD))
        assert transport.written == [EXPECTED]

    run(play())


def test_much_input_arrives_in_order_and_then_its_end(run: Callable[[Any], Any]) -> None:
    data = PAYLOAD * 3

    class Protocol(asyncio.Protocol):
        def __init__(self) -> None:
            self.received: list[bytes] = []
            self.driver = driver(self.begin)
            self.ended = asyncio.get_running_loop().create_future()

        def begin(self, data: bytes) -> bytes:
            self.received.append(data)
            return b""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.driver.use(transport)

        def data_received(self, data: bytes) -> None:
            self.driver.receive(data)

        def eof_received(self) -> bool:
            self.ended.set_result(None)
            return False

    async def play() -> None:
        loop = asyncio.get_running_loop()
        ours, client = socket.socketpair()
        client.setblocking(False)
        _, protocol = await loop.create_connection(Protocol, sock=ours)
        await loop.sock_sendall(client, data)
        client.close()
        await protocol.ended
        assert b"".join(protocol.received) == data

    run(play())


def test_taps_get_a_copy(run: Callable[[Any], Any]) -> None:
    class Tap:
        def __init__(self) -> None:
            self.copied: list[tuple[str, bytes]] = []

        def add(self, arrow: str, data: bytes) -> None:
            self.copied.append((arrow, data))

    async def play() -> None:
        made, transport, client = await connect()
        tap = Tap()
        made.taps = (tap,)
        made.write_pieces([b"one", memoryview(b"two")])
        assert tap.copied == [(SENT, b"onetwo")]
        assert client.recv(100) == b"onetwo"
        transport.abort()
        client.close()

    run(play())


def test_nothing_is_written_to_a_transport_that_closes(run: Callable[[Any], Any]) -> None:
    async def play() -> None:
        made, transport, client = await connect()
        transport.close()
        made.write_pieces([b"one", b"two"])
        assert await receive(client, 0) == b""
        await asyncio.sleep(0)
        client.setblocking(True)
        assert client.recv(100) == b""
        client.close()

    run(play())
