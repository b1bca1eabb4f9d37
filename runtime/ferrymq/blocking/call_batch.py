"""Calls that threads leave to the event loop without waiting for them.

To wake the loop's thread costs as much as many calls, and the thread that wakes it loses the
interpreter's lock to it. So the loop is woken for the first call only. From then on it looks for
calls by itself every millisecond, until there are none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

INTERVAL: Final = 0.001
"""Seconds after which the loop looks for further calls."""


class CallBatch:
    """Calls of threads that the loop makes together, in the order of `add`.

    `wake` has the loop call a function, from any thread. Deques are safe to use from all threads,
    so no lock is needed, which an exception from a signal could leave held.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wake: Callable[[Callable[[], object]], None]
    ) -> None:
        self._loop = loop
        self._wake = wake
        self._calls: deque[tuple[Callable[[Any], object], Any]] = deque()
        # Whether the loop is about to look for calls.
        self._watched = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, function: Callable[[T], object], argument: T) -> None:
        """Have the loop call a function soon, from any thread."""
        self._calls.append((function, argument))
        if not self._watched:
            try:
                self._watched = True
                self._wake(self._look)
            except BaseException:
                # The loop may not know. If it does, it is woken once more in vain.
                self._watched = False
                raise

    def make(self) -> None:
        """Make the calls that have been added, in the loop. The loop reports an exception."""
        calls = self._calls
        while calls:
            function, argument = calls.popleft()
            try:
                function(argument)
            except Exception as error:
                what = f"a call of {function!r} failed, for which no thread waits"
                self._loop.call_exception_handler({"message": what, "exception": error})

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._calls:
            self._watched = False
            # A thread may have added a call just before, and relied on this look.
            if not self._calls:
                return
            self._watched = True
        self.make()
        self._timer = self._loop.call_later(INTERVAL, self._look)
