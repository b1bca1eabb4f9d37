"""What clients of all kinds have in common: they come back, and they keep the ledger."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import Any, Final

import ferrymq
from ferrymq import (
    AmqpError,
    AuthenticationError,
    ConnectionClosed,
    Delivery,
    DeliveryError,
    LinkDetached,
    PeerError,
    Sender,
    TransportError,
)
from ferrymq_types.transport import ReceiverSettleMode
from tests.crash.client_side import ClientSide
from tests.crash.layout import destinations

# What is lost when the broker goes.
LOST: Final = (PeerError, TransportError, AuthenticationError, OSError)

# What a broker that is going says, if it still can.
_FAREWELL: Final = ("amqp:connection:forced", "amqp:connection:redirect")


class Actor(ABC):
    """A client with a name, a container-id of that name, and decisions that follow from the seed.

    Its ids are the name and a number, in the order it sends.
    """

    def __init__(self, stage: ClientSide, name: str) -> None:
        self.stage = stage
        self.name = name
        self.ledger = stage.ledger
        self.random = Random(f"{stage.seed} {name}")
        self._sent = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work, and begin again whenever the connection is lost, until cancelled."""
        while True:
            await self.stage.up.wait()
            service = self.stage.service
            try:
                async with self.stage.connect(self.name) as connection:
                    try:
                        await self.work(connection)
                    finally:
                        await self._stop_tasks()
            except LOST as error:
                self._judge(error, service is not None and service is self.stage.service)
            except AmqpError as error:
                self.stage.wrong(f"{self.name}: {error!r}")
            await asyncio.sleep(self.stage.longest_pause * (0.2 + 0.8 * self.random.random()))

    async def finish(self) -> None:
        """Bring to an end what must have one; the broker is up."""
        return

    @abstractmethod
    async def work(self, connection: ferrymq.Connection) -> None:
        """What it does while it is connected; if it returns, it connects again."""

    def _judge(self, error: BaseException, alive: bool) -> None:
        """Whether the broker may do this: it may go, but not throw anybody out."""
        condition = error.condition if isinstance(error, PeerError) else None
        if condition is not None and condition not in _FAREWELL:
            self.stage.wrong(f"{self.name}: {error!r}")
        elif isinstance(error, TimeoutError) and alive:
            self.stage.wrong(f"{self.name}: no answer in time: {error!r}")
        elif alive and self.stage.on_lost is not None:
            self.stage.on_lost(f"{self.name}: {error!r}")

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; it ends with the connection at the latest."""
        task = asyncio.get_running_loop().create_task(self._quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except LOST as error:
            self._judge(error, False)
        except AmqpError as error:
            self.stage.wrong(f"{self.name}: {error!r}")

    async def _stop_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- sending -------------------------------------------------------------------------------

    def new_id(self) -> str:
        """An id for a new message."""
        self._sent += 1
        return f"{self.name}.{self._sent}"

    def size(self) -> int:
        """Bytes for a message: most are small, some take many frames of the store's blocks."""
        if self.random.random() < 0.95:
            return self.random.randrange(1200)
        return self.random.randrange(self.stage.largest)

    def send(
        self, sender: Sender, node: str, id: str | None = None, size: int | None = None, **more: Any
    ) -> asyncio.Future[None]:
        """Send a message to a node, after `Sender.ready`; the ledger hears of it and its outcome.

        `more` are fields of the entry `sent`; `fields` among them those of the message.
        """
        fields = more.pop("fields", {})
        id = id or self.new_id()
        made = self.stage.message(id, self.size() if size is None else size, **fields)
        self.ledger.write("sent", id=id, to=destinations(node), **more)
        future = sender.send_nowait(made)
        future.add_done_callback(partial(self._on_outcome, id))
        return future

    def _on_outcome(self, id: str, future: asyncio.Future[None]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.ledger.write("answered", id=id, outcome="accepted")
        elif isinstance(error, DeliveryError):
            self.ledger.write("answered", id=id, outcome=type(error).__name__[8:].lower())

    # -- receiving -----------------------------------------------------------------------------

    def got(self, delivery: Delivery, node: str, **more: Any) -> str | None:
        """Tell the ledger of a message; its id, None if it is none of ours."""
        id = self.stage.identify(delivery.message)
        if id is not None:
            self.ledger.write("got", id=id, node=node, **more)
        return id

    async def give(self, delivery: Delivery, id: str, node: str, outcome: str) -> None:
        """Give an outcome; where the broker confirms it, the ledger hears of that too."""
        key = len(self.ledger.entries)
        self.ledger.write("gives", id=id, node=node, outcome=outcome, key=key)
        engine = delivery._engine
        confirmed = engine.link.rcv_settle_mode is ReceiverSettleMode.SECOND
        try:
            if outcome == "accepted":
                await delivery.accept()
            elif outcome == "rejected":
                await delivery.reject("ferrymq:unwanted", "by a test")
            elif outcome == "failed":
                await delivery.modify(delivery_failed=True)
            else:
                await delivery.release()
        except (ConnectionClosed, LinkDetached):
            if not delivery._given:
                # The link was gone before: nothing was said.
                self.ledger.write("unsaid", id=id, node=node, key=key)
            raise
        if confirmed:
            self.ledger.write("confirmed", id=id, node=node, key=key)


def look(future: asyncio.Future[None]) -> None:
    """So that asyncio does not report the outcomes of a lost connection as overlooked."""
    if not future.cancelled():
        future.exception()
