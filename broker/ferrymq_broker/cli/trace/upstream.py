"""Connections of a trace to its broker: TCP, TLS or WebSocket."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from ferrymq.aio.websocket import open_websocket
from ferrymq.url import Url

PIECE: Final = 1 << 16


async def reach(
    to: Url, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the broker. Return a reader and a writer of the bytes inside `tls`.

    Raises `OSError` or `TransportError` if it cannot be reached.
    """
    if not to.over_web:
        return await asyncio.open_connection(
            to.host, to.port, limit=PIECE, ssl=tls, server_hostname=to.host if tls else None
        )
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=PIECE, loop=loop)
    protocol = _Web(reader)
    await open_websocket(to, protocol, tls)
    return reader, asyncio.StreamWriter(await protocol.made, protocol, reader, loop)


class _Web(asyncio.StreamReaderProtocol):
    """A stream protocol that hands out its transport, which `asyncio.StreamWriter` needs."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self.made.set_result(transport)
