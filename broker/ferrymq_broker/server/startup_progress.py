"""How far a broker is that is not ready yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ferrymq_broker.event_log import log
from ferrymq_broker.monitoring.readiness import Readiness

# Called with what is being done, how much of it is done, and how much there is to do, 0 if that is
# not known.
OnProgress = Callable[[str, int, int], None]

# Seconds between two lines in the log about it.
LOG_PERIOD: Final = 2.0


def readiness_of(what: str, done: int, total: int) -> Readiness:
    """Not ready, and how much is done: ``recovering the journal, 43 %``."""
    if total:
        return Readiness(False, f"{what}, {percent(done, total)} %")
    return Readiness(False, f"{what}, {done}" if done else what)


def percent(done: int, total: int) -> int:
    """Whole per cent, 100 only when all is done."""
    return 100 if done >= total else 100 * done // total


class LoggedProgress:
    """Progress in the log, a line now and then: where nobody looks at a terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + LOG_PERIOD

    def __call__(self, what: str, done: int, total: int) -> None:
        """It is at this point."""
        now = self._clock()
        if now >= self._next:
            self._next = now + LOG_PERIOD
            if total:
                log.info(what, percent=percent(done, total))
            else:
                log.info(what, done=done)
