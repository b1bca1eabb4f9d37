"""The store on a disk: batches are written to a journal first, and applied to records later.

One module because all of it decides when a batch can be acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ferrymq_broker.event_log import log
from ferrymq_broker.store.append_step import AppendStep, Batch
from ferrymq_broker.store.appender import AppenderOptions
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.checkpointer import Checkpointer
from ferrymq_broker.store.crash_recovery import Progress, recover
from ferrymq_broker.store.disk import GONE, Folder, RealFolder, is_full
from ferrymq_broker.store.disk_alarm import BATCH, LIMIT, ROOM, SEGMENT, DiskAlarm
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.executor import Executor
from ferrymq_broker.store.format_file import (
    FORMAT,
    FORMAT_NAME,
    StoreFormat,
    read_clean,
    read_format,
    remove_clean,
    require_closed_at,
    store_id,
    write_clean,
    write_format,
)
from ferrymq_broker.store.head_file import HeadContent, HeadFile, read_head, require_whole
from ferrymq_broker.store.in_use_file import mark_in_use, require_original, unmark
from ferrymq_broker.store.journal import (
    DEFAULT_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
    Journal,
    Placement,
    discard_journal,
)
from ferrymq_broker.store.lmdb_file import check_file
from ferrymq_broker.store.lmdb_records import DATA_NAME, LmdbRecords
from ferrymq_broker.store.paged_out_file import take_paged_out, write_paged_out
from ferrymq_broker.store.record_run import RecordRun
from ferrymq_broker.store.records import Brief, Part, Record, Records
from ferrymq_broker.store.replica_file import require_replica
from ferrymq_broker.store.segments import JournalSegment, parse_journal
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.term_record import put_term

# Seconds until the next attempt after the disk was full.
_RETRY: Final = 1.0
# With more full segments waiting to be applied than this, the next batch waits.
_MOST_FULL: Final = 8
# The head file of an empty store.
_NEW: Final = HeadContent(0, "")
# The alarm for `max_bytes` is cleared when less than this share is used.
_LOW_WATER: Final = 0.9


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes in bytes. `max_bytes` limits the whole store, 0 for no limit."""

    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    max_bytes: int = 0

    def __post_init__(self) -> None:
        if self.segment_bytes < MIN_SEGMENT_BYTES or self.segment_bytes % 4096:
            raise ValueError(
                f"segment_bytes is {self.segment_bytes}; it must be a multiple of 4096, at "
                f"least {MIN_SEGMENT_BYTES}"
            )


