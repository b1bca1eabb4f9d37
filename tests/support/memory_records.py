"""Records in memory, with commits that are atomic: the store of simulations, fuzzing and tests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.keys import describe_key, encode_key, is_intact
from ferrymq_broker.store.records import Record, Records


class MemoryDisk:
    """Committed records, which outlive the `MemoryRecords` that committed them."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}
        # -1 before the first commit.
        self.applied: int = -1


class MemoryRecords(Records):
    """Records on a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.is_new: bool = disk.applied < 0
        self.applied: int = max(disk.applied, 0)
        self._changed: dict[bytes, bytes] | None = None

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """See `Records.get`."""
        key = encode_key(table, id, number)
        stored = self._disk.stored.get(key)
        return None if stored is None else self._checked(key, stored)

    def scan(self, table: int) -> Iterator[Record]:
        """See `Records.scan`."""
        for key in sorted(self._disk.stored):
            if key[0] == table:
                value = self._checked(key, self._disk.stored[key])
                yield Record(int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:], "big"), value)

    def _checked(self, key: bytes, stored: bytes) -> bytes:
        if not is_intact(key, stored):
            raise StoreDamaged(f"{describe_key(key)} is damaged: its checksum is wrong")
        return stored[4:]

    def highest(self, prefix: bytes) -> int:
        """See `Records.highest`."""
        numbers = (key[9:] for key in self._changing() if key[:9] == prefix)
        return max((int.from_bytes(number, "big") for number in numbers), default=-1)

    def begin(self) -> None:
        """See `Records.begin`."""
        self._changed = dict(self._disk.stored)

    def _changing(self) -> dict[bytes, bytes]:
        assert self._changed is not None, "changes are made after begin"
        return self._changed

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        """See `Records.put`."""
        self._changing()[key] = bytes(value)

    def drop(self, key: bytes) -> None:
        """See `Records.drop`."""
        self._changing().pop(key, None)

    def drop_range(self, first: bytes, last: bytes, limit: int) -> bool:
        """See `Records.drop_range`."""
        changed = self._changing()
        keys = sorted(changed)
        dropped = [key for key in keys[bisect_left(keys, first) :] if key <= last]
        for key in dropped[:limit]:
            del changed[key]
        return len(dropped) <= limit

    def commit(self, applied: int) -> None:
        """See `Records.commit`."""
        self._disk.stored = self._changing()
        self._disk.applied = self.applied = applied
        self._changed = None
        self.is_new = False

    def abort(self) -> None:
        """See `Records.abort`."""
        self._changed = None

    def count(self) -> int:
        """See `Records.count`."""
        return len(self._disk.stored)

    def used_bytes(self) -> int:
        """See `Records.used_bytes`."""
        return sum(len(key) + len(stored) for key, stored in self._disk.stored.items())

    def close(self) -> None:
        """See `Records.close`."""
        self._changed = None
