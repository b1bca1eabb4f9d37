"""Clients that receive from queues: they accept, return, reject, hold, and look away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import ferrymq
from ferrymq import Delivery, Receiver
from ferrymq_types.messaging import TerminusExpiryPolicy
from ferrymq_types.transport import ReceiverSettleMode
from tests.crash.actors.actor import Actor
from tests.crash.client_side import ClientSide

# How often which outcome is given; `hold` is none for a while, or for ever.
ACCEPTING: Final = {"accepted": 85, "released": 8, "failed": 4, "hold": 3}
RETURNING: Final = {"accepted": 15, "released": 60, "failed": 20, "hold": 5}
REJECTING: Final = {"accepted": 40, "rejected": 30, "failed": 20, "released": 5, "hold": 5}


class Consumer(Actor):
    """Gives outcomes and, unless it is `hasty`, waits until the broker has confirmed them."""

    def __init__(
        self,
        stage: ClientSide,
        name: str,
        node: str,
        outcomes: Mapping[str, int] = ACCEPTING,
        *,
        hasty: bool = False,
    ) -> None:
        super().__init__(stage, name)
        self.node = node
        self.hasty = hasty
        self._outcomes = list(outcomes)
        self._weights = list(outcomes.values())

    def receiving(self) -> dict[str, Any]:
        """How to attach."""
        mode = ReceiverSettleMode.FIRST if self.hasty else ReceiverSettleMode.SECOND
        return {"rcv_settle_mode": mode, "credit": self.random.choice((1, 10, 50))}

    async def work(self, connection: ferrymq.Connection) -> None:
        receiver = await self.attach(connection)
        while True:
            delivery = await receiver.receive()
            id = self.got(delivery, self.queue)
            if id is not None:
                self.begin(self._decide(delivery, id))

    async def attach(self, connection: ferrymq.Connection) -> Receiver:
        """Open the link."""
        return await connection.receiver(self.node, **self.receiving())

    @property
    def queue(self) -> str:
        """The queue it receives from."""
        return self.node

    async def _decide(self, delivery: Delivery, id: str) -> None:
        [outcome] = self.random.choices(self._outcomes, self._weights)
        if outcome == "hold":
            await asyncio.sleep(self.random.random())
            outcome = "accepted"
        await self.give(delivery, id, self.queue, outcome)


class Subscriber(Consumer):
    """Has a durable subscription, which it comes back to."""

    def __init__(self, stage: ClientSide, name: str, link: str, topic: str) -> None:
        super().__init__(stage, name, topic)
        self.link = link

    @property
    def queue(self) -> str:
        return f"{self.node}::{self.name}/{self.link}"

    def receiving(self) -> dict[str, Any]:
        return {
            **super().receiving(),
            "name": self.link,
            "expiry_policy": TerminusExpiryPolicy.NEVER,
        }

    async def attach(self, connection: ferrymq.Connection) -> Receiver:
        # An attach that is given up is closed again, and that would end the subscription.
        opening = asyncio.ensure_future(super().attach(connection))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            raise

    async def subscribe(self) -> None:
        """Subscribe, and leave."""
        async with self.stage.connect(self.name) as connection:
            receiver = await connection.receiver(self.node, credit=0, **self._named())
            await receiver.detach()

    def _named(self) -> dict[str, Any]:
        return {"name": self.link, "expiry_policy": TerminusExpiryPolicy.NEVER}
