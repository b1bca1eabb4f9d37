"""The end of a run: everything there is comes out, and is written down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import ferrymq
from ferrymq import Delivery, LinkDetached
from ferrymq_types.transport import ReceiverSettleMode
from tests.crash.actors.actor import Actor
from tests.crash.actors.declaring import declared, look_at_all
from tests.crash.actors.streams import read
from tests.crash.client_side import ClientSide
from tests.crash.layout import PARTITIONS, QUEUES, STREAM

_AT_ONCE = 500


class Drain(Actor):
    """Takes all messages out of all queues, reads the whole stream, asks for all entities."""

    def __init__(self, stage: ClientSide) -> None:
        super().__init__(stage, "drain")

    async def work(self, connection: ferrymq.Connection) -> None:
        self.ledger.write("drains")
        await self._wait_for_schedules()
        async with connection.management() as management:
            await look_at_all(self.stage, management)
        there = {
            entry.about["name"]
            for entry in self.ledger.entries
            if entry.what == "found" and entry.about["type"] == "queue"
        }
        made = [name for _, name in declared(self.ledger.entries) if name in there]
        for queue in [*made, *QUEUES]:
            await self._try(self._drain(connection, queue))
        for partition in range(PARTITIONS):
            await self._try(self._read(connection, partition))

    async def _try(self, work: Coroutine[Any, Any, None]) -> None:
        """What one node refuses is no reason to leave out the others."""
        try:
            await work
        except LinkDetached as error:
            self.stage.wrong(f"{self.name}: {error!r}")

    async def _wait_for_schedules(self) -> None:
        due = [entry.about.get("due") for entry in self.ledger.entries if entry.what == "sent"]
        last = max((time for time in due if time is not None), default=0)
        await asyncio.sleep(max(0.0, last / 1000 + 0.05 - time.time()))

    async def _drain(self, connection: ferrymq.Connection, queue: str) -> None:
        mode = ReceiverSettleMode.SECOND
        async with connection.receiver(queue, credit=0, rcv_settle_mode=mode) as receiver:
            async for batch in _batches(receiver):
                given = []
                for delivery in batch:
                    id = self.got(delivery, queue, drained=True)
                    if id is not None:
                        given.append(self.give(delivery, id, queue, "accepted"))
                await asyncio.gather(*given)

    async def _read(self, connection: ferrymq.Connection, partition: int) -> None:
        address = f"{STREAM}::{partition}"
        async with connection.receiver(address, start="first", credit=0) as receiver:
            async for batch in _batches(receiver):
                for delivery in batch:
                    read(self, delivery, drained=True)
                    await delivery.accept()


async def _batches(receiver: ferrymq.Receiver) -> AsyncIterator[list[Delivery]]:
    """What is there, until there is no more."""
    while True:
        receiver.add_credit(_AT_ONCE)
        await receiver.drain()
        batch = []
        while receiver.queued:
            batch.append(await receiver.receive())
        if not batch:
            return
        yield batch


async def drain(stage: ClientSide) -> None:
    """Have everything come out; the broker is up."""
    async with stage.connect("drain") as connection:
        await Drain(stage).work(connection)
