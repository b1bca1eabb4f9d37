"""Members with real records in real directories, and a database in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ferrymq_broker.replication.follower import JournalFollower
from ferrymq_broker.replication.member_files import MemberDirectory
from ferrymq_broker.replication.snapshot_policy import SnapshotOptions, SnapshotPolicy
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.replication.waiting import ask
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.executor import LoopExecutor
from tests.broker.replication.kit import CLUSTER, batch_of
from tests.broker.store.kit import SMALL, contents_of
from tests.support.shared_journal import MemoryDatabase, MemorySharedJournal

SIZES = StoreOptions(SMALL)


class Place:
    """A database, and members with directories, in real time."""

    def __init__(self, path: Path, shared: bool) -> None:
        self.path = path
        self.loop = asyncio.get_running_loop()
        self.database = MemoryDatabase(self.loop.time)
        self.database.acquire("leader", "", 1e9)
        self.directory = path / "shared" if shared else None
        if self.directory is not None:
            self.directory.mkdir()
        self.executors: list[LoopExecutor] = []

    def executor(self) -> LoopExecutor:
        made = LoopExecutor(self.loop)
        self.executors.append(made)
        return made

    def journal(self) -> MemorySharedJournal:
        return MemorySharedJournal(self.database, self.loop)

    def files(self, name: str) -> MemberDirectory:
        return MemberDirectory(self.path / name, CLUSTER, SIZES)

    def snapshots(self) -> Snapshots:
        return Snapshots(self.journal(), self.executor(), self.directory)

    def follower(self, name: str) -> JournalFollower:
        executor = LoopExecutor(self.loop)
        snapshots = Snapshots(self.journal(), executor, self.directory)
        return JournalFollower(self.files(name), snapshots, executor, pytest.fail)

    def policy(self, name: str, options: SnapshotOptions | None = None) -> SnapshotPolicy:
        return SnapshotPolicy(
            self.snapshots(),
            self.files(name),
            self.executor(),
            name,
            options or SnapshotOptions(),
            self.loop.time,
            lambda on: None,
        )

    def append(self, count: int, size: int = 2000) -> None:
        for _ in range(count):
            last = self.database.last()
            changes, data = batch_of({last.number + 1: bytes(size)}, int(last.number == 0))
            self.database.append(1, last.number + 1, changes, data)

    async def caught_up(self, follower: JournalFollower) -> None:
        last = self.database.last()
        await ask(lambda done: follower.catch_up(last, done))


def stored(path: Path, cluster: str = CLUSTER) -> dict[tuple[int, int, int], bytes]:
    store = DurableStore.open(path, Changes(), SIZES, cluster=cluster)
    try:
        return contents_of(store)
    finally:
        store.close()