class DurableStore(Store):
    """A store in a folder. Call `open`, then `scan` for the stored records, then `start`.

    `open_records` is called once the folder is known to have a store. Its argument says whether the
    store was closed properly. `cluster` is the id of the cluster that has the store, "" for none.
    """

    def __init__(
        self,
        folder: Folder,
        open_records: Callable[[bool], Records],
        changes: Changes,
        options: StoreOptions | None = None,
        progress: Progress | None = None,
        cluster: str = "",
    ) -> None:
        self.changes = changes
        # The id of the store, which stays the same as long as its directory is used.
        self.id: str = ""
        self.options: StoreOptions = options or StoreOptions()
        self.cluster = cluster
        self._folder = folder
        self._executor: Executor | None = None
        self._applier: Checkpointer | None = None
        self._alarm = DiskAlarm(_tell_nobody)
        # What a batch passes first in a cluster.
        self._first: AppendStep | None = None
        # The batch being written, and its place in the journal once it has one.
        self._pending: Batch | None = None
        self._placement: Placement | None = None
        self._preparing = False
        self._limited = False
        # The number of the batch that was being filled at the last call of `tidy`.
        self._tidied = -1
        self._stopped = False
        self._closed = False
        self._paged_out: list[bytes] = []
        folder.lock()
        try:
            self._open(open_records, progress)
        except BaseException:
            folder.unlock()
            raise

    @classmethod
    def open(
        cls,
        path: Path,
        changes: Changes,
        options: StoreOptions | None = None,
        progress: Progress | None = None,
        cluster: str = "",
    ) -> DurableStore:
        """Open the store in a directory, or create it. An opened store has all acknowledged data;
        that of a cluster has the batches that were applied, and its journal is empty.

        `progress` is called with the bytes done and the total. Raises `StoreLocked`,
        `StoreVersionError`, `StoreDamaged`, `StoreError`, `OSError`.
        """
        folder = RealFolder(path)
        data = path / DATA_NAME

        def open_records(clean: bool) -> Records:
            if data.exists():
                check_file(data, values=not clean)
            elif (path / FORMAT_NAME).exists():
                # LMDB would silently create a new file.
                raise StoreDamaged(
                    f"{data} is missing: restore the whole directory of the store from a backup"
                )
            return LmdbRecords(path)

        return cls(folder, open_records, changes, options, progress, cluster)

    def _open(self, open_records: Callable[[bool], Records], progress: Progress | None) -> None:
        folder = self._folder
        format = read_format(folder)
        require_replica(folder, self.cluster, is_new=format is None)
        clean = read_clean(folder)
        require_original(folder)
        head: HeadFile | None = None
        # The journal of a cluster's store is not synced, and may be torn anywhere.
        discard = bool(self.cluster) and format is not None and clean is None
        if format is not None and format.version >= FORMAT and not discard:
            head = HeadFile.open(folder)
        try:
            self._records = records = open_records(clean is not None)
        except BaseException:
            if head is not None:
                head.close()
            raise
        try:
            if format is None:
                format = self._make()
                head = HeadFile.open(folder)
            elif records.is_new:
                raise StoreDamaged(
                    f"{folder.describe(DATA_NAME)} is missing: restore the whole directory of "
                    "the store from a backup"
                )
            if discard:
                head = discard_journal(folder, records.applied)
            if clean is not None:
                require_closed_at(folder, clean, records.applied)
            if head is not None:
                require_whole(folder, head.value, records.applied)
            mark_in_use(folder)
            # Remove the file in any case: it is valid only until the store changes.
            paged_out = take_paged_out(folder, records.applied)
            remove_clean(folder)
            if head is None:
                # A store of an older format may have no head until `write_format` raises its
                # version.
                head = HeadFile.create(folder, _NEW)
            self._secret = format.secret
            self.id = store_id(format.secret)
            self._journal = Journal(folder, format.secret, self.options.segment_bytes, head)
            last = recover(self._journal, format.secret, records, progress)
            if clean is not None and last == clean:
                self._paged_out = paged_out
            if format.version < FORMAT:
                write_format(folder, format.secret)
                log.info("the store has a new format", store=folder.describe(), format=FORMAT)
            self._make_spares()
        except BaseException:
            if head is not None:
                head.close()
            records.close()
            raise
        changes = self.changes
        changes.enabled = True
        changes.number = last + 1
        changes.stable = last
        self._total = changes.total

    def _make(self) -> StoreFormat:
        """Create a new store in an empty directory."""
        folder = self._folder
        used = any(parse_journal(name) is not None for name in folder.names())
        try:
            used = used or read_head(folder) != _NEW
        except StoreDamaged:
            # The process was stopped while it created the head.
            pass
        if self._records.applied or used:
            raise StoreDamaged(
                f"{folder.describe('format')} is missing, but the directory has other files of "
                "a store: restore the whole directory from a backup"
            )
        self._records.begin()
        self._records.commit(0)
        HeadFile.create(folder, _NEW).close()
        return write_format(folder)

    def _make_spares(self) -> None:
        try:
            while len(self._journal.spares) < 2:
                self._journal.spares.append(self._journal.prepare())
        except OSError as error:
            # The store tries again while it runs, with the alarm on.
            if not is_full(error):
                raise

    # -- stored records ----------------------------------------------------------------------

    @property
    def records(self) -> Records:
        """The records. Only a standby, whose store is never started, may change them."""
        return self._records

    @property
    def written(self) -> int:
        """The number of the last batch that is in the store's own journal or in the records."""
        return self._journal.last

    @property
    def applied(self) -> int:
        """The number of the last batch that is in the records."""
        return self._records.applied

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """Return the value of a record; None if it does not exist or is not applied yet.

        Raises `StoreDamaged`.
        """
        return self._records.get(table, id, number)

    def run(self, table: int, id: int, first: int, end: int, most: int) -> RecordRun:
        """See `Records.run`."""
        return self._records.run(table, id, first, end, most)

    def take_paged_out(self) -> list[bytes]:
        """See `Store.take_paged_out`."""
        blocks, self._paged_out = self._paged_out, []
        return blocks

    def count(self) -> int:
        """Return the number of records in all tables, or 0 if it is unknown."""
        return self._records.count()

    def scan_parts(self, table: int, brief: Brief) -> Iterator[Part]:
        """See `Store.scan_parts`."""
        return self._records.scan_parts(table, brief)

    def scan(self, table: int) -> Iterator[Record]:
        """Yield the records of a table by id and number, as they were when the store was opened.

        Raises `StoreDamaged`.
        """
        return self._records.scan(table)

    # -- running -----------------------------------------------------------------------------

    def start(
        self,
        executor: Executor,
        on_stable: Callable[[], None],
        on_failure: Callable[[str], None],
        on_full: Callable[[bool], None],
        appender: AppenderOptions | None = None,
        unmap: Callable[[], object] | None = None,
    ) -> None:
        """Write batches from now on. `close` closes the `executor`; `unmap` releases mapped pages
        of the records.

        All callbacks run in the event loop. `on_stable` is called when a batch is on disk; it has
        to call `Changes.settle`. `on_failure` is called once, with the reason, when nothing can be
        written any more. `on_full` is called when the disk becomes full and when it has room again.

        The store of a cluster needs an `appender`; `on_stable` then follows its confirmation.
        """
        if (appender is not None) != bool(self.cluster):
            raise StoreError(f"{self._folder.describe()}: only a cluster's store has an appender")
        if appender is not None:
            self._first = AppendStep(appender, self._confirmed)
            self._journal.syncs = appender.both
            put_term(self.changes, appender.term)
        self._executor = executor
        self._on_stable = on_stable
        self._on_failure = on_failure
        self._alarm = DiskAlarm(on_full)
        self._applier = Checkpointer(
            self._journal,
            self._secret,
            self._records,
            executor,
            self._alarm,
            self._has_room,
            self._fail,
            unmap,
        )
        self._look_after_spares()
        self._check_limit()
        self.push()

    def push(self) -> None:
        """Write the batch unless it is empty or another is under way. Call it between passes."""
        changes = self.changes
        first = self._first
        if not changes.count or self._executor is None or self._stopped:
            return
        if self._pending is not None if first is None else first.is_busy(self._pending):
            return
        count = changes.total - self._total
        self._total = changes.total
        batch = (int(changes.number), count, changes.close())
        if first is None:
            self._pending = batch
            self._place()
        else:
            first.append(batch)

    def _confirmed(self) -> None:
        """Handle that the appender has confirmed a batch: the local journal is next."""
        first = self._first
        if first is None or self._stopped:
            return
        if self._pending is None:
            self._pending = first.take()
        if not first.options.both:
            self._on_stable()
            self.push()
        self._place()

    def _place(self) -> None:
        """Find a place for the pending batch and write it, or leave it waiting for a place."""
        executor = self._executor
        if executor is None or self._pending is None or self._placement is not None:
            return
        if self._stopped or self._has_many():
            return
        placement = self._journal.place(*self._pending)
        if placement is None:
            self._look_after_spares()
            return
        self._placement = placement
        executor.write(placement.write, self._written)

    def _written(self, error: Exception | None) -> None:
        placement = self._placement
        if placement is None or self._stopped:
            return
        if error is not None:
            if isinstance(error, OSError) and is_full(error):
                self._alarm.set(BATCH, True)
                assert self._executor is not None
                self._executor.later(_RETRY, self._write_again)
            else:
                self._fail(error)
            return
        self._alarm.set(BATCH, False)
        assert placement.segment is not None
        if not placement.segment.file.is_in_place():
            # The file will be lost, so the batch must not be acknowledged.
            self._fail(StoreError(f"{placement.segment.name} {GONE}"))
            return
        self._placement = None
        self._pending = None
        self._journal.placed(placement)
        if placement.is_first:
            self._switched()
        first = self._first
        if first is not None:
            self._pending = first.take()
            self._place()
        if first is None or first.options.both:
            self._on_stable()
        self.push()

    def _write_again(self) -> None:
        # The whole frame is written again, over the failed attempt.
        if self._placement is not None and self._executor is not None and not self._stopped:
            self._executor.write(self._placement.write, self._written)

    def _switched(self) -> None:
        """Handle that a new segment was begun: the one before it, if any, is full."""
        self._look_after_spares()
        self._check_limit()
        if self._applier is not None:
            self._applier.wake()

    def _has_many(self) -> bool:
        """Return whether too many segments wait to be applied."""
        paused = self._applier is not None and self._applier.is_paused
        return len(self._journal.full) > _MOST_FULL and not paused

    # -- room --------------------------------------------------------------------------------

    def _has_room(self) -> None:
        """Handle that segments were recycled."""
        if self._journal.spares:
            self._alarm.set(SEGMENT, False)
        self._look_after_spares()
        self._check_limit()
        self._place()

    def _look_after_spares(self) -> None:
        """Prepare a spare segment if there is none."""
        executor = self._executor
        if self._journal.spares or self._preparing or self._stopped or executor is None:
            return
        if self._has_many():
            return
        self._preparing = True
        made: list[JournalSegment] = []
        executor.commit(
            lambda: made.append(self._journal.prepare()), lambda error: self._prepared(made, error)
        )

    def _prepared(self, made: list[JournalSegment], error: Exception | None) -> None:
        self._preparing = False
        self._journal.spares += made
        if self._stopped:
            return
        if error is None:
            self._alarm.set(SEGMENT, False)
            self._place()
        elif isinstance(error, OSError) and is_full(error):
            # A full segment that is being applied will soon be a spare.
            self._alarm.set(SEGMENT, not self._journal.full)
            assert self._executor is not None
            self._executor.later(_RETRY, self._look_after_spares)
        else:
            self._fail(error)

    def used_bytes(self) -> int:
        """Return the bytes of the journal and of records, without space that can be reused."""
        return self._journal.size + self._records.used_bytes()

    def _check_limit(self) -> None:
        """Set or clear the alarms for `max_bytes` and for little free space.

        The alarms are set while there is still some room: messages that producers have sent already
        arrive after the alarm, and settling needs room before it frees any.
        """
        most = self.options.max_bytes
        used = self.used_bytes()
        if most and used > most:
            self._alarm.set(LIMIT, True)
        elif used < most * _LOW_WATER or not most:
            self._alarm.set(LIMIT, False)
        records = self._records
        room = self._folder.free() + records.file_bytes() - records.used_bytes()
        reserve = _MOST_FULL * self.options.segment_bytes
        if room < reserve:
            self._alarm.set(ROOM, True)
        elif room > reserve + 2 * self.options.segment_bytes:
            self._alarm.set(ROOM, False)
        was_limited = self._limited
        self._limited = self._alarm.has(LIMIT) or self._alarm.has(ROOM)
        if self._limited and not was_limited:
            self._look_at_limit()

    def _look_at_limit(self) -> None:
        """Apply all segments, again and again while the limit is exceeded, so that settled messages
        are freed before their segment is full."""
        if self._limited and not self._stopped:
            assert self._applier is not None and self._executor is not None
            self._applier.apply_all()
            self._executor.later(_RETRY, self._look_at_limit)

    def tidy(self) -> None:
        """Apply the whole journal if nothing has changed since the last call, so that the space of
        settled messages becomes free."""
        number = int(self.changes.number)
        if number == self._tidied and self._applier is not None and not self._stopped:
            self._applier.apply_all()
        self._tidied = number

    # -- copies ------------------------------------------------------------------------------

    def pause(self, call: Callable[[], None]) -> None:
        """Stop applying, then call `call`. Until each `pause` has had its `resume`, the records and
        the files of the journal stay as they are, except that batches are added. Backups and
        snapshots use this. A pause must be short, because a long journal makes all clients wait."""
        if self._applier is None or self._alarm.is_on:
            raise StoreError(
                f"{self._folder.describe()}: the disk is full, or the store has failed, so "
                "that it cannot be copied"
            )
        self._applier.pause(call)

    def resume(self) -> None:
        """Continue to apply the journal."""
        if self._applier is not None and not self._stopped:
            self._applier.resume()

    # -- information -------------------------------------------------------------------------

    def info(self) -> dict[str, int]:
        """Return figures of the store: `format`, the number of the `last` batch and of the last one
        `applied`, the number of `records`, and bytes: `used-bytes` of the whole store,
        `records-bytes` with their free part `free-bytes`, and `journal-bytes`."""
        records = self._records
        used = records.used_bytes()
        size = records.file_bytes()
        return {
            "format": FORMAT,
            "last": self.changes.stable,
            "applied": records.applied,
            "records": records.count(),
            "used-bytes": used + self._journal.size,
            "records-bytes": size,
            "free-bytes": max(size - used, 0),
            "journal-bytes": self._journal.size,
        }

    # -- the end -----------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        """Stop writing and report the failure. No further batch is acknowledged."""
        if self._stopped:
            return
        self._stopped = True
        if self._applier is not None:
            self._applier.stop()
        reason = f"the store {self._folder.describe()} cannot be written: {error}"
        log.critical("the store has failed", reason=str(error), store=self._folder.describe())
        self._on_failure(reason)

    def close(self, paged_out: Callable[[], Sequence[bytes]] | None = None) -> None:
        """Write and apply everything, so that the next start has nothing to recover.

        `paged_out` is called after that; `take_paged_out` returns its blocks after the next
        opening. A batch that cannot be written, or that is not confirmed, is not acknowledged.
        After the loss of the lease nothing is applied. Raises `StoreError` for an error.
        """
        if self._closed:
            return
        self._closed = True
        failed: Exception | None = None
        executor = self._executor
        if executor is not None:
            if self._first is not None:
                # The event loop may not go on, so the appender cannot answer.
                self._first.end()
            self.push()
            executor.drain()
            executor.close()
        stopped = self._stopped
        self._stopped = True
        try:
            if not stopped:
                self._finish(paged_out)
        except (OSError, StoreError) as error:
            failed = error
        finally:
            self._journal.close()
            self._records.close()
            self._folder.unlock()
        if failed is not None:
            raise StoreError(
                f"{self._folder.describe()}: not everything could be applied when the store "
                f"was closed: {failed}; the next start will apply it"
            ) from failed

    def _finish(self, paged_out: Callable[[], Sequence[bytes]] | None) -> None:
        journal = self._journal
        is_lost = self._first is not None and self._first.is_lost
        if is_lost:
            # There is no time, and the cluster has these batches.
            self._records.abort()
        elif self._applier is not None:
            self._applier.finish()
        used = [*journal.full, *([] if journal.current is None else [journal.current])]
        journal.full, journal.current = [], None
        journal.applied = self._records.applied
        journal.clear(used)
        if self._pending is None or is_lost:
            is_whole = not self.changes.count and journal.applied == self.changes.number - 1
            if paged_out is not None and is_whole:
                write_paged_out(self._folder, self._records.applied, paged_out())
            unmark(self._folder)
            write_clean(self._folder, self._records.applied)


def _tell_nobody(on: bool) -> None:
    """Ignore the disk alarm before the store is started."""
