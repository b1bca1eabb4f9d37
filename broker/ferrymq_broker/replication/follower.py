"""The follower: it reads batches from the shared journal into a standby's records.

While a transaction is committed in a thread, the next batches are read. Nothing is kept in memory
but those two groups of batches. At the end of the journal, the follower looks again after 50 ms.

The follower asks whether the records fit to the journal (`journal_fit.py`) at the start, when a
batch of another term follows, and before a takeover: it may have read a commit that was not
replicated when the database failed over. Records that do not fit, and damaged ones, are replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from ferrymq_broker.event_log import log
from ferrymq_broker.replication.batch_applier import BYTES_AT_ONCE, apply_batches, split
from ferrymq_broker.replication.errors import JournalUnavailable, ReplicationError
from ferrymq_broker.replication.journal_fit import Forked, JournalFit
from ferrymq_broker.replication.member_files import MemberFiles
from ferrymq_broker.replication.shared_journal import (
    START,
    Done,
    Position,
    SharedBatch,
    SharedJournal,
)
from ferrymq_broker.replication.snapshot_policy import SnapshotSource
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.replication.waiting import ask, forget, in_thread
from ferrymq_broker.store.disk import is_full
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.executor import Executor
from ferrymq_broker.store.term_record import read_term

# Seconds between two looks for new batches, and before a takeover.
_POLL: Final = 0.05
_HURRY: Final = 0.001
# An answer with less bytes than this has reached the end of the journal.
_ENOUGH: Final = BYTES_AT_ONCE // 2
# Seconds until the next attempt, after an error that may pass and after one that a person has to
# mend.
_RETRY: Final = 0.5
_RETRY_FAULT: Final = 5.0


class JournalFollower(SnapshotSource):
    """The task of a standby. `failed` is called with an error that a standby cannot live with.

    `bytes` counts the bytes of the batches that were applied, `error` is the text of the last
    error, "" after a success.
    """

    def __init__(
        self,
        files: MemberFiles,
        snapshots: Snapshots,
        executor: Executor,
        failed: Callable[[Exception], None],
    ) -> None:
        self.position: Position = START
        self.bytes: int = 0
        self.error: str = ""
        # The last batch that the journal is known to have.
        self._last = 0
        self._files = files
        self._journal: SharedJournal = snapshots.journal
        self._fit = JournalFit(files, snapshots, executor)
        self._executor = executor
        self._failed = failed
        self._store: DurableStore | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._answered = executor.time()
        self._is_applying = False
        self._pauses = 0
        self._when_paused: list[Callable[[], None]] = []
        self._target: tuple[int, Done[None]] | None = None

    # -- what others do ------------------------------------------------------------------------

    def start(self) -> None:
        """Open the member's store, and follow the journal until `close`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def catch_up(self, target: Position, done: Done[None]) -> None:
        """Call `done` when the records have all batches up to `target`, the journal's last one, and
        fit to the journal. Nothing may be appended meanwhile: the caller has the lease.

        `done` gets `ReplicationError` or `OSError` if that needs a person; while the journal cannot
        be reached, and while the disk is full, the follower tries again.
        """
        self._target = (target.number, done)
        self._woken.set()

    def pause(self, call: Callable[[DurableStore], None]) -> None:
        """See `SnapshotSource.pause`."""
        self._pauses += 1
        self._when_paused.append(lambda: call(self._opened()))
        self._tell_paused()

    def resume(self) -> None:
        """See `SnapshotSource.resume`."""
        self._pauses -= 1
        self._woken.set()

    def close(self) -> None:
        """Stop, and close the store properly. Raises `StoreError`."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._executor.drain()
        self._executor.close()
        if self._store is not None:
            store, self._store = self._store, None
            store.close()

    def note_last(self, number: int) -> None:
        """Note the number of the journal's last batch."""
        self._last = max(self._last, number)

    @property
    def applied(self) -> int:
        """The last batch in the records."""
        return self.position.number

    @property
    def behind(self) -> int:
        """The batches that the journal is known to have and the records lack."""
        return max(0, self._last - self.position.number)

    @property
    def silence(self) -> float:
        """The seconds since the journal last answered."""
        return self._executor.time() - self._answered

    # -- the task ------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                await self._retry(await self._attempt())
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.critical("the standby has failed", reason=str(error))
            self._failed(error)

    async def _attempt(self) -> float:
        """Follow the journal until an error. Return the seconds until the next attempt."""
        try:
            await self._follow()
        except (Forked, StoreDamaged) as error:
            return await self._begin_again(str(error))
        except JournalUnavailable as error:
            return self._note(error, _RETRY)
        except ReplicationError as error:
            return self._note(error, _RETRY_FAULT)
        except OSError as error:
            if not is_full(error):
                raise
            return self._note(error, _RETRY)
        raise AssertionError("the journal has no end")

    async def _begin_again(self, reason: str) -> float:
        """Replace the records. Return the seconds until the next attempt."""
        try:
            base = await self._fit.find_base(reason)
            while self._pauses:
                await self._wait()
            store, self._store = self._store, None
            was_empty = store is not None and store.applied == 0
            await self._fit.replace(store, reason, base)
        except JournalUnavailable as failed:
            return self._note(failed, _RETRY)
        except (ReplicationError, OSError) as failed:
            return self._note(failed, _RETRY_FAULT)
        # Sets of records that are set aside in quick succession would fill the disk.
        return 0.0 if was_empty else _RETRY

    def _note(self, error: Exception, seconds: float) -> float:
        if str(error) != self.error:
            self.error = str(error)
            log.warning("the standby does not get on", reason=self.error)
        if self._target is not None and seconds == _RETRY_FAULT:
            done = self._target[1]
            self._target = None
            done(error)
        return seconds

    async def _retry(self, seconds: float) -> None:
        again = asyncio.Event()
        self._executor.later(seconds, again.set)
        await again.wait()

    async def _open(self) -> None:
        await in_thread(self._executor, self._open_store)
        store = self._opened()
        self.position = Position(store.applied, read_term(store.records))
        self._tell_paused()

    def _open_store(self) -> None:
        # Set in the thread: `close` has to find it also if nobody waits for the thread any more.
        self._store = self._files.open()

    def _opened(self) -> DurableStore:
        assert self._store is not None
        return self._store

    async def _follow(self) -> None:
        """Read and apply batches for ever. Raises what reading and applying raise, `Forked`."""
        if self._store is None:
            await self._open()
        await self._fit.require_beginning(self.position)
        ahead = self._read(self.position.number)
        try:
            while True:
                batches = await ahead
                self._answered = self._executor.time()
                self.error = ""
                is_end = sum(len(batch.data) for batch in batches) < _ENOUGH
                if batches:
                    self.note_last(batches[-1].number)
                    if not is_end:
                        ahead = self._read(batches[-1].number)
                    if batches[0].term != self.position.term:
                        await self._fit.require(self.position)
                    for part in split(batches):
                        await self._apply(part)
                if is_end:
                    await self._reach_target()
                    await self._sleep()
                    ahead = self._read(self.position.number)
        finally:
            forget(ahead)

    def _read(self, after: int) -> asyncio.Future[list[SharedBatch]]:
        return ask(partial(self._journal.read, after, BYTES_AT_ONCE))

    async def _apply(self, batches: list[SharedBatch]) -> None:
        while self._pauses:
            await self._wait()
        records = self._opened().records
        self._is_applying = True
        try:
            await in_thread(self._executor, partial(apply_batches, records, batches))
        finally:
            self._is_applying = False
            self._tell_paused()
        last = batches[-1]
        self.position = Position(last.number, last.term)
        self.bytes += sum(len(batch.data) for batch in batches)
        await self._reach_target()

    async def _reach_target(self) -> None:
        target = self._target
        if target is None or self.position.number < target[0]:
            return
        await self._fit.require(self.position)
        if self._target is target:
            self._target = None
            target[1](None)

    async def _sleep(self) -> None:
        """Wait until it is worth to look again: batches that come one by one are read together."""
        self._executor.later(_POLL if self._target is None else _HURRY, self._woken.set)
        await self._wait()

    async def _wait(self) -> None:
        self._woken.clear()
        await self._woken.wait()

    def _tell_paused(self) -> None:
        """Tell those who wait for the pause, if nothing is being applied."""
        if self._pauses and not self._is_applying and self._store is not None:
            waiting, self._when_paused = self._when_paused, []
            for call in waiting:
                call()
