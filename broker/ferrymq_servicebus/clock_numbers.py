"""Sequence numbers of messages that get none in a queue: those that a topic schedules, and those
that a queue sends on at once.

They follow the clock, so that they grow also over a restart, and are above the numbers of all
messages in queues. A number of JavaScript holds each of them exactly.
"""

from __future__ import annotations

from typing import Final, final

LEAST: Final = 1 << 52
# How many numbers one millisecond has.
_PER_MILLISECOND: Final = 1 << 11


@final
class ClockNumbers:
    """Numbers from `LEAST` on, each used once."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, wall: int) -> int:
        """Return the next number; `wall` is the time in milliseconds since the epoch."""
        self._last = max(self._last + 1, LEAST + wall * _PER_MILLISECOND)
        return self._last


CLOCK_NUMBERS: Final = ClockNumbers()
