"""AMQP over WebSocket, for networks that allow no other traffic, with aiohttp.

The subprotocol is ``amqp``, at Azure's services also their own; the address is that of the URL,
``/`` if it has no path. Proxies are read from the environment (``https_proxy``, ``no_proxy``), as
usual for HTTP clients.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ferrymq.aio.unreachable import describe
from ferrymq.aio.websocket_stream import WebSocketStream
from ferrymq.errors import TransportError
from ferrymq.url import Url

if TYPE_CHECKING:
    from aiohttp import ClientSession

SUBPROTOCOL: Final = "amqp"
# What Azure's own clients ask for, and the path at which its services have their WebSocket.
_AZURE_SUBPROTOCOL: Final = "AMQPWSB10"
_AZURE_PATH: Final = "/$servicebus/"
# A server may put several frames into one message.
_LARGEST_MESSAGE: Final = 64 * 1024 * 1024

# Tasks of the open WebSockets: no other object refers to them.
_running: set[asyncio.Future[None]] = set()


async def open_websocket(
    url: Url, protocol: asyncio.Protocol, context: ssl.SSLContext | None
) -> None:
    """Connect `protocol` to a WebSocket transport. Raises `TransportError`."""
    try:
        import aiohttp
    except ImportError:
        raise TransportError(
            f"cannot connect to {url}: WebSocket needs aiohttp: install ferrymq[websocket]"
        ) from None
    protocols: tuple[str, ...] = (SUBPROTOCOL,)
    if url.path.startswith(_AZURE_PATH):
        protocols = (SUBPROTOCOL, _AZURE_SUBPROTOCOL)
    session = aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=None))
    try:
        websocket = await session.ws_connect(
            url.web,
            protocols=protocols,
            ssl=True if context is None else context,
            max_msg_size=_LARGEST_MESSAGE,
            compress=0,
        )
        if websocket.protocol not in protocols:
            await websocket.close()
            raise TransportError(
                f"cannot connect to {url}: the server's WebSocket does not speak {SUBPROTOCOL}"
            )
    except BaseException as error:
        await session.close()
        if isinstance(error, aiohttp.WSServerHandshakeError):
            raise TransportError(
                f"cannot connect to {url}: the server answered with {error.status} "
                f"where a WebSocket was asked for"
            ) from error
        if isinstance(error, aiohttp.ClientResponseError):
            # The text of aiohttp has several lines.
            raise TransportError(
                f"cannot connect to {url}: the peer speaks no HTTP here: connect with amqp:// or "
                "amqps:// if this is its port for AMQP"
            ) from error
        if isinstance(error, aiohttp.ClientError):
            # The error of the network is shown without the request of aiohttp.
            cause = error.__cause__
            reason = describe(url, cause) if isinstance(cause, OSError) else error
            raise TransportError(f"cannot connect to {url}: {reason}") from error
        raise
    connector = session.connector
    assert connector is not None

    def drop() -> None:
        _start(connector.close(abort_ssl=True))

    stream = WebSocketStream(websocket, protocol, drop, websocket.get_extra_info)
    _start(_run(stream, session))


def _start(work: Awaitable[None]) -> None:
    task: asyncio.Future[None] = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_running.discard)


async def _run(stream: WebSocketStream, session: ClientSession) -> None:
    try:
        await stream.run()
    finally:
        await session.close()
