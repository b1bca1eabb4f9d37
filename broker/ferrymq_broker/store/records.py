"""The interface of the records: the state that results from all applied batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.record_run import RecordRun

# How many bytes of a value `Brief` gets.
HEAD_BYTES: Final = 14


class Record(NamedTuple):
    """A record that was read and whose checksum was right."""

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
) -> RecordRun:
    """Implement `Records.run` for a store that returns records only one by one."""
    stored: list[bytes] = []
    size = 0
    number = first
    while number < end and size < most:
        try:
            value = get(table, id, number)
        except StoreDamaged:
            break
        if value is None:
            break
        stored.append(seal(encode_key(table, id, number), value))
        size += len(value)
        number += 1
    return RecordRun(encode_key(table, id, first), stored, most)


class Brief:
    """The interface of a reader that does not need the whole value of each record."""

    def suffices(self, id: int, head: bytes) -> bool:
        """Return whether the first `HEAD_BYTES` of the value of a record of this id are enough."""
        raise NotImplementedError

    def passed(self, id: int, number: int) -> int:
        """Return the last of the consecutive numbers of this id, from `number` on, that the reader
        does not need; -1 if it needs this one."""
        return -1


class Part(NamedTuple):
    """A record that was read, or the beginning of its `value`, which has `size` bytes. The checksum
    of a whole value was right; the checksum of a beginning cannot be checked."""

    id: int
    number: int
    value: bytes
    size: int


def parts_of(records: Iterator[Record], brief: Brief) -> Iterator[Part]:
    """Implement `Records.scan_parts` for a store that returns only whole records."""
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
    """An exception: the records need more room than their map has. Abort and repeat; nothing was
    lost."""


class Records:
    """The interface to all records up to the batch `applied`.

    Changes are made between `begin` and `commit`. Only `commit` blocks for long, and only it may be
    called in another thread. Reads see the last commit. There is one writer. No read lasts longer
    than a call, except `scan`, which must not run while changes are made.
    """

    applied: int
    # Whether no commit has ever been made.
    is_new: bool

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """Return the value of a record, None if there is none. Raises `StoreDamaged`."""
        raise NotImplementedError

    def run(self, table: int, id: int, first: int, end: int, most: int) -> RecordRun:
        """Read the records of consecutive numbers, from `first` to before `end`.

        Stop before a missing record, and when the values have `most` bytes. A damaged record may be
        among them: the run finds that out.
        """
        return run_of(self.get, table, id, first, end, most)

    def scan(self, table: int) -> Iterator[Record]:
        """Yield all records of a table by id and number. Raises `StoreDamaged`."""
        raise NotImplementedError

    def scan_parts(self, table: int, brief: Brief) -> Iterator[Part]:
        """Yield records as `scan` does, with only the bytes of a value that `brief` needs."""
        return parts_of(self.scan(table), brief)

    def highest(self, prefix: bytes) -> int:
        """Return the highest number of a prefix (table, id: 9 bytes), -1 if there is none. Call it
        between `begin` and `commit`."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin to change records."""
        raise NotImplementedError

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        """Set checksum and value of a key (table, id, number: 17 bytes)."""
        raise NotImplementedError

    def extend(self, prefix: bytes, size: int) -> None:
        """Announce that records of this prefix will be put, in order, with values of about this
        size, until the next call. The call affects only the layout of the records."""

    def drop(self, key: bytes) -> None:
        """Delete a record."""
        raise NotImplementedError

    def drop_range(self, first: bytes, last: bytes, limit: int) -> bool:
        """Delete at most `limit` records from one key to another, both included. Return whether all
        are deleted."""
        raise NotImplementedError

    def commit(self, applied: int) -> None:
        """Commit the changes together with `applied`, and sync them."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Return space that the last commit has freed to the file system. Call it when all reads
        are over that have begun before that commit."""

    def abort(self) -> None:
        """Discard the changes, if there are any."""
        raise NotImplementedError

    def copy(self, descriptor: int) -> None:
        """Write a file of records to an open file or pipe. Call it in a thread; nothing may be
        committed meanwhile. Raises `OSError`, `StoreDamaged`."""
        raise NotImplementedError

    def count(self) -> int:
        """Return the number of records, or 0 if it is unknown."""
        return 0

    def file_bytes(self) -> int:
        """Return the bytes of the records' file, free pages included."""
        return self.used_bytes()

    def used_bytes(self) -> int:
        """Return the bytes that records take on the disk, without space that can be reused."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the records."""
        raise NotImplementedError
