"""The progress of a broker's start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ferrymq_broker.event_log import log
from ferrymq_broker.monitoring.readiness import Readiness

# Called with the name of the step, how much of it is done, and how much there is to do; 0 if that
# is not known.
OnProgress = Callable[[str, int, int], None]

# Seconds between two log messages about the progress.
LOG_PERIOD: Final = 2.0


def readiness_of(what: str, done: int, total: int) -> Readiness:
    """Return a readiness with the progress as the reason: ``recovering the journal, 43 %``."""
    if total:
        return Readiness(False, f"{what}, {percent(done, total)} %")
    return Readiness(False, f"{what}, {done}" if done else what)


def percent(done: int, total: int) -> int:
    """Return the percentage as a whole number, 100 only when all is done."""
    return 100 if done >= total else 100 * done // total


class LoggedProgress:
    """A progress report in the log, at intervals, for brokers without a terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + LOG_PERIOD

    def __call__(self, what: str, done: int, total: int) -> None:
        """Log the progress, if it is time."""
        now = self._clock()
        if now >= self._next:
            self._next = now + LOG_PERIOD
            if total:
                log.info(what, percent=percent(done, total))
            else:
                log.info(what, done=done)
