"""Two threads that make slow system calls while the event loop goes on.

Beside a busy event loop, a thread waits for the interpreter's lock for up to the switch interval.
So each call is prepared completely before the thread gets it: the thread needs the lock once before
the call and once after it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

Call: TypeAlias = Callable[[], None]
Done: TypeAlias = Callable[[Exception | None], None]


class Executor:
    """The interface to run calls outside the event loop; each callback gets the error of its call,
    or None."""

    def write(self, call: Call, done: Done) -> None:
        """Run a call in the thread that writes the journal; its calls run one after the other."""
        raise NotImplementedError

    def commit(self, call: Call, done: Done) -> None:
        """Run a long call, apart from writes to the journal; these calls also run one at a time."""
        raise NotImplementedError

    def soon(self, call: Call) -> None:
        """Run a call in the event loop, after the calls that wait there now."""
        raise NotImplementedError

    def later(self, seconds: float, call: Call) -> None:
        """Run a call in the event loop after a delay."""
        raise NotImplementedError

    def time(self) -> float:
        """Return the seconds of a clock that measures durations."""
        raise NotImplementedError

    def drain(self) -> None:
        """Wait until no call is running outside the event loop, and run the callbacks here."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the threads, after `drain`."""
        raise NotImplementedError


class LoopExecutor(Executor):
    """An executor with two daemon threads beside an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended: deque[tuple[Done, Exception | None]] = deque()
        # The number of calls whose callbacks have not been called.
        self._open = 0
        self._writer = _Worker("store-write", self._report)
        self._committer = _Worker("store-commit", self._report)

    def write(self, call: Call, done: Done) -> None:
        """See `Executor.write`."""
        self._open += 1
        self._writer.calls.put((call, done))

    def commit(self, call: Call, done: Done) -> None:
        """See `Executor.commit`."""
        self._open += 1
        self._committer.calls.put((call, done))

    def soon(self, call: Call) -> None:
        """See `Executor.soon`."""
        self._loop.call_soon(call)

    def later(self, seconds: float, call: Call) -> None:
        """See `Executor.later`."""
        self._loop.call_later(seconds, call)

    def time(self) -> float:
        """See `Executor.time`."""
        return time.perf_counter()

    def drain(self) -> None:
        """See `Executor.drain`."""
        while self._open:
            # Calls queued before `wait` have ended when it returns.
            self._writer.wait()
            self._committer.wait()
            self._hear()

    def close(self) -> None:
        """See `Executor.close`."""
        self._writer.close()
        self._committer.close()

    def _report(self, done: Done, error: Exception | None) -> None:
        """Queue the result of a call for the event loop; runs in the thread of the call."""
        self._ended.append((done, error))
        try:
            self._loop.call_soon_threadsafe(self._hear)
        except RuntimeError:
            # The loop is closed: only `drain` reads the results now.
            pass

    def _hear(self) -> None:
        while self._ended:
            done, error = self._ended.popleft()
            self._open -= 1
            done(error)


class _Worker:
    __slots__ = ("calls", "_report", "_thread")

    def __init__(self, name: str, report: Callable[[Done, Exception | None], None]) -> None:
        self.calls: SimpleQueue[tuple[Call, Done] | None] = SimpleQueue()
        self._report = report
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all calls so far have been made."""
        reached = threading.Event()
        self.calls.put((reached.set, _ignore))
        reached.wait()

    def close(self) -> None:
        self.calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        take = self.calls.get
        report = self._report
        while (item := take()) is not None:
            call, done = item
            failed: Exception | None = None
            try:
                call()
            except Exception as error:
                failed = error
            if done is not _ignore:
                report(done, failed)


def _ignore(error: Exception | None) -> None:
    """Ignore the result of `wait`."""
