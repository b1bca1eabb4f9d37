"""The interface of the store to the broker."""

from __future__ import annotations

from collections.abc import Iterator

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.record_run import RecordRun
from ferrymq_broker.store.records import Brief, Part, Record, parts_of, run_of


class Store:
    """The store as the broker uses it: it writes the batches of `changes` and reads stored
    records."""

    changes: Changes

    @property
    def applied(self) -> int:
        """The number of the last batch that is in the records."""
        raise NotImplementedError

    def push(self) -> None:
        """Write the batch unless it is empty or another is under way. Call it between passes.

        When the batch is on disk, the store calls `Broker.on_stable` in another pass.
        """
        raise NotImplementedError

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """Return the value of a record; None if it does not exist or is not applied yet.

        Raises `StoreDamaged`.
        """
        raise NotImplementedError

    def run(self, table: int, id: int, first: int, end: int, most: int) -> RecordRun:
        """See `Records.run`."""
        return run_of(self.get, table, id, first, end, most)

    def tidy(self) -> None:
        """Release unused space. Call it from time to time, between passes."""

    def count(self) -> int:
        """Return the number of records in all tables, or 0 if it is unknown."""
        return 0

    def take_paged_out(self) -> list[bytes]:
        """Return, once, the blocks that the broker left at a proper stop (`recovery/paged_out.py`).
        The list is empty if there are none, or if anything has changed since."""
        return []

    def scan_parts(self, table: int, brief: Brief) -> Iterator[Part]:
        """Yield records as `scan` does, with only the bytes of a value that `brief` needs."""
        return parts_of(self.scan(table), brief)

    def scan(self, table: int) -> Iterator[Record]:
        """Yield all records of a table, by id and number; before the first `push`."""
        raise NotImplementedError
