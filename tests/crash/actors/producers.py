"""Clients that send: to queues, to a topic, with a time, and again when they got no answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import ferrymq
from ferrymq import DeliveryError
from tests.crash.actors.actor import Actor, look
from tests.crash.client_side import ClientSide

# Messages without an outcome a client may have.
_WINDOW: Final = 100


class Producer(Actor):
    """Sends bursts to a node, many at a time under way."""

    def __init__(self, stage: ClientSide, name: str, node: str, burst: int = 20) -> None:
        super().__init__(stage, name)
        self.node = node
        self.burst = burst

    async def work(self, connection: ferrymq.Connection) -> None:
        sender = await connection.sender(self.node)
        under_way: set[asyncio.Future[None]] = set()
        while True:
            for _ in range(self.random.randint(1, self.burst)):
                await sender.ready()
                volatile = self.random.random() < 0.05
                fields = {"durable": False} if volatile else {}
                more: dict[str, Any] = {"volatile": True} if volatile else {}
                future = self.send(sender, self.node, fields=fields, **more)
                future.add_done_callback(look)
                under_way.add(future)
            while len(under_way) > _WINDOW:
                _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(self.random.random() / 50)


class Scheduler(Actor):
    """Sends messages that are to come later."""

    def __init__(self, stage: ClientSide, name: str, node: str, longest: float = 1.5) -> None:
        super().__init__(stage, name)
        self.node = node
        self.longest = longest

    async def work(self, connection: ferrymq.Connection) -> None:
        sender = await connection.sender(self.node)
        while True:
            await sender.ready()
            due = int((time.time() + self.random.random() * self.longest) * 1000)
            fields = {"message_annotations": {"x-opt-delivery-time": due}}
            self.send(sender, self.node, fields=fields, due=due).add_done_callback(look)
            await asyncio.sleep(self.random.random() / 50)


class Repeater(Actor):
    """Sends again, under the same message-id, what it has no answer for: the queue knows."""

    def __init__(self, stage: ClientSide, name: str, node: str) -> None:
        super().__init__(stage, name)
        self.node = node
        self.open: dict[str, int] = {}

    async def work(self, connection: ferrymq.Connection) -> None:
        sender = await connection.sender(self.node)
        while True:
            while len(self.open) < 10:
                self.open[self.new_id()] = self.random.randrange(500)
            futures = {}
            for id, size in self.open.items():
                await sender.ready()
                futures[id] = self.send(sender, self.node, id, size)
                futures[id].add_done_callback(look)
            for id, future in futures.items():
                try:
                    await future
                except DeliveryError as error:
                    self.stage.wrong(f"{id}, sent again, was not accepted: {error!r}")
                del self.open[id]
            await asyncio.sleep(self.random.random() / 50)
