"""The store of a broker in its event loop: opening, recovery, start, backups, and closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from ferrymq_broker.broker import Broker
from ferrymq_broker.config.storage import Store as Settings
from ferrymq_broker.event_log import log
from ferrymq_broker.management.errors import BAD_REQUEST, CONFLICT, ManagementError
from ferrymq_broker.monitoring.store_stats import StoreStats
from ferrymq_broker.nodes.paging.pager import pager_of
from ferrymq_broker.recovery.paged_out import describe_paged_out
from ferrymq_broker.recovery.recover import recover
from ferrymq_broker.server.backups import Backup
from ferrymq_broker.server.housekeeping import find_trim, find_unmap
from ferrymq_broker.server.startup_progress import OnProgress
from ferrymq_broker.server.timed_executor import TimedExecutor
from ferrymq_broker.store.appender import AppenderOptions
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.page_store import LmdbPageStore

# The subfolder of the store for messages that are on disk only to save memory.
PAGES = "pages"
# The alarm for a full disk.
DISK = "disk"
# The size of a segment is a multiple of this.
_BLOCK = 4096
# Records between two reports of progress.
_OFTEN = 1000


def store_options(settings: Settings) -> StoreOptions:
    """Return the options for the store; the size of segments is rounded down to whole blocks."""
    return StoreOptions(settings.segment_bytes // _BLOCK * _BLOCK, settings.max_bytes)


class _GivenUp(Exception):
    """An exception: the start of the broker was given up."""


class StoreOpening:
    """The opening of a store for a new broker, in a thread, so that the event loop goes on and can
    report the progress. The end of the process does not wait for the thread.

    Until the store is open, only the thread uses the broker. The broker has at most `page_out`
    bytes of messages in memory from the beginning; 0 is no limit. `cluster` is the id of the
    cluster that has the store, "" for none.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        broker: Broker,
        progress: OnProgress,
        page_out: int = 0,
        cluster: str = "",
    ) -> None:
        self._cluster = cluster
        self._path = path
        self._page_out = page_out
        self._options = store_options(settings)
        self._broker = broker
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[DurableStore] = self._loop.create_future()
        self._given_up = False
        self._unmap = find_unmap()
        self._trim = find_trim()
        self._told = 0

    async def store(self) -> DurableStore:
        """Open the store, and recover the broker from it. Raises `StoreError` and `OSError`.

        If the caller is cancelled, the thread closes the store.
        """
        threading.Thread(target=self._run, name="store-open", daemon=True).start()
        try:
            return await self._future
        except asyncio.CancelledError:
            self._given_up = True
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"the store {self._path} cannot be used: {reason}") from error

    # -- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        store: DurableStore | None = None
        failed: Exception | None = None
        try:
            store = self._open()
        except _GivenUp:
            return
        except Exception as error:
            failed = error
        try:
            self._loop.call_soon_threadsafe(self._finish, store, failed)
        except RuntimeError:
            # The event loop was closed.
            if store is not None:
                self._discard(store)

    def _open(self) -> DurableStore:
        changes = self._broker.agenda.changes
        self._tell("checking the store", 0, 0)
        store = DurableStore.open(
            self._path, changes, self._options, self._on_journal, self._cluster
        )
        try:
            self._broker.keep(store)
            unmap = self._unmap
            if self._page_out:
                pages = LmdbPageStore(self._path / PAGES)
                self._broker.page_out(pages, self._page_out, unmap)
            recover(self._broker, store, self._on_records, unmap)
        except BaseException:
            self._discard(store)
            raise
        return store

    def _on_journal(self, done: int, total: int) -> None:
        if self._unmap is not None:
            # Release the pages of the records that were changed.
            self._unmap()
        if self._trim is not None and done == total:
            # Freed batches leave gaps in memory that messages do not fill.
            self._trim()
        if total:
            self._tell("recovering the journal", done, total)

    def _on_records(self, what: str, done: int, total: int) -> None:
        if done >= self._told + _OFTEN or done < self._told:
            self._told = done
            self._tell(what, done, total)

    def _tell(self, what: str, done: int, total: int) -> None:
        if self._given_up:
            raise _GivenUp
        self._loop.call_soon_threadsafe(self._progress, what, done, total)

    def _discard(self, store: DurableStore) -> None:
        """Close the store without changing it, because the start was given up."""
        self._broker.agenda.changes.stop()
        store.close()

    # -- in the event loop -------------------------------------------------------------------

    def _finish(self, store: DurableStore | None, failed: Exception | None) -> None:
        if self._future.cancelled():
            if store is not None:
                self._discard(store)
        elif failed is not None:
            self._future.set_exception(failed)
        else:
            assert store is not None
            self._future.set_result(store)


