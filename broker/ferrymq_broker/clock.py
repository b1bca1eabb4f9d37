"""Where time comes from. Everything that depends on it takes a `Clock`; tests bring their own."""

from __future__ import annotations

import time
from typing import Final

# On Linux this clock goes on while the machine is suspended; the monotonic clock stands still.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


class Clock:
    """The clocks of the machine."""

    def now(self) -> float:
        """Return seconds since some moment. They never go back and stand still in a suspension."""
        return time.monotonic()

    def epoch(self) -> float:
        """Return what to add to `now` for seconds since the Unix epoch.

        It changes when the wall clock is set, and when the machine has been suspended.
        """
        return time.time() - time.monotonic()

    def suspended(self) -> float:
        """Return the seconds for which the machine has been suspended since it was booted.

        Always 0 where the operating system has no clock that counts them.
        """
        if _BOOTTIME is None:
            return 0.0
        return time.clock_gettime(_BOOTTIME) - time.monotonic()
