"""Somebody who copies a partition in chunks, over as many links as it takes."""

from __future__ import annotations

from uuid import UUID

from ferrymq.chunks import CHUNK_FORMAT, Chunk
from ferrymq.engine.delivery import IncomingDelivery
from tests.broker.chaos.ledger import Ledger, Part, Record, passes
from tests.broker.chaos.stage import Actor
from tests.broker.harness import Receiver


class Journey:
    """How far it has got, and what it has been promised.

    `next` is the offset of the next record that it wants, `end` what the last chunk said of where
    the partition ends. `until`, `forgiving` and `selector` are as in its attach, `holder` the name
    of the hold that is to keep its records, empty if there is none. `receiver` is the link, if one
    is attached, of `actor`; `bytes` and `records` are what was granted to that.
    """

    def __init__(
        self, number: int, stream: str, partition: int, until: int | None, forgiving: bool
    ) -> None:
        self.number = number
        self.stream = stream
        self.partition = partition
        self.until = until
        self.forgiving = forgiving
        self.selector: str | None = None
        self.incarnation: UUID | None = None
        self.next = 0
        self.end = 0
        self.holder = ""
        # The largest message that it takes, 0 for any.
        self.largest = 0
        self.actor: Actor | None = None
        self.receiver: Receiver | None = None
        self.bytes = 0
        self.records = 0
        # What has come over it and was not settled.
        self.unsettled: list[IncomingDelivery] = []

    def __repr__(self) -> str:
        return f"journey {self.number} in {self.stream}::{self.partition} at {self.next}"

    @property
    def part(self) -> Part:
        """What it reads."""
        assert self.incarnation is not None
        return self.incarnation, self.partition

    @property
    def arrived(self) -> bool:
        """Whether it has all it wanted."""
        return self.until is not None and self.next >= self.until

    def leave(self) -> None:
        """Its link is gone."""
        self.actor = None
        self.receiver = None
        self.unsettled.clear()

    def take(self, delivery: IncomingDelivery, ledger: Ledger, published: set[bytes]) -> int:
        """A chunk has come: check everything about it that it says itself, and go on behind it.

        The answer is where it began: later than `next` if records before it are gone.
        """
        assert delivery.message_format == CHUNK_FORMAT
        assert not self.arrived, f"{self}: something came when it had all"
        chunk = Chunk(delivery.payload)
        first, next = int(chunk.first), int(chunk.next)
        assert first >= self.next, f"{self}: {chunk} has what has been before"
        assert first == self.next or self.forgiving, f"{self}: {chunk} leaves something out"
        assert chunk.count <= self.records
        assert len(delivery.payload) <= self.bytes or chunk.count <= 1
        assert self.until is None or next <= self.until, f"{self}: {chunk} goes too far"
        assert chunk.end >= max(next, self.end)
        if self.selector is None:
            assert chunk.count == next - first
            assert chunk.count > 0 or next == self.until, f"{self}: {chunk} says nothing"
        present = set()
        for i in range(chunk.count):
            offset = chunk.offset(i)
            record = Record(chunk.payload(i), chunk.time(i), chunk.format(i))
            ledger.see(self.part, offset, record)
            assert passes(record.payload, self.selector), f"{self}: {offset} does not pass"
            assert record.payload in published
            present.add(offset)
        known = ledger.of(self.part)
        for offset in range(first, next):
            assert offset in present or (
                offset not in known or not passes(known[offset].payload, self.selector)
            ), f"{self}: {chunk} has no record {offset}"
        self.next = next
        self.end = int(chunk.end)
        return first
