"""What the broker sees of its store."""

from __future__ import annotations

from collections.abc import Iterator

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.records import Brief, Part, Record, parts_of, run_of


class Store:
    """Takes batches of `changes` and answers what was stored before."""

    changes: Changes

    @property
    def applied(self) -> int:
        """The number of the last batch of which `get` sees the records."""
        raise NotImplementedError

    def push(self) -> None:
        """Take the batch, if there is one and no other is under way; to be called between passes.

        When it is on disk, the broker hears of it (`Broker.on_stable`) in a pass of its own.
        """
        raise NotImplementedError

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """The value of a record; None if there is none, or none yet. Raises `StoreDamaged`."""
        raise NotImplementedError

    def run(self, table: int, id: int, first: int, end: int, most: int) -> list[bytes]:
        """The values of the records from the number `first` to before `end`, without gaps.

        They end before the first that is missing or damaged, and when they have `most` bytes.
        """
        return run_of(self.get, table, id, first, end, most)

    def tidy(self) -> None:
        """To be called now and then, between passes: give back what is not needed."""

    def count(self) -> int:
        """How many records there are in all tables, or 0 if nobody knows."""
        return 0

    def take_paged_out(self) -> list[bytes]:
        """Return, once, what the broker left at a clean stop (`recovery/paged_out.py`); nothing
        after another stop, or if the store has changed since."""
        return []

    def scan_parts(self, table: int, brief: Brief) -> Iterator[Part]:
        """As `scan`, with no more of each value than `brief` wants."""
        return parts_of(self.scan(table), brief)

    def scan(self, table: int) -> Iterator[Record]:
        """All records of a table, by id and number; for the time before `push` is first called."""
        raise NotImplementedError
