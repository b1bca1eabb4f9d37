"""The records that batches add up to, as something else than a journal keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Record(NamedTuple):
    """A record as it was found; its checksum was right."""

    id: int
    number: int
    value: bytes


class Records:
    """All records up to the batch `applied`.

    Changes are made between `begin` and `commit`; `commit` alone may be called in another thread,
    and is the only thing that blocks for long. Reads see what was committed last. There is one
    writer, and no read lasts longer than a call but `scan`, which is for times without changes.
    """

    applied: int

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """The value of a record, None if there is none. Raises `StoreDamaged`."""
        raise NotImplementedError

    def scan(self, table: int) -> Iterator[Record]:
        """All records of a table by id and number. Raises `StoreDamaged`."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin to change records."""
        raise NotImplementedError

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        """Let the record of a key (table, id, number: 17 bytes) be this: checksum and value."""
        raise NotImplementedError

    def drop(self, key: bytes) -> None:
        """Let there be no such record."""
        raise NotImplementedError

    def drop_range(self, first: bytes, last: bytes, limit: int) -> bool:
        """Drop records from one key to another, both included, but no more than `limit`; whether
        all are gone."""
        raise NotImplementedError

    def commit(self, applied: int) -> None:
        """Make the changes stay, and `applied` with them; synced. Raises `OSError`."""
        raise NotImplementedError

    def abort(self) -> None:
        """Forget the changes."""
        raise NotImplementedError

    def close(self) -> None:
        """The end."""
        raise NotImplementedError
