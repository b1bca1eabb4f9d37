"""Where time comes from. Everything that depends on it takes a `Clock`; tests bring their own."""

from __future__ import annotations

import time


class Clock:
    """The clock of the machine."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def epoch(self) -> float:
        """What to add to `now` for seconds since the Unix epoch. Changes when a clock is set."""
        return time.time() - time.monotonic()
