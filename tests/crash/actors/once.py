"""Clients that want each message exactly once: their links are resumed when the broker comes back,
and in what stands for another process when they were gone themselves."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import ferrymq
from ferrymq import AmqpError, Delivery, DeliveryError, ReconnectPolicy, Sender
from ferrymq.unsettled import Unsettled
from tests.crash.actors.actor import LOST, Actor, look
from tests.crash.client_side import ClientSide
from tests.crash.layout import destinations

_SOON: Final = ReconnectPolicy(initial=0.01, factor=1.5, maximum=0.1)
_WINDOW: Final = 20


class Resuming(Actor):
    """Works until it is told to finish, over connections that the client restores by itself."""

    def __init__(self, stage: ClientSide, name: str, node: str) -> None:
        super().__init__(stage, name)
        self.node = node
        # What another process would have written down; None before there was one.
        self.unsettled: list[Unsettled] | None = None
        # Whether nothing is left to be resumed, by this process or another.
        self.ended = False
        self._finishing = asyncio.Event()
        self._finished = asyncio.Event()

    async def run(self) -> None:
        try:
            while not self.ended:
                await self.stage.up.wait()
                try:
                    connection = await self.stage.connect(self.name, reconnect=_SOON)
                except LOST:
                    await asyncio.sleep(0.01)
                    continue
                try:
                    await self.work(connection)
                except LOST as error:
                    # The broker went before the links were there; later they are restored.
                    self._judge(error, False)
                except AmqpError as error:
                    self.stage.wrong(f"{self.name}: {error!r}")
                    return
                finally:
                    await self._stop_tasks()
                    await connection.close()
                await asyncio.sleep(0.01)
        finally:
            self._finished.set()

    async def finish(self) -> None:
        self._finishing.set()
        async with asyncio.timeout(30):
            await self._finished.wait()

    @property
    def finishing(self) -> bool:
        """Whether there is to be nothing new."""
        return self._finishing.is_set()

    def vanish(self, connection: ferrymq.Connection) -> None:
        """End as a process that is killed: no goodbye, and nobody who connects again."""
        recovery, connection.recovery = connection.recovery, None
        if recovery is not None and recovery._task is not None:
            recovery._task.cancel()
        connection.transport.abort()


class OnceSender(Resuming):
    """Sends over one link, whatever becomes of connections; all messages get an outcome."""

    def __init__(self, stage: ClientSide, name: str, node: str) -> None:
        super().__init__(stage, name, node)
        # What this process leaves to the next.
        self._left: set[str] = set()

    async def work(self, connection: ferrymq.Connection) -> None:
        sender = await connection.sender(
            self.node, name="once", exactly_once=True, unsettled=self.unsettled
        )
        self._left.clear()
        for tag, error in (await sender.resumed()).items():
            self._judge_end(tag.decode(), error)
            sender.settle(tag)
        under_way: set[asyncio.Future[None]] = set()
        for _ in range(self.random.randint(20, 200)):
            if self.finishing:
                break
            await sender.ready()
            under_way.add(self._send(sender))
            if len(under_way) > _WINDOW:
                _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            if self.random.random() < 0.2:
                await asyncio.sleep(self.random.random() / 50)
        if self.finishing or self.random.random() < 0.5:
            await asyncio.gather(*under_way, return_exceptions=True)
            self.unsettled = []
            await sender.detach(timeout=1)
            self.ended = self.finishing
            return
        self.unsettled = sender.unsettled_deliveries()
        self._left = {one.tag.decode() for one in self.unsettled}
        self.vanish(connection)

    def _send(self, sender: Sender) -> asyncio.Future[None]:
        id = self.new_id()
        message = self.stage.message(id, self.size())
        self.ledger.write("sent", id=id, to=destinations(self.node), once=True)
        future = sender.send_nowait(message, delivery_tag=id.encode())
        future.add_done_callback(partial(self._on_end, id))
        future.add_done_callback(look)
        return future

    def _on_end(self, id: str, future: asyncio.Future[None]) -> None:
        if future.cancelled() or id in self._left:
            return
        error = future.exception()
        self._judge_end(id, error if isinstance(error, AmqpError) else None)

    def _judge_end(self, id: str, error: AmqpError | None) -> None:
        if error is None:
            self.ledger.write("answered", id=id, outcome="accepted")
        elif isinstance(error, DeliveryError):
            self.ledger.write("answered", id=id, outcome=type(error).__name__[8:].lower())
        else:
            self.stage.wrong(f"{id} was not resumed: {error!r}")


class OnceReceiver(Resuming):
    """Receives over one link; no message is handed out twice, no outcome is lost."""

    def __init__(self, stage: ClientSide, name: str, node: str) -> None:
        super().__init__(stage, name, node)
        # Which message a delivery-tag is, and the key of its outcome in the ledger.
        self._decided: dict[bytes, tuple[str, int]] = {}

    async def work(self, connection: ferrymq.Connection) -> None:
        receiver = await connection.receiver(
            self.node, name="once", exactly_once=True, credit=20, unsettled=self.unsettled
        )
        for tag, error in (await receiver.resumed()).items():
            self._judge_end(tag, error)
        number = self.random.randint(20, 200)
        while not self.finishing and number:
            try:
                delivery = await receiver.receive(timeout=0.05)
            except TimeoutError:
                continue
            number -= 1
            id = self.got(delivery, self.node, once=True)
            if id is not None:
                self.begin(self._accept(delivery, id))
        # Every message that was received is decided on.
        await asyncio.sleep(0)
        if self.finishing or self.random.random() < 0.5:
            await asyncio.gather(*self._tasks)
            self.unsettled = receiver.unsettled_deliveries()
            if self.finishing:
                # This gives back what was not looked at.
                await receiver.close(timeout=1)
                # The broker may have gone meanwhile, and still holds what it sent.
                engine = receiver._engine
                self.ended = engine is not None and engine.remote_closed
            else:
                await receiver.detach(timeout=1)
        else:
            self.unsettled = receiver.unsettled_deliveries()
            self.vanish(connection)

    async def _accept(self, delivery: Delivery, id: str) -> None:
        key = len(self.ledger.entries)
        self.ledger.write("gives", id=id, node=self.node, outcome="accepted", key=key)
        self._decided[delivery.tag] = (id, key)
        await delivery.accept()
        self._judge_end(delivery.tag, None)

    def _judge_end(self, tag: bytes, error: AmqpError | None) -> None:
        id, key = self._decided.pop(tag)
        if error is None:
            self.ledger.write("confirmed", id=id, node=self.node, key=key)
        else:
            self.stage.wrong(f"{id} was taken back after it was accepted: {error!r}")
