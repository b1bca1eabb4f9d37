"""Records on the simulated disk: a commit is there or not."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.lmdb_records import encode_key, is_intact
from ferrymq_broker.store.records import Record, Records
from tests.simulation.disk import SimulatedDisk


class KeptRecords:
    """What is on the disk."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.applied = -1


class SimulatedRecords(Records):
    """A transaction works on a copy, which a commit puts in the place of what was there."""

    def __init__(self, disk: SimulatedDisk, kept: KeptRecords) -> None:
        self._disk = disk
        self._kept = kept
        self.is_new = kept.applied < 0
        self.applied = max(0, kept.applied)
        self._changed: dict[bytes, bytes | None] | None = None

    def get(self, table: int, id: int, number: int) -> bytes | None:
        key = encode_key(table, id, number)
        stored = self._kept.data.get(key)
        if stored is None:
            return None
        if not is_intact(key, stored):
            raise StoreDamaged("a simulated record is damaged")
        return stored[4:]

    def scan(self, table: int) -> Iterator[Record]:
        for key in sorted(self._kept.data):
            if key[0] == table:
                stored = self._kept.data[key]
                if not is_intact(key, stored):
                    raise StoreDamaged("a simulated record is damaged")
                yield Record(
                    int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:], "big"), stored[4:]
                )

    def _all(self) -> dict[bytes, bytes | None]:
        assert self._changed is not None
        return {**self._kept.data, **self._changed}

    def highest(self, prefix: bytes) -> int:
        numbers = [
            int.from_bytes(key[9:], "big")
            for key, stored in self._all().items()
            if stored is not None and key[:9] == prefix
        ]
        return max(numbers, default=-1)

    def begin(self) -> None:
        assert self._changed is None
        self._changed = {}

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        assert self._changed is not None
        self._changed[key] = bytes(value)

    def drop(self, key: bytes) -> None:
        assert self._changed is not None
        self._changed[key] = None

    def drop_range(self, first: bytes, last: bytes, limit: int) -> bool:
        assert self._changed is not None
        for key, stored in self._all().items():
            if stored is not None and first <= key <= last:
                if limit <= 0:
                    return False
                limit -= 1
                self._changed[key] = None
        return True

    def commit(self, applied: int) -> None:
        disk = self._disk
        changed = self._changed
        assert changed is not None
        self._changed = None
        if disk.failing is not None:
            raise disk.failing
        grown = sum(
            len(stored or b"") - len(self._kept.data.get(key, b""))
            for key, stored in changed.items()
        )
        if grown > disk.free():
            raise OSError(errno.ENOSPC, "the simulated disk has no room for records")
        disk.step()
        disk.record_bytes += grown
        for key, stored in changed.items():
            if stored is None:
                self._kept.data.pop(key, None)
            else:
                self._kept.data[key] = stored
        self._kept.applied = applied
        self.applied = applied
        self.is_new = False

    def abort(self) -> None:
        self._changed = None

    def used_bytes(self) -> int:
        return sum(map(len, self._kept.data.values()))

    def close(self) -> None:
        self._changed = None
