"""The clocks. Code that depends on time takes a `Clock`, which tests replace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# On Linux this clock continues while the machine is suspended; the monotonic clock stops.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


class Clock:
    """The clocks of the machine."""

    def now(self) -> float:
        """Return the seconds of a clock that never goes back and stops while the machine is
        suspended."""
        return time.monotonic()

    def epoch(self) -> float:
        """Return the difference between the time since the Unix epoch and `now`, in seconds.

        The difference changes when the wall clock is set and when the machine has been suspended.
        """
        return time.time() - time.monotonic()

    def boottime(self) -> float:
        """Return the seconds of a clock that never goes back and goes on while the machine is
        suspended, if the operating system has one; else `now`."""
        return self.now() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def suspended(self) -> float:
        """Return the seconds for which the machine has been suspended since it was booted.

        Returns 0 if the operating system has no clock that counts suspensions.
        """
        if _BOOTTIME is None:
            return 0.0
        return time.clock_gettime(_BOOTTIME) - time.monotonic()


def reader_of(clock: Clock) -> Callable[[], float]:
    """Return a function that does what `clock.now` does, the one of C if it is the machine's."""
    return time.monotonic if type(clock).now is Clock.now else clock.now
