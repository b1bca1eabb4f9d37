"""Stores whose threads and disks do what a test says."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.disk import File, Folder
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.executor import Call, Done, Executor
from ferrymq_broker.store.records import Records
from ferrymq_broker.store.tables import NAMES
from tests.simulation.disk import Interrupted, SimulatedDisk, SimulatedFolder
from tests.support.memory_records import MemoryDisk, MemoryRecords

SMALL = 64 << 10

# Table, id, number.
Key = tuple[int, int, int]
Contents = dict[Key, bytes]


class ManualExecutor(Executor):
    """Calls that wait until the test makes them."""

    def __init__(self) -> None:
        self.writes: deque[tuple[Call, Done]] = deque()
        self.commits: deque[tuple[Call, Done]] = deque()
        self.soons: deque[Call] = deque()
        self.timers: list[tuple[float, Call]] = []
        self.closed = False

    def write(self, call: Call, done: Done) -> None:
        self.writes.append((call, done))

    def commit(self, call: Call, done: Done) -> None:
        self.commits.append((call, done))

    def soon(self, call: Call) -> None:
        self.soons.append(call)

    def later(self, seconds: float, call: Call) -> None:
        self.timers.append((seconds, call))

    def time(self) -> float:
        return 0.0

    def drain(self) -> None:
        while self.writes or self.commits:
            self.make(self.writes or self.commits)

    def close(self) -> None:
        self.closed = True

    def make(self, calls: deque[tuple[Call, Done]]) -> bool:
        """Make the next one of some calls, and say how it ended; whether there was one."""
        if not calls:
            return False
        call, done = calls.popleft()
        failed: Exception | None = None
        try:
            call()
        except Exception as error:
            failed = error
        done(failed)
        return True

    def step(self) -> bool:
        """Make one call of the event loop, whether there was one."""
        if not self.soons:
            return False
        self.soons.popleft()()
        return True

    def run(self) -> None:
        """Make everything there is to make, but for timers."""
        while self.step() or self.make(self.writes) or self.make(self.commits):
            pass

    def elapse(self) -> None:
        """Let all timers run out, and do what comes of it."""
        timers, self.timers = self.timers, []
        for _, call in timers:
            call()
        self.run()


class Owner:
    """Who uses a store: writes changes, and knows what was promised."""

    def __init__(
        self,
        folder: Folder,
        open_records: Callable[[], Records],
        segment_bytes: int = SMALL,
        max_bytes: int = 0,
        executor: Executor | None = None,
    ) -> None:
        self.changes = Changes()
        self.stable: list[int] = []
        self.failures: list[str] = []
        self.full: list[bool] = []
        self.executor = ManualExecutor()
        self.store = DurableStore(
            folder,
            lambda clean: open_records(),
            self.changes,
            StoreOptions(segment_bytes, max_bytes),
        )
        self.store.start(
            executor or self.executor, self._on_stable, self.failures.append, self.full.append
        )

    def _on_stable(self) -> None:
        self.changes.settle()
        self.stable.append(self.changes.stable)

    def put(self, number: int, value: bytes, table: int = 5, id: int = 1) -> None:
        self.changes.put(table, id, number, value)

    def write(self, number: int, value: bytes) -> None:
        """One record in a batch of its own, on disk."""
        self.put(number, value)
        self.store.push()
        self.executor.run()

    def contents(self) -> Contents:
        return contents_of(self.store)


def contents_of(store: DurableStore) -> Contents:
    """Everything that was in a store when it was opened."""
    return {
        (table, record.id, record.number): record.value
        for table in NAMES
        for record in store.scan(table)
    }


class SimulatedMachine:
    """A disk of files and one of records, for one store after another."""

    def __init__(self, seed: int = 0, capacity: int = 1 << 40) -> None:
        self.disk = SimulatedDisk(Random(seed), capacity=capacity)
        self.records = MemoryDisk()

    def open(self, segment_bytes: int = SMALL, max_bytes: int = 0) -> Owner:
        return Owner(
            SimulatedFolder(self.disk),
            lambda: MemoryRecords(self.records),
            segment_bytes,
            max_bytes,
        )

    def kill(self, owner: Owner, power: bool = False) -> None:
        """The process is gone, in the middle of what its threads do."""
        for calls in (owner.executor.writes, owner.executor.commits):
            if calls:
                self.disk.finish_with(calls[0][0])
        if power:
            self.disk.lose_power()
        self.disk.kill()


class FaultyFile(File):
    """A file whose writes fail when its folder says so."""

    def __init__(self, file: File, folder: FaultyFolder) -> None:
        self._file = file
        self._folder = folder

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def write(self, position: int, parts: Sequence[bytes], sync: bool = True) -> None:
        self._folder.meet("write")
        self._file.write(position, parts, sync)

    def size(self) -> int:
        return self._file.size()

    def fill(self, size: int) -> None:
        self._folder.meet("fill")
        self._file.fill(size)

    def close(self) -> None:
        self._file.close()


class FaultyFolder(SimulatedFolder):
    """A folder in which some operations fail: `errors` by name, until they are taken away."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self.errors: dict[str, int] = {}
        self.made: list[str] = []

    def meet(self, operation: str) -> None:
        self.made.append(operation)
        if operation in self.errors:
            raise OSError(self.errors[operation], errno.errorcode[self.errors[operation]])

    def open(self, name: str) -> File:
        return FaultyFile(super().open(name), self)

    def create(self, name: str) -> File:
        self.meet("create")
        return FaultyFile(super().create(name), self)

    def rename(self, old: str, new: str) -> None:
        self.meet("rename")
        super().rename(old, new)

    def sync(self) -> None:
        self.meet("sync")
        super().sync()


class FaultyRecords(MemoryRecords):
    """Records whose commits fail with `error`."""

    error: int = 0

    def commit(self, applied: int) -> None:
        if self.error:
            self.abort()
            raise OSError(self.error, errno.errorcode[self.error])
        super().commit(applied)


__all__ = [
    "SMALL",
    "Contents",
    "FaultyFolder",
    "FaultyRecords",
    "Interrupted",
    "Key",
    "ManualExecutor",
    "Owner",
    "SimulatedMachine",
    "contents_of",
]
