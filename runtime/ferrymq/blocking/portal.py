"""From threads into an event loop and back.

Each blocking connection has an event loop in a thread of its own, in which the asyncio client
runs. A call hands over a coroutine and waits for its result. Any number of threads may call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from ferrymq.errors import ConnectionClosed

T = TypeVar("T")

# Seconds after which a main thread that waits notices a signal at the latest.
_LOOK_UP: Final = 0.25


class Portal:
    """An event loop in a daemon thread. `stop` ends it."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        # Everything that is started is started before the loop is told to stop.
        self._lock = threading.RLock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    @property
    def usable(self) -> bool:
        """Whether `run` can work here: the loop runs, and in this process."""
        return os.getpid() == self._pid and not self._stopped

    def run(self, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop and give its result, or raise what it raised.

        An exception that reaches the waiting thread, such as KeyboardInterrupt, cancels the
        coroutine. Raises `ConnectionClosed` after `stop`, and RuntimeError in a process forked off
        the one that made the portal, where the thread does not exist, and in the loop's own thread,
        which would wait for itself.
        """
        if os.getpid() != self._pid:
            raise RuntimeError("the connection was made before a fork: make one in each process")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call from the event loop's thread would never return")
        result: Future[T] = Future()
        task: list[asyncio.Task[T]] = []

        def start() -> None:
            if not result.cancelled():
                task.append(self._loop.create_task(coroutine()))
                task[0].add_done_callback(lambda done: _transfer(done, result))

        def cancel() -> None:
            if task:
                task[0].cancel()
            else:
                result.cancel()

        try:
            with self._lock:
                if self._stopped:
                    raise ConnectionClosed("the connection was closed")
                self._loop.call_soon_threadsafe(start)
            return _wait(result)
        except BaseException:
            with self._lock:
                if not result.done() and not self._stopped:
                    self._loop.call_soon_threadsafe(cancel)
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Run a plain function in the loop and give its result."""

        async def coroutine() -> T:
            return function()

        return self.run(coroutine)

    def stop(self) -> None:
        """End the loop and its thread. Harmless when repeated, and after a fork."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _wait(result: Future[T]) -> T:
    """The result, when it is there.

    A signal that comes just before the main thread begins to wait does not end the wait, so the
    main thread looks up now and then.
    """
    if threading.current_thread() is not threading.main_thread():
        return result.result()
    while True:
        try:
            return result.result(_LOOK_UP)
        except TimeoutError:
            if result.done():
                return result.result()


async def _cancel_all() -> None:
    """End what still runs, so that no thread waits for ever."""
    mine = asyncio.current_task()
    while others := asyncio.all_tasks() - {mine}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)


def _transfer(task: asyncio.Task[T], result: Future[T]) -> None:
    """Hand the end of a task to the thread that waits for it."""
    if result.cancelled():
        return
    if task.cancelled():
        result.cancel()
    elif (error := task.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(task.result())
