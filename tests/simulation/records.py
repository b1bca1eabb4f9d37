"""Records on the simulated disk: a commit is there or not."""

from __future__ import annotations

import errno

from tests.simulation.disk import SimulatedDisk
from tests.support.memory_records import MemoryDisk, MemoryRecords


class SimulatedRecords(MemoryRecords):
    """Records whose commits take room on the simulated disk, and fail with it."""

    def __init__(self, disk: SimulatedDisk, kept: MemoryDisk) -> None:
        super().__init__(kept)
        self._simulated = disk

    def commit(self, applied: int) -> None:
        disk = self._simulated
        changed = self._changing()
        self._changed = None
        if disk.failing is not None:
            raise disk.failing
        grown = sum(map(len, changed.values())) - self.used_bytes()
        if grown > disk.free():
            raise OSError(errno.ENOSPC, "the simulated disk has no room for records")
        disk.step()
        disk.record_bytes += grown
        self._changed = changed
        super().commit(applied)

    def used_bytes(self) -> int:
        return sum(map(len, self._disk.stored.values()))
