"""A broker in this process, and clients of AMQP 0-9-1 in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel

from ferrymq_broker.broker import Broker
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer


class Served:
    """The broker while it serves, and its clients."""

    def __init__(self, server: BrokerServer) -> None:
        self.port = server.port
        self.broker: Broker = server.broker
        self._open: list[pika.BlockingConnection] = []

    def connect(self) -> pika.BlockingConnection:
        """Return a connection that is closed at the end."""
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.port, heartbeat=0)
        )
        self._open.append(connection)
        return connection

    def channel(self) -> BlockingChannel:
        """Return a channel of a connection of its own."""
        return self.connect().channel()

    def close(self) -> None:
        """Close the connections that are still open."""
        for connection in self._open:
            if connection.is_open:
                connection.close()


def serve(
    work: Callable[[Served], None],
    store: Path | None = None,
    rules: list[dict[str, object]] | None = None,
) -> None:
    """Do some work with a broker, which has a store if there is a path for it, and these access
    rules."""
    settings: dict[str, object] = {
        "listener": [{"url": "amqp://127.0.0.1:0"}],
        "personality": {"name": "rabbitmq"},
    }
    if rules is not None:
        settings["rule"] = rules
    if store is not None:
        settings["store"] = {"path": str(store)}

    def run(served: Served) -> None:
        try:
            work(served)
        finally:
            served.close()

    async def main() -> None:
        async with BrokerServer(Config.model_validate(settings)) as server:
            await asyncio.to_thread(run, Served(server))

    asyncio.run(main())
