"""The first snapshot of a cluster: the store of a single broker."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.member_files import MemberDirectory
from ferrymq_broker.replication.shared_journal import Position
from ferrymq_broker.replication.snapshots import Progress, Snapshots
from ferrymq_broker.replication.waiting import ask, in_thread
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.executor import Executor
from ferrymq_broker.store.term_record import read_term


async def begin_with_store(
    path: Path, snapshots: Snapshots, executor: Executor, progress: Progress | None = None
) -> Position:
    """Make the store of a single broker the first snapshot of a cluster that has no batches. The
    numbers of batches go on after it. Return its position; the store is unchanged.

    No broker may use the store. Raises `ReplicationError`, `StoreError`, `OSError`.
    """
    figures = await ask(snapshots.journal.figures)
    if figures.last.number or await snapshots.known():
        raise ReplicationError(
            "the cluster has data already: only a new cluster can begin with a store"
        )
    files = MemberDirectory(path, "")
    store = await in_thread(executor, partial(DurableStore.open, path, Changes()))
    try:
        records = store.records
        position = Position(records.applied, read_term(records))
        if position.number == 0:
            raise ReplicationError(
                f"the store {path} is empty: the cluster needs no snapshot of it"
            )
        copy = await in_thread(executor, partial(files.copy, records, lambda: False))
        try:
            await snapshots.save(copy, position, progress)
        finally:
            copy.close()
    finally:
        await in_thread(executor, store.close)
    return position
