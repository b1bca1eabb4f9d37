"""``ferrymq replica init --from-store``: a cluster that begins with a single broker's store."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.replication.bootstrap import begin_with_store
from ferrymq_broker.replication.shared_journal import Position, SharedJournal
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.store.executor import LoopExecutor


async def make_first_snapshot(
    journal: SharedJournal, store: Path, directory: Path | None
) -> Position:
    """Make the store the first snapshot of the cluster, and return its position. `directory` is
    that of snapshots, None for the database.

    Raises `ReplicationError`, `StoreError`, `OSError`.
    """
    executor = LoopExecutor(asyncio.get_running_loop())
    try:
        with RunProgress("copying", None) as progress:
            return await begin_with_store(
                store,
                Snapshots(journal, executor, directory),
                executor,
                lambda done, total: progress.reach("copying", done, total),
            )
    finally:
        executor.close()
