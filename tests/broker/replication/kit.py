"""Stores of a cluster whose threads, disks and shared journal do what a test says."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

from ferrymq_broker.replication.follower import JournalFollower
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.replication.waiting import ask
from ferrymq_broker.store.appender import AppenderOptions, BatchAppender
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.term_record import put_term
from tests.broker.store.kit import SMALL, ManualExecutor
from tests.simulation.disk import SimulatedDisk, SimulatedFolder
from tests.simulation.executor import SimulatedExecutor
from tests.simulation.loop import SimulatedLoop
from tests.support.member_files import MemoryFiles
from tests.support.memory_records import MemoryDisk, MemoryRecords
from tests.support.shared_journal import MemoryDatabase, MemorySharedJournal

CLUSTER = "00000000-0000-0000-0000-000000000001"


class ManualAppender(BatchAppender):
    """An appender whose answers the test gives. `batches` are those it was given, joined."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.waiting: deque[Callable[[Exception | None], None]] = deque()

    def append(
        self,
        number: int,
        changes: int,
        parts: Sequence[bytes],
        done: Callable[[Exception | None], None],
    ) -> None:
        self.batches.append((number, changes, b"".join(parts)))
        self.waiting.append(done)

    def numbers(self) -> list[int]:
        return [number for number, _, _ in self.batches]

    def answer(self, error: Exception | None = None) -> None:
        """Confirm the batch under way, or end with an error."""
        self.waiting.popleft()(error)


class LeaderStore:
    """A leader's store, and what it has acknowledged."""

    def __init__(self, store: DurableStore, term: int = 1, both: bool = False) -> None:
        self.store = store
        self.changes = store.changes
        self.appender = ManualAppender()
        self.executor = ManualExecutor()
        self.stable: list[int] = []
        self.failures: list[str] = []
        self.lost: list[Exception] = []
        self.full: list[bool] = []
        store.start(
            self.executor,
            self._on_stable,
            self.failures.append,
            self.full.append,
            AppenderOptions(self.appender, term, self.lost.append, both),
        )

    def _on_stable(self) -> None:
        self.changes.settle()
        self.stable.append(int(self.changes.stable))

    def put(self, number: int, value: bytes = b"value") -> None:
        """One record, in the batch that is being filled."""
        self.changes.put(5, 1, number, value)
        self.store.push()


class MemberMachine:
    """The disk of a member, for one store after another."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = SimulatedDisk(Random(seed))
        self.records = MemoryDisk()

    def open(self, cluster: str = CLUSTER) -> DurableStore:
        return DurableStore(
            SimulatedFolder(self.disk),
            lambda clean: MemoryRecords(self.records),
            Changes(),
            StoreOptions(SMALL),
            cluster=cluster,
        )

    def kill(self, executor: ManualExecutor, power: bool = False) -> None:
        """The process is gone, in the middle of what its threads do."""
        for calls in (executor.writes, executor.commits):
            if calls:
                self.disk.finish_with(calls[0][0])
        if power:
            self.disk.lose_power()
        self.disk.kill()


def batch_of(puts: dict[int, bytes], term: int = 0) -> tuple[int, bytes]:
    """The number of changes and the bytes of a batch with these entries, and a term if it is the
    first of one."""
    changes = Changes()
    changes.enabled = True
    if term:
        put_term(changes, term)
    for number, value in puts.items():
        changes.put(5, 1, number, value)
    return int(changes.count), b"".join(changes.close())


class Cluster:
    """A database with batches of leaders that are not there, in simulated time. Batch N has the
    entry N."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.database = MemoryDatabase(self.loop.time, 0.001)

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test, and end all its tasks."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(test)
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks))
            asyncio.set_event_loop(None)
            self.loop.close()

    def elect(self) -> int:
        """A new term."""
        self.database.ends = self.database.time()
        return self.database.acquire("leader", "", 1e9).term

    def append(self, count: int = 1, size: int = 100) -> None:
        """Append batches; the first of a term says so."""
        database = self.database
        for _ in range(count):
            last = database.last()
            number, term = last.number + 1, database.term
            first = term if last.term != term else 0
            changes, data = batch_of({number: b"%d " % term + bytes(size)}, first)
            database.append(term, number, changes, data)

    def forget(self, after: int) -> None:
        """The database was set back: batches after this one are gone."""
        for number in [number for number in self.database.batches if number > after]:
            del self.database.batches[number]

    def member(self, machine: MemberMachine | None = None) -> ClusterMember:
        return ClusterMember(self, machine or MemberMachine())

    async def following(self, count: int) -> ClusterMember:
        """Append batches, and return a new member that has applied them."""
        member = self.member()
        self.append(count)
        member.follower.start()
        await member.applied(self.database.last().number)
        return member


class ClusterMember:
    """A standby of a cluster."""

    def __init__(self, cluster: Cluster, machine: MemberMachine) -> None:
        self.machine = machine
        self.cluster = cluster
        self.files = MemoryFiles(machine.disk, machine.records, CLUSTER, StoreOptions(SMALL))
        self.journal = MemorySharedJournal(cluster.database, cluster.loop)
        self.executor = SimulatedExecutor(cluster.loop, machine.disk, Random(1))
        self.failures: list[Exception] = []
        self.follower = JournalFollower(
            self.files,
            Snapshots(self.journal, self.executor),
            self.executor,
            self.failures.append,
        )

    def entries(self) -> list[int]:
        """The numbers of the entries in the records."""
        keys = sorted(self.machine.records.stored)
        return [int.from_bytes(key[9:], "big") for key in keys if key[0] == 5]

    async def applied(self, number: int) -> None:
        """Wait until a batch is applied."""
        applied = asyncio.Event()

        def look() -> None:
            if self.follower.position.number >= number:
                applied.set()
            else:
                self.cluster.loop.call_later(0.01, look)

        look()
        await applied.wait()

    async def caught_up(self) -> None:
        """Wait as a member does that takes over. Raises `ReplicationError`."""
        last = self.cluster.database.last()
        await ask(partial(self.follower.catch_up, last))

    def kill(self) -> None:
        """The process is gone."""
        self.journal.close()
        self.executor.stop()
        self.machine.disk.kill()
