"""Brokers in the loop of the test that share a stream: each has some of its partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from ferrymq_broker.config import Config
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.server import BrokerServer
from tests.interop.brokers.process import free_ports

STREAM = "orders"


class SpreadBrokers:
    """`count` brokers with the stream `orders`, of which each has `each` partitions: broker 0 has
    the first ones. With a folder they have stores, and can be started again.

    `more` are other settings of all brokers.
    """

    def __init__(self, count: int, each: int = 2, folder: Path | None = None, **more: Any) -> None:
        self.urls = [f"amqp://127.0.0.1:{port}" for port in free_ports(count)]
        self.servers: list[BrokerServer] = []
        self.each = each
        self._folder = folder
        self._more = more

    async def __aenter__(self) -> Self:
        for number in range(len(self.urls)):
            self.servers.append(await self.make(number))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self.servers:
            await server.close()

    def placement(self, brokers: int | None = None) -> list[str]:
        """The entries of the first `brokers` brokers."""
        return [
            f"{at * self.each}-{(at + 1) * self.each - 1} {url}"
            for at, url in enumerate(self.urls[:brokers])
        ]

    async def make(self, number: int, brokers: int | None = None) -> BrokerServer:
        """Start a broker that knows the first `brokers` brokers, by default all."""
        settings: dict[str, Any] = {
            "advertise": self.urls[number],
            "listener": [{"url": self.urls[number]}],
            "stream": [{"name": STREAM, "partitions-on": self.placement(brokers)}],
            **self._more,
        }
        if self._folder is not None:
            settings["store"] = {"path": self._folder / str(number), "segment-bytes": 65536}
        server = BrokerServer(Config.model_validate(settings))
        await server.start()
        return server

    def stream(self, number: int) -> Stream:
        """The stream as a broker has it."""
        node = self.servers[number].broker.default.nodes[STREAM]
        assert isinstance(node, Stream)
        return node

    def counts(self) -> list[int]:
        """The number of records of each partition, wherever it is."""
        total = len(self.stream(0).partitions)
        return [
            sum(self.stream(at).range(number)[1] for at in range(len(self.servers)))
            for number in range(total)
        ]
