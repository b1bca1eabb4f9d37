"""Readers of the stream: one that goes on where it was, at every record that comes, and one that
looks again at what was there before."""

from __future__ import annotations

import asyncio
from typing import Any

import ferrymq
from ferrymq import Delivery
from tests.crash.actors.actor import Actor
from tests.crash.client_side import ClientSide
from tests.crash.layout import PARTITIONS, STREAM


class Reader(Actor):
    """Reads one partition from the offset behind the last record it has seen."""

    def __init__(self, stage: ClientSide, name: str, partition: int) -> None:
        super().__init__(stage, name)
        self.partition = partition
        self.next = 0

    async def work(self, connection: ferrymq.Connection) -> None:
        address = f"{STREAM}::{self.partition}"
        async with connection.receiver(address, start=self.next, credit=200) as receiver:
            async for delivery in receiver:
                offset = read(self, delivery)
                if offset != self.next:
                    self.stage.wrong(f"{self.name} expected offset {self.next}, got {offset}")
                self.next = offset + 1
                await delivery.accept()


class Rereader(Actor):
    """Reads some records from anywhere."""

    def __init__(self, stage: ClientSide, name: str, readers: list[Reader]) -> None:
        super().__init__(stage, name)
        self.readers = readers

    async def work(self, connection: ferrymq.Connection) -> None:
        while True:
            partition = self.random.randrange(PARTITIONS)
            next = self.readers[partition].next
            if next:
                address = f"{STREAM}::{partition}"
                start = self.random.randrange(next)
                async with connection.receiver(address, start=start, credit=20) as receiver:
                    for _ in range(min(20, next - start)):
                        delivery = await receiver.receive()
                        read(self, delivery)
                        await delivery.accept()
            await asyncio.sleep(self.random.random() / 10)


def read(actor: Actor, delivery: Delivery, **more: Any) -> int:
    """Tell the ledger of a record; its offset."""
    annotations = delivery.message.message_annotations
    offset = annotations["x-opt-offset"]
    partition = annotations["x-opt-partition"]
    time = annotations["x-opt-enqueued-time"]
    assert isinstance(offset, int) and isinstance(partition, int)
    id = actor.stage.identify(delivery.message)
    if id is not None:
        actor.ledger.write(
            "read",
            id=id,
            node=STREAM,
            partition=int(partition),
            offset=int(offset),
            time=int(time),  # type: ignore[call-overload]
            **more,
        )
    return int(offset)
