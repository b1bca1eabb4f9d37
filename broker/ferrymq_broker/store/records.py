"""The records that batches add up to, as something else than a journal keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ferrymq_broker.store.errors import StoreDamaged

# What `Brief` is shown of a value.
HEAD_BYTES: Final = 14


class Record(NamedTuple):
    """A record as it was found; its checksum was right."""

    id: int
    number: int
    value: bytes


def run_of(
    get: Callable[[int, int, int], bytes | None],
    table: int,
    id: int,
    first: int,
    end: int,
    most: int,
) -> list[bytes]:
    """Answer `Records.run` where records can be read one by one only."""
    values: list[bytes] = []
    size = 0
    while first < end and size < most:
        try:
            value = get(table, id, first)
        except StoreDamaged:
            break
        if value is None:
            break
        values.append(value)
        size += len(value)
        first += 1
    return values


class Brief:
    """Who goes through the records of a table, and can do without most of what is in some."""

    def suffices(self, id: int, head: bytes) -> bool:
        """Whether the first `HEAD_BYTES` of the value of a record of this id are enough."""
        raise NotImplementedError

    def passed(self, id: int, number: int) -> int:
        """The last number of the records of this id, from `number` on, that nobody asks for; -1 if
        this very one is asked for."""
        return -1


class Part(NamedTuple):
    """A record as it was found, or the beginning of its `value`, which has `size` bytes. If this is
    all of it, its checksum was right; of a beginning nobody has looked at it."""

    id: int
    number: int
    value: bytes
    size: int


def parts_of(records: Iterator[Record], brief: Brief) -> Iterator[Part]:
    """Answer `Records.scan_parts` where records can be read whole only."""
    for id, number, value in records:
        if brief.passed(id, number) >= 0:
            continue
        size = len(value)
        head = value[:HEAD_BYTES]
        if size > HEAD_BYTES and brief.suffices(id, head):
            yield Part(id, number, head, size)
        else:
            yield Part(id, number, value, size)


class RecordsGrow(Exception):
    """The records need more room than they were given: abort, and do it again. Nothing was lost."""


class Records:
    """All records up to the batch `applied`.

    Changes are made between `begin` and `commit`; `commit` alone may be called in another thread,
    and is the only thing that blocks for long. Reads see what was committed last. There is one
    writer, and no read lasts longer than a call but `scan`, which is for times without changes.
    """

    applied: int
    # Whether nothing was ever committed.
    is_new: bool

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """The value of a record, None if there is none. Raises `StoreDamaged`."""
        raise NotImplementedError

    def run(self, table: int, id: int, first: int, end: int, most: int) -> list[bytes]:
        """The values of the records from the number `first` to before `end`, without gaps.

        They end before the first that is missing or damaged, and when they have `most` bytes.
        """
        return run_of(self.get, table, id, first, end, most)

    def scan(self, table: int) -> Iterator[Record]:
        """All records of a table by id and number. Raises `StoreDamaged`."""
        raise NotImplementedError

    def scan_parts(self, table: int, brief: Brief) -> Iterator[Part]:
        """As `scan`, with no more of each value than `brief` wants."""
        return parts_of(self.scan(table), brief)

    def highest(self, prefix: bytes) -> int:
        """The highest number that a record of a prefix (table, id: 9 bytes) has, -1 if there is
        none; to be called between `begin` and `commit`."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin to change records."""
        raise NotImplementedError

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        """Set the record of a key (table, id, number: 17 bytes): checksum and value."""
        raise NotImplementedError

    def extend(self, prefix: bytes, size: int) -> None:
        """Puts of records of this prefix follow, in order, with values of about this size, until
        this is called again. It makes no difference but to how the records are laid out."""

    def drop(self, key: bytes) -> None:
        """Remove the record of a key."""
        raise NotImplementedError

    def drop_range(self, first: bytes, last: bytes, limit: int) -> bool:
        """Drop records from one key to another, both included, but no more than `limit`; whether
        all are gone."""
        raise NotImplementedError

    def commit(self, applied: int) -> None:
        """Make the changes stay, and `applied` with them; synced."""
        raise NotImplementedError

    def abort(self) -> None:
        """Forget the changes, if there are any."""
        raise NotImplementedError

    def count(self) -> int:
        """How many records there are, or 0 if nobody knows."""
        return 0

    def file_bytes(self) -> int:
        """Return the size of the file of the records, in bytes, with its free pages."""
        return self.used_bytes()

    def used_bytes(self) -> int:
        """Return the bytes that records take on disk, without free pages."""
        raise NotImplementedError

    def close(self) -> None:
        """The end."""
        raise NotImplementedError
