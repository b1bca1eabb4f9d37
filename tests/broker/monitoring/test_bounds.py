"""HTTP clients that are slow, silent or many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ferrymq_broker.monitoring import http_limits
from ferrymq_broker.monitoring.http import MonitoringServer
from ferrymq_broker.monitoring.readiness import Readiness
from tests.broker.harness import Network

REQUEST = b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n"


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """The status line and everything up to the end of one small answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head + await self.reader.readexactly(length)

    async def gone(self) -> bool:
        """Wait until the server has let us go."""
        try:
            async with asyncio.timeout(20):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            return True
        return True


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MonitoringServer]:
    made = MonitoringServer(
        Network().broker, "http://127.0.0.1:0", lambda: Readiness(True, ""), connections=3
    )
    made.watch()
    await made.start()
    yield made
    await made.close()


async def connect(server: MonitoringServer) -> Client:
    port = int(server.url.rpartition(":")[2])
    return Client(*await asyncio.open_connection("127.0.0.1", port))


async def test_a_client_that_says_nothing_or_says_it_slowly_is_let_go(
    server: MonitoringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "FIRST", 0.3)
    silent, slow = await connect(server), await connect(server)

    async def drip() -> None:
        for byte in b"GET /livez HTTP/1.1\r\nX-Long: " + b"a" * 10_000:
            slow.send(bytes([byte]))
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    assert await silent.gone()
    assert await slow.gone()
    dripping.cancel()


async def test_a_client_that_has_been_served_is_let_go_when_it_asks_no_more(
    server: MonitoringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "IDLE", 0.3)
    client = await connect(server)
    for _ in range(2):
        client.send(REQUEST)
        assert (await client.answer()).startswith(b"HTTP/1.1 200")
    assert await client.gone()


async def test_too_much_before_a_request_is_whole(server: MonitoringServer) -> None:
    client = await connect(server)
    for _ in range(100):
        client.send(b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(200)))
        await asyncio.sleep(0)
    assert await client.gone()


async def test_of_too_many_the_one_that_is_idle_longest_makes_room(
    server: MonitoringServer,
) -> None:
    first, second, third = [await connect(server) for _ in range(3)]
    for client in (first, second, third):
        client.send(REQUEST)
        await client.answer()
    # The first is the freshest now.
    first.send(REQUEST)
    await first.answer()
    fourth = await connect(server)
    fourth.send(REQUEST)
    assert (await fourth.answer()).startswith(b"HTTP/1.1 200")
    assert await second.gone()
    first.send(REQUEST)
    assert (await first.answer()).startswith(b"HTTP/1.1 200")


async def test_silent_clients_do_not_keep_others_out(server: MonitoringServer) -> None:
    silent = [await connect(server) for _ in range(20)]
    client = await connect(server)
    client.send(REQUEST)
    assert (await client.answer()).startswith(b"HTTP/1.1 200")
    for one in silent[:10]:
        assert await one.gone()


async def test_what_is_inside_is_not_told(server: MonitoringServer) -> None:
    client = await connect(server)
    client.send(REQUEST)
    head = (await client.answer()).lower()
    assert b"server:" not in head
    assert b"aiohttp" not in head and b"python" not in head
