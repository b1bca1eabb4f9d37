"""The policy of snapshots: when they are made and deleted, and how much of the journal is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ferrymq_broker.event_log import log
from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.member_files import MemberFiles, RecordsCopy
from ferrymq_broker.replication.shared_journal import (
    STANDBY,
    JournalFigures,
    Member,
    Position,
    SnapshotInfo,
)
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.replication.waiting import ask, in_thread
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.executor import Executor
from ferrymq_broker.store.term_record import read_term

# Seconds between two looks.
_PERIOD: Final = 10.0
# The journal is too large if so many times `snapshot_after` follow the newest snapshot.
_TOO_LARGE: Final = 3


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """When to make a snapshot and what to keep.

    A snapshot is made when more than `after` bytes of batches follow the newest one. The newest
    `keep` snapshots are kept, and those needed to restore any moment of the last `keep_journal`
    seconds.
    """

    after: int = 1 << 30
    keep: int = 2
    keep_journal: float = 0.0


class SnapshotSource:
    """The interface to records that can be copied: those of a standby or of a leader."""

    def pause(self, call: Callable[[DurableStore], None]) -> None:
        """Call `call` when nothing is being applied, and apply nothing until `resume`. Raises
        `StoreError`."""
        raise NotImplementedError

    def resume(self) -> None:
        """Continue after `pause`."""
        raise NotImplementedError


class LeaderSource(SnapshotSource):
    """The store of a leader, which goes on writing batches meanwhile."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store

    def pause(self, call: Callable[[DurableStore], None]) -> None:
        """See `SnapshotSource.pause`."""
        self._store.pause(lambda: call(self._store))

    def resume(self) -> None:
        """See `SnapshotSource.resume`."""
        self._store.resume()


class SnapshotPolicy:
    """The task that makes snapshots, one at a time, and trims the journal.

    `name` is this member's. `executor` must not be that of the store: a copy takes long. `source`
    is None while this member has no records to copy. `figures` are the last ones of the journal,
    and `newer_bytes` estimates the bytes of batches after the newest snapshot. `clock` returns the
    seconds since the epoch.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        files: MemberFiles,
        executor: Executor,
        name: str,
        options: SnapshotOptions,
        clock: Callable[[], float],
        too_large: Callable[[bool], None],
    ) -> None:
        self.source: SnapshotSource | None = None
        self.figures: JournalFigures | None = None
        self.newer_bytes: int = 0
        self.is_too_large: bool = False
        self._snapshots = snapshots
        self._files = files
        self._executor = executor
        self._name = name
        self._options = options
        self._clock = clock
        self._too_large = too_large
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False

    def start(self) -> None:
        """Look every 10 seconds, until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop. When this returns, no copy is being made, and its source goes on."""
        task, self._task = self._task, None
        self.source = None
        if task is not None:
            self._is_cancelled = True
            task.cancel()
            await asyncio.wait([task])
            self._is_cancelled = False

    async def _run(self) -> None:
        told = ""
        while True:
            waited = asyncio.Event()
            self._executor.later(_PERIOD, waited.set)
            await waited.wait()
            try:
                await self.look()
                told = ""
            except (ReplicationError, StoreError, OSError) as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("no snapshot could be made", reason=told)

    async def look(self) -> None:
        """Make a snapshot if it is time and this member's turn, then delete what is not needed.

        Raises `ReplicationError`, `StoreError`, `OSError`.
        """
        journal = self._snapshots.journal
        figures = self.figures = await ask(journal.figures)
        known = await self._snapshots.known()
        newest = known[0].position.number if known else 0
        self.newer_bytes = _bytes_after(figures, newest)
        self._check_size()
        source = self.source
        if source is None or not _has_turn(self._name, await ask(journal.members)):
            return
        if self.newer_bytes > self._options.after:
            await self.make(source)
            known = await self._snapshots.known()
            await self._snapshots.drop_unfinished(known)
        await self._tidy(known)

    async def make(self, source: SnapshotSource) -> Position:
        """Make a snapshot of these records now, and return its position.

        Raises `ReplicationError`, `StoreError`, `OSError`.
        """
        paused: asyncio.Future[DurableStore] = asyncio.get_running_loop().create_future()

        def at_pause(store: DurableStore) -> None:
            if not paused.done():
                paused.set_result(store)

        source.pause(at_pause)
        try:
            copy, position = await self._copy(await paused)
        finally:
            source.resume()
        try:
            await self._snapshots.save(copy, position)
        finally:
            copy.close()
        return position

    async def _copy(self, store: DurableStore) -> tuple[RecordsCopy, Position]:
        records = store.records
        position = Position(records.applied, read_term(records))
        copying = in_thread(
            self._executor, partial(self._files.copy, records, lambda: self._is_cancelled)
        )
        try:
            return await asyncio.shield(copying), position
        except asyncio.CancelledError:
            # The records may change only when the thread has ended.
            await asyncio.wait([copying])
            if copying.exception() is None:
                copying.result().close()
            raise

    async def _tidy(self, known: list[SnapshotInfo]) -> None:
        kept = kept_of(known, self._options, self._clock())
        for info in known:
            if info not in kept:
                await self._snapshots.drop(info)
        if kept:
            oldest = min(info.position.number for info in kept)
            journal = self._snapshots.journal
            await ask(partial(journal.trim, oldest + 1))

    def _check_size(self) -> None:
        is_too_large = self.newer_bytes > _TOO_LARGE * self._options.after
        if is_too_large != self.is_too_large:
            self.is_too_large = is_too_large
            if is_too_large:
                log.warning(
                    "the shared journal grows, because no snapshot is made",
                    bytes=self.newer_bytes,
                )
            self._too_large(is_too_large)


def kept_of(known: list[SnapshotInfo], options: SnapshotOptions, now: float) -> list[SnapshotInfo]:
    """Return the snapshots to keep, of those known, the newest first.

    To restore a moment, a snapshot from before it is needed. So the newest one that is older than
    `keep_journal` is kept, and from there on one for each half of that time.
    """
    kept = list(known[: options.keep])
    if options.keep_journal <= 0:
        return kept
    before = [info for info in known if info.created <= now - options.keep_journal]
    last: SnapshotInfo | None = None
    for info in reversed(known[: len(known) - len(before) + 1]):
        if last is None or info.created - last.created >= options.keep_journal / 2:
            last = info
            if info not in kept:
                kept.append(info)
    return sorted(kept, key=lambda info: -info.id)


def _bytes_after(figures: JournalFigures, number: int) -> int:
    """Estimate the bytes of the batches after a number: as if all batches were equally long."""
    first, last = figures.first.number, figures.last.number
    if last <= number or last < first:
        return 0
    return figures.batch_bytes * (last - max(number, first - 1)) // (last - first + 1)


def _has_turn(name: str, members: list[Member]) -> bool:
    """Return whether this member makes snapshots: the first standby by name, else the leader."""
    alive = [member for member in members if member.runs]
    standbys = sorted(member.name for member in alive if member.role == STANDBY)
    if standbys:
        return standbys[0] == name
    return any(member.name == name for member in alive)
