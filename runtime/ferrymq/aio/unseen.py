"""Losses that no caller sees: a finalizer notices them, and the log tells them with a count.

A finalizer runs in any thread and at any point of the program, so it only asks the loop to act.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LOGGER: Final = logging.getLogger("ferrymq")

INTERVAL: Final = 10.0
"""Seconds between two lines of one warning, at least."""


class LoopCaller:
    """Way for finalizers, which run in any thread, to have the current loop call a function."""

    __slots__ = ("_loop", "_pid")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    def __call__(self, function: Callable[[], None]) -> bool:
        """Ask the loop to call a function soon. Return false if it cannot: a closed loop, or the
        loop of another process."""
        if sys.is_finalizing() or os.getpid() != self._pid:
            return False
        try:
            if asyncio._get_running_loop() is self._loop:
                self._loop.call_soon(function)
            else:
                self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    def later(self, function: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Ask the loop to call a function after `INTERVAL`, from the loop's thread."""
        return None if self._loop.is_closed() else self._loop.call_later(INTERVAL, function)


class RepeatedWarning(Generic[T]):
    """Warning in the log about something that may happen often: a line at once, and then at most
    one every ten seconds, with a running count.

    `text` makes the line of the count and of the first thing that was added.
    """

    def __init__(self, caller: LoopCaller, text: Callable[[int, T], str]) -> None:
        self._caller = caller
        self._text = text
        self._new: deque[T] = deque()
        # Whether the loop was asked to count what is new.
        self._asked = False
        self._first: list[T] = []
        self._count = 0
        self._told = 0
        self._told_at = -INTERVAL
        self._timer: asyncio.TimerHandle | None = None

    def add(self, what: T) -> None:
        """Count one more, from any thread."""
        self._new.append(what)
        if not self._asked:
            self._asked = True
            if not self._caller(self._count_new):
                # The loop is closed, and has no more timers.
                self._take_new()
                if time.monotonic() - self._told_at >= INTERVAL:
                    self._tell()

    def flush(self) -> None:
        """Tell what was not told yet, because the link is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._take_new()
        if self._count > self._told:
            self._tell()

    def _take_new(self) -> None:
        # Whatever is added from now on asks again.
        self._asked = False
        new = self._new
        while new:
            what = new.popleft()
            self._count += 1
            if not self._first:
                self._first.append(what)

    def _count_new(self) -> None:
        self._take_new()
        if self._timer is None and self._count > self._told:
            self._tell()
            self._timer = self._caller.later(self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._count_new()

    def _tell(self) -> None:
        self._told = self._count
        self._told_at = time.monotonic()
        LOGGER.warning("%s", self._text(self._count, self._first[0]))


class SentFuture(asyncio.Future[None]):
    """Future of `Sender.send_nowait`. If its error was never looked at, `warning` counts it;
    asyncio would report each such future in many lines."""

    __slots__ = ("warning",)

    warning: RepeatedWarning[BaseException]

    def __del__(self) -> None:
        if self._log_traceback:
            self._log_traceback = False
            error = self.exception()
            if error is not None:
                self.warning.add(error)
