"""Restoring a single broker's store from a snapshot and the journal of a cluster.

The store is a member's until the end. So nobody takes one whose restoring was stopped for complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ferrymq_broker.replication.batch_applier import BYTES_AT_ONCE, apply_batches, split
from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.member_files import MemberDirectory
from ferrymq_broker.replication.shared_journal import START, Position, SharedBatch, SnapshotInfo
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.replication.waiting import ask, in_thread
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.executor import Executor
from ferrymq_broker.store.replica_file import REPLICA_NAME
from ferrymq_broker.store.term_record import drop_term

# A callback that gets what is being done, how much of it is done, and how much there is to do.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """The last batch to restore: the one with this `number`, or the last one committed up to this
    `time`, in seconds since the epoch by the database's clock; with neither, the journal's last."""

    number: int | None = None
    time: float | None = None

    def includes(self, batch: SharedBatch) -> bool:
        """Return whether a batch belongs to what is restored."""
        if self.number is not None:
            return batch.number <= self.number
        return self.time is None or batch.committed <= self.time

    def may_begin_with(self, snapshot: SnapshotInfo) -> bool:
        """Return whether a snapshot has nothing that comes later."""
        if self.number is not None:
            return snapshot.position.number <= self.number
        return self.time is None or snapshot.created <= self.time


@dataclass(frozen=True, slots=True)
class RestoredStore:
    """A store that was restored: the position of its last batch, and the time at which that was
    committed, None if the store is that of a snapshot."""

    position: Position
    committed: float | None


async def restore_store(
    target: Path,
    until: RestorePoint,
    snapshots: Snapshots,
    executor: Executor,
    progress: Progress,
) -> RestoredStore:
    """Make a single broker's store in a new or empty directory. Its numbers go on after the last
    batch.

    Raises `ReplicationError`, `StoreError`, `OSError`.
    """
    _require_free(target)
    try:
        return await _restore(target, until, snapshots, executor, progress)
    except BaseException:
        _clear(target)
        raise


async def _restore(
    target: Path,
    until: RestorePoint,
    snapshots: Snapshots,
    executor: Executor,
    progress: Progress,
) -> RestoredStore:
    journal = snapshots.journal
    figures = await ask(journal.figures)
    known = await snapshots.known()
    last = max(figures.last.number, *(info.position.number for info in known), 0)
    if until.number is not None and until.number > last:
        raise ReplicationError(f"there is no batch {until.number}: the journal ends with {last}")
    usable = [info for info in known if until.may_begin_with(info)]
    if not usable and not await ask(partial(journal.has, START)):
        raise ReplicationError(_too_old(known))
    files = MemberDirectory(target, figures.cluster)
    position = START
    if usable:
        info = await snapshots.load_newest(files, usable, partial(progress, "loading"))
        position = info.position
    store = await in_thread(executor, files.open)
    try:
        replay = _Replay(store, snapshots, executor)
        await replay.run(until, position, until.number or last, progress)
        await in_thread(executor, partial(drop_term, store.records))
    finally:
        await in_thread(executor, store.close)
    if until.number is not None and replay.position.number != until.number:
        raise ReplicationError(f"the journal has no batch {replay.position.number + 1}")
    # From here on it is complete.
    folder = RealFolder(target)
    folder.remove(REPLICA_NAME)
    folder.sync()
    return RestoredStore(replay.position, replay.committed)


class _Replay:
    """Applies batches to a store, up to a point. `position` is that of the last one applied."""

    def __init__(self, store: DurableStore, snapshots: Snapshots, executor: Executor) -> None:
        self.position = START
        self.committed: float | None = None
        self._records = store.records
        self._journal = snapshots.journal
        self._executor = executor

    async def run(
        self, until: RestorePoint, position: Position, last: int, progress: Progress
    ) -> None:
        """Apply the batches that follow `position`."""
        self.position = position
        first = position.number
        while True:
            after = self.position.number
            batches = await ask(partial(self._journal.read, after, BYTES_AT_ONCE))
            wanted = [batch for batch in batches if until.includes(batch)]
            for part in split(wanted):
                await in_thread(self._executor, partial(apply_batches, self._records, part))
                self.position = Position(part[-1].number, part[-1].term)
                self.committed = part[-1].committed
                progress("applying batches", self.position.number - first, last - first)
            if not batches or len(wanted) < len(batches):
                return


def _require_free(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} is not empty: give an empty or new directory")


def _clear(target: Path) -> None:
    """Remove what was restored so far from a directory that was empty."""
    if target.is_dir():
        for file in target.iterdir():
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink()


def _too_old(known: list[SnapshotInfo]) -> str:
    if not known:
        return "the journal does not begin with batch 1, and there is no snapshot"
    oldest = known[-1]
    return (
        f"the oldest snapshot has the batches up to {oldest.position.number}: nothing older can be "
        "restored"
    )
