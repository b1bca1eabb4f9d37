"""Comparing a member's records with the shared journal, and replacing those that do not fit.

The records fit if the journal has the batch that they end with, in the same term. If it is not
there, the database was set back or has lost a commit that was never confirmed, or the batch was
trimmed: the records are set aside, and the newest snapshot that fits is loaded.
"""

from __future__ import annotations

from functools import partial

from ferrymq_broker.event_log import log
from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.member_files import MemberFiles
from ferrymq_broker.replication.shared_journal import START, Position, SharedJournal, SnapshotInfo
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.replication.waiting import ask, in_thread
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.executor import Executor


class Forked(Exception):
    """An exception: the journal does not have the batch that the records end with."""


class JournalFit:
    """Compares records with the journal, and replaces them. Its methods raise `ReplicationError`,
    `StoreError` and `OSError`."""

    def __init__(self, files: MemberFiles, snapshots: Snapshots, executor: Executor) -> None:
        self._files = files
        self._snapshots = snapshots
        self._journal: SharedJournal = snapshots.journal
        self._executor = executor

    async def require(self, position: Position) -> None:
        """Check that records with this position fit to the journal. Raises `Forked`."""
        if not await ask(partial(self._journal.has, position)):
            raise Forked(
                f"the journal does not have batch {position.number} of term {position.term}, "
                "with which the records end"
            )

    async def require_beginning(self, position: Position) -> None:
        """Check, before the journal is read, that records fit to it. Empty records fit only if
        there is no snapshot to begin with. Raises `Forked`."""
        if position == START and await self._loadable():
            raise Forked("the store is empty")
        await self.require(position)

    async def find_base(self, reason: str) -> list[SnapshotInfo]:
        """Return the snapshots to begin with, the newest first; none if the journal begins with
        batch 1. Raises `ReplicationError` if there is nothing to begin with."""
        found = await self._loadable()
        if not found and not await ask(partial(self._journal.has, START)):
            raise ReplicationError(
                f"{reason}; there is no snapshot to begin with, and the journal does not begin "
                "with batch 1: make a snapshot on another member"
            )
        return found

    async def replace(
        self, store: DurableStore | None, reason: str, base: list[SnapshotInfo]
    ) -> None:
        """Set a store aside, unless it is empty, and load a snapshot. The store is None if it could
        not be opened."""
        is_empty = store is not None and store.applied == 0
        if store is not None:
            await in_thread(self._executor, store.close)
        if not is_empty:
            place = await in_thread(self._executor, self._files.set_aside)
            log.error("the records were set aside", reason=reason, place=place)
        if base:
            await self._snapshots.load_newest(self._files, base)

    async def _loadable(self) -> list[SnapshotInfo]:
        """Return the snapshots that fit to the journal, the newest first, but none of an empty
        store."""
        return [
            info
            for info in await self._snapshots.known()
            if info.position != START and await ask(partial(self._journal.has, info.position))
        ]
