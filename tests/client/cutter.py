"""Stands between a client and a server, and cuts each connection after so many bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

from tests.client.keeper import Cut


class Cutter:
    """A proxy. `url` is where it listens, `port` the server's, which may move; `connections` counts
    those that were made."""

    def __init__(self, port: int, cuts: list[Cut]) -> None:
        self.port = port
        self._cuts = deque(cuts)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"amqp://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        cut = self._cuts.popleft() if self._cuts else Cut()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return
        ways = [
            asyncio.create_task(_pass(reader, far_writer, cut.incoming)),
            asyncio.create_task(_pass(far_reader, writer, cut.outgoing)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The end of the test, of which asyncio's streams would complain.
            pass
        finally:
            for way in ways:
                way.cancel()
            writer.close()
            far_writer.close()
            self._tasks.discard(task)


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
) -> None:
    """Pass bytes on until they end, or so many have passed."""
    while data := await reader.read(65536):
        if left is not None:
            data = data[:left]
            left -= len(data)
        writer.write(data)
        await writer.drain()
        if left == 0:
            return
