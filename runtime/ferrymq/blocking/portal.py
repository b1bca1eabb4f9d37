"""Portal from threads into an event loop.

Each blocking connection has an event loop in a thread of its own, in which the asyncio client runs.
A call passes a coroutine to the loop and waits for its result. Any number of threads may call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from os import getpid
from threading import get_ident
from typing import Any, Final, Generic, TypeVar

from ferrymq.aio.waiting import running_loop
from ferrymq.blocking.call_batch import CallBatch
from ferrymq.errors import ConnectionClosed

T = TypeVar("T")
W = TypeVar("W")

# Seconds after which a waiting main thread notices a signal, at most.
_LOOK_UP: Final = 0.25


class Portal:
    """An event loop in a daemon thread. `stop` ends it.

    A call from a thread that runs an event loop stops that loop, so it is refused, unless the
    portal is made with `beside_loops`.
    """

    def __init__(self, name: str, *, url: str = "", beside_loops: bool = False) -> None:
        self._pid = os.getpid()
        # The peer, for the error of a call after the end.
        self._url = url
        self._beside_loops = beside_loops
        self._loop = asyncio.new_event_loop()
        # Protects the start of calls: none is started after the loop is told to stop.
        self._lock = threading.RLock()
        self._stopped = False
        # Calls for which no thread waits. The loop makes them before any later call.
        self.batch: CallBatch = CallBatch(self._loop, self.soon)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._ident = self._thread.ident

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    @property
    def foreign(self) -> bool:
        """Whether this process was forked from the process that made the portal."""
        return os.getpid() != self._pid

    @property
    def usable(self) -> bool:
        """Whether `run` can work here: the loop runs, and in this process."""
        return not self.foreign and not self._stopped

    def check(self) -> None:
        """Raise RuntimeError if this thread or process must not call `run`."""
        if getpid() != self._pid:
            raise RuntimeError("the connection was made before a fork: make one in each process")
        if get_ident() == self._ident:
            raise RuntimeError("a blocking call from the event loop's thread would never return")
        if not self._beside_loops and running_loop() is not None:
            refuse_loop()

    def run(
        self,
        coroutine: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Run a coroutine in the loop and return its result, or raise its exception.

        An exception that reaches the waiting thread, such as KeyboardInterrupt, cancels the
        coroutine. If the coroutine has a result nevertheless, `undo` is called with it in the loop,
        before any later call; a coroutine that `undo` returns is run there.

        Raises `ConnectionClosed` after `stop`. Raises RuntimeError in a forked process, where the
        thread does not exist; in the loop's own thread, which would wait for itself; and in a
        thread that runs another event loop, which would stand still.
        """
        self.check()
        call = _Call(self._loop, self.batch, coroutine, undo)
        try:
            with self._lock:
                if self._stopped:
                    raise ConnectionClosed(f"{self._url}: the connection was closed")
                self._loop.call_soon_threadsafe(call.start)
            # No statement may follow at which an interruption could lose the result.
            return call.wait()
        except BaseException as error:
            if call.error is not error:
                with self._lock:
                    if not self._stopped:
                        self._loop.call_soon_threadsafe(call.abandon)
            raise

    def open(
        self,
        opening: Callable[[], Coroutine[Any, Any, T]],
        wrap: Callable[[Portal, T], W],
        undo: Callable[[T], Coroutine[Any, Any, None]],
    ) -> W:
        """Open an object and return its blocking face; `undo` closes an object that no caller
        received."""

        async def open() -> tuple[T, W]:
            opened = await opening()
            return opened, wrap(self, opened)

        return self.run(open, lambda pair: undo(pair[0]))[1]

    def call(self, function: Callable[[], T]) -> T:
        """Run a plain function in the loop and return its result."""

        async def coroutine() -> T:
            return function()

        return self.run(coroutine)

    def soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, and do not wait for that. Does nothing after `stop`."""
        with self._lock:
            if not self._stopped and not self.foreign:
                self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """End the loop and its thread. Harmless when repeated, and after a fork."""
        if self.foreign:
            return
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


class _Call(Generic[T]):
    """Coroutine in the loop, and the thread that waits for its end.

    All methods but `wait` run in the loop's thread, so the end and an interruption have a definite
    order. The thread waits for a plain lock: an exception from a signal leaves no lock held.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: CallBatch,
        coroutine: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], object] | None,
    ) -> None:
        self.error: BaseException | None = None
        self._loop = loop
        self._batch = batch
        self._coroutine = coroutine
        self._undo = undo
        self._results: list[T] = []
        self._task: asyncio.Task[T] | None = None
        self._abandoned = False
        self._done = False
        # A reference to the task, because the loop keeps none.
        self._undoing: asyncio.Task[None] | None = None
        self._ended = threading.Lock()
        self._ended.acquire()

    def wait(self) -> T:
        """Return the result, or raise what the coroutine raised.

        A signal that comes just before the main thread begins to wait does not end the wait, so the
        main thread looks up now and then.
        """
        patience = _LOOK_UP if threading.current_thread() is threading.main_thread() else -1
        while not self._ended.acquire(timeout=patience):
            pass
        if self.error is not None:
            raise self.error
        return self._results[0]

    def start(self) -> None:
        """Start the coroutine, unless the thread has stopped waiting."""
        self._batch.make()
        if not self._abandoned:
            self._task = self._loop.create_task(self._coroutine())
            self._task.add_done_callback(self._on_done)

    def abandon(self) -> None:
        """Cancel the coroutine, for which the thread no longer waits."""
        self._abandoned = True
        if self._task is not None and not self._done:
            self._task.cancel()
        self._give_back()

    def _on_done(self, task: asyncio.Task[T]) -> None:
        self._done = True
        if task.cancelled():
            self.error = CancelledError()
        else:
            self.error = task.exception()
            if self.error is None:
                self._results.append(task.result())
        if self._abandoned:
            self._give_back()
        self._ended.release()

    def _give_back(self) -> None:
        undo, self._undo = self._undo, None
        if undo is None or not self._results:
            self._undo = undo
            return
        work = undo(self._results[0])
        if asyncio.iscoroutine(work):
            # The result of this task is not reported.
            task = self._loop.create_task(work)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._undoing = task


def refuse_loop() -> None:
    """Raise RuntimeError in a thread that runs an event loop."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "a call of ferrymq.blocking would stop the event loop that runs in this thread: use "
            "await ferrymq.connect(...) here, or asyncio.to_thread"
        )


async def _cancel_all() -> None:
    """Cancel the remaining tasks, so that no thread waits forever."""
    mine = asyncio.current_task()
    while others := asyncio.all_tasks() - {mine}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)
