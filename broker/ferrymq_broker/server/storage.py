"""The store of a broker in its event loop: opened, read, started, watched and closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ferrymq_broker.broker import Broker
from ferrymq_broker.config.storage import Store as Settings
from ferrymq_broker.journal import log
from ferrymq_broker.server.starting import OnProgress
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.executor import LoopExecutor

T = TypeVar("T")

# The alarm that there is no room for more.
DISK = "disk"


async def open_store(
    path: Path, settings: Settings, broker: Broker, progress: OnProgress
) -> DurableStore:
    """The store of a new broker; what is left in its journal is applied in a thread.

    `progress` is called in the event loop. Raises `StoreError` and `OSError`.
    """
    loop = asyncio.get_running_loop()
    options = StoreOptions(settings.segment_bytes // 4096 * 4096, settings.max_bytes)

    def report(done: int, total: int) -> None:
        loop.call_soon_threadsafe(progress, "recovering the journal", done, total)

    def work() -> DurableStore:
        return DurableStore.open(path, broker.agenda.changes, options, report)

    try:
        return await _in_thread(work, DurableStore.close)
    except PermissionError as error:
        raise StoreError(f"the store {path} cannot be used: {error.strerror}") from error
    except FileExistsError as error:
        raise StoreError(f"the store {path} is no directory") from error


async def _in_thread(work: Callable[[], T], discard: Callable[[T], None]) -> T:
    """What `work` gives, done by a thread that the end of the process does not wait for.

    Who gives up waiting leaves it to the thread to `discard` what comes.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(made: T | None, error: Exception | None) -> None:
        if future.cancelled():
            if made is not None:
                discard(made)
        elif error is not None:
            future.set_exception(error)
        else:
            assert made is not None
            future.set_result(made)

    def run() -> None:
        made: T | None = None
        failed: Exception | None = None
        try:
            made = work()
        except Exception as error:
            failed = error
        try:
            loop.call_soon_threadsafe(finish, made, failed)
        except RuntimeError:
            # The loop was closed: nobody waits.
            if made is not None:
                discard(made)

    threading.Thread(target=run, name="store-open", daemon=True).start()
    return await future


class Storage:
    """A store that runs. `on_failure` is called once, when nothing can be written any more."""

    def __init__(
        self,
        store: DurableStore,
        broker: Broker,
        now: Callable[[], float],
        on_failure: Callable[[StoreError], None],
    ) -> None:
        self.store = store
        self._broker = broker
        self._now = now
        self._failed = on_failure

    async def recover(self, progress: OnProgress) -> None:
        """Let the broker have what was stored."""
        self._broker.keep(self.store)

    def abandon(self) -> None:
        """The broker does not come to be; the store is left as it is."""
        self._broker.agenda.changes.stop()
        self.store.close()

    def start(self) -> None:
        """Take what changes from now on."""
        executor = LoopExecutor(asyncio.get_running_loop())
        self.store.start(executor, self._on_stable, self._on_failure, self._on_full)

    def _on_stable(self) -> None:
        try:
            self._broker.on_stable(self._now())
        except Exception:
            # A mistake of ours. There is no connection to blame: the others go on.
            log.exception("internal error")
            self._broker.finish_pass()

    def _on_failure(self, reason: str) -> None:
        self._failed(StoreError(reason))

    def _on_full(self, on: bool) -> None:
        broker = self._broker
        broker.begin_pass(self._now())
        broker.set_alarm(DISK, on)
        broker.finish_pass()

    def close(self) -> None:
        """Write and apply everything. Raises `StoreError` if that cannot be done."""
        changes = self._broker.agenda.changes
        try:
            self.store.close()
        finally:
            changes.stop()