class Storage:
    """A store in use. `on_failure` is called once, when the store can no longer be written. The
    `appender` of a leader confirms each batch before it counts as stored."""

    def __init__(
        self,
        store: DurableStore,
        figures: StoreStats,
        broker: Broker,
        now: Callable[[], float],
        on_failure: Callable[[StoreError], None],
        appender: AppenderOptions | None = None,
    ) -> None:
        self._appender = appender
        self.store = store
        self.figures = figures
        self._broker = broker
        self._now = now
        self._failed = on_failure
        self._backup: Backup | None = None
        # Set at each batch that is stored.
        self._stored = asyncio.Event()

    def start(self) -> None:
        """Begin to store changes."""
        executor = TimedExecutor(asyncio.get_running_loop(), self.figures)
        self.store.start(
            executor,
            self._on_stable,
            self._on_failure,
            self._on_full,
            self._appender,
            find_unmap(),
        )

    async def wait_for_all(self, seconds: float) -> None:
        """Wait until all changes are stored, for so many seconds at most."""
        changes = self._broker.agenda.changes
        try:
            async with asyncio.timeout(seconds):
                while changes.latest() > changes.stable:
                    self._stored.clear()
                    await self._stored.wait()
        except TimeoutError:
            log.warning("the last changes are not stored, and nobody was told of them")

    def _on_stable(self) -> None:
        self._stored.set()
        try:
            self._broker.on_stable(self._now())
        except Exception:
            # No single connection caused the exception, so all go on.
            log.exception("internal error")
            self._broker.finish_pass()

    def _on_failure(self, reason: str) -> None:
        self._failed(StoreError(reason))

    def _on_full(self, on: bool) -> None:
        broker = self._broker
        broker.begin_pass(self._now())
        broker.set_alarm(DISK, on)
        broker.finish_pass()

    # -- for management ------------------------------------------------------------------------

    def describe(self) -> dict[str, object]:
        """Return the figures of the store, and the state of the last backup."""
        sizes = self.figures.bytes_by_kind()
        return {
            "path": str(self.figures.path),
            "bytes": sum(sizes.values()),
            **{f"{kind}-bytes": size for kind, size in sizes.items()},
            "batches": self.figures.batch_bytes.count,
            "last-batch": int(self._broker.agenda.changes.stable),
            "applied-batch": int(self.store.applied),
            "alarm": DISK in self._broker.alarms,
            "backup": self.backup_state(),
        }

    def backup_state(self) -> dict[str, object]:
        """Return the state of the last backup."""
        return {"state": "none"} if self._backup is None else self._backup.describe()

    def expect_target(self, target: str) -> Path:
        """Return the directory that a backup is to be written to. Raises `ManagementError`."""
        path = Path(target)
        if not path.is_absolute():
            raise ManagementError(BAD_REQUEST, f"target: {target!r} is not an absolute path")
        return path

    def begin_backup(self, target: str, begun: bool = False) -> None:
        """Begin to copy the store to a directory, which is empty unless the backup has `begun` with
        the stores of others. Raises `ManagementError`."""
        path = self.expect_target(target)
        if self._backup is not None and self._backup.state == "running":
            raise ManagementError(
                CONFLICT, f"a backup to {self._backup.target} is in progress; wait for its end"
            )
        backup = Backup(self.store, self.figures.path, path, begun)
        try:
            backup.begin()
        except (StoreError, OSError) as error:
            raise ManagementError(CONFLICT, str(error)) from None
        self._backup = backup

    # -- the end -------------------------------------------------------------------------------

    def close(self, is_lost: bool = False) -> None:
        """Write and apply everything. Raises `StoreError` if that cannot be done. With `is_lost`
        the lease is lost, and changes that are not stored are thrown away."""
        if is_lost:
            self._broker.agenda.changes.stop()
        pager = pager_of(self._broker.agenda)
        if pager is not None:
            pager.close()
        try:
            self.store.close(None if is_lost else lambda: describe_paged_out(self._broker))
        finally:
            # Nodes are dropped from memory next, which must not change the store.
            self._broker.agenda.changes.stop()
