"""AMQP 0-9-1 inside a WebSocket: the first eight bytes decide there, too."""

from __future__ import annotations

import asyncio

import aiohttp

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_types_0_9_1.registry import decode_method
from tests.rabbitmq.engine_0_9_1.client import pipelined, publication


def _methods(data: bytes) -> list[str]:
    """Return the names of the methods in some frames."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        found.append(type(decode_method(data[at + 7 : at + 7 + size])).NAME)
        at += size + 8
    return found


def test_a_client_in_a_websocket() -> None:
    async def use() -> None:
        config = Config.model_validate(
            {
                "listener": [{"url": "ws://127.0.0.1:0"}],
                "personality": {"name": "rabbitmq"},
                "queue": [{"name": "orders"}],
            }
        )
        async with BrokerServer(config) as server, aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{server.port}/"
            async with session.ws_connect(url, protocols=("amqp",)) as socket:
                beginning = pipelined()
                # The header may be cut by the frames of the WebSocket.
                await socket.send_bytes(beginning[:5])
                await socket.send_bytes(beginning[5:] + publication(1, b"one", "orders"))
                data = b""
                while "channel.open-ok" not in _methods(data):
                    data += await socket.receive_bytes(timeout=20)
            queue = server.broker.default.find("orders")
            assert queue is not None and queue.message_count() == 1

    asyncio.run(use())
