"""The proxy that behaves like a bad network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.crash.failovers.tcp_proxy import TcpProxy


class EchoServer:
    """Answers what it receives; `received` is that."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = asyncio.Event()
        self._changed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            self.received += data
            self._changed.set()
            writer.write(data)
        writer.close()
        self.ended.set()

    async def until(self, received: bytes) -> None:
        """Wait until this was received."""
        while self.received != received:
            self._changed.clear()
            await self._changed.wait()


@pytest.fixture
async def echo() -> AsyncIterator[EchoServer]:
    yield EchoServer()


@pytest.fixture
async def proxy(echo: EchoServer) -> AsyncIterator[TcpProxy]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    proxy = TcpProxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    async with asyncio.timeout(10):
        yield proxy
    await proxy.close()
    server.close()


async def open_through(proxy: TcpProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_what_was_held_arrives_in_order(proxy: TcpProxy, echo: EchoServer) -> None:
    reader, writer = await open_through(proxy)
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    proxy.hold()
    writer.write(b"two")
    # A connection that is made meanwhile waits as well.
    other_reader, other = await open_through(proxy)
    other.write(b"new")
    proxy.release()
    assert await reader.readexactly(3) == b"two"
    assert await other_reader.readexactly(3) == b"new"
    writer.close()
    other.close()


async def test_answers_are_held_alone(proxy: TcpProxy, echo: EchoServer) -> None:
    reader, writer = await open_through(proxy)
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    proxy.hold(requests=False)
    writer.write(b"two")
    await echo.until(b"onetwo")
    proxy.release(reset=True)
    assert await reader.read() == b""


async def test_a_connection_is_cut_within_a_request(proxy: TcpProxy, echo: EchoServer) -> None:
    _, writer = await open_through(proxy)
    proxy.cut_within(3)
    writer.write(b"request")
    await echo.ended.wait()
    assert echo.received == b"req"


async def test_connections_are_refused(proxy: TcpProxy, echo: EchoServer) -> None:
    reader, writer = await open_through(proxy)
    writer.write(b"one")
    assert await reader.readexactly(3) == b"one"
    proxy.refuse(True)
    assert await reader.read() == b""
    refused, _ = await open_through(proxy)
    assert await refused.read() == b""
    proxy.refuse(False)
    reader, writer = await open_through(proxy)
    writer.write(b"two")
    assert await reader.readexactly(3) == b"two"
    writer.close()


async def test_a_delay_keeps_the_order(proxy: TcpProxy, echo: EchoServer) -> None:
    reader, writer = await open_through(proxy)
    proxy.delay = 0.05
    writer.write(b"late")
    await echo.until(b"late")
    proxy.delay = 0.0
    writer.write(b"soon")
    assert await reader.readexactly(8) == b"latesoon"
    writer.close()
