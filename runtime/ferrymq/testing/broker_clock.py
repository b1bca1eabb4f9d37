"""The clock of a broker for tests, as the test sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import final


@final
class BrokerClock:
    """The clock of a `LocalBroker`: it stands still until it is advanced.

    `advance_by` advances the broker by some seconds, `read` returns its time since the Unix epoch.
    """

    def __init__(self, advance_by: Callable[[float], object], read: Callable[[], float]) -> None:
        self._advance_by = advance_by
        self._read = read
        self.advanced: float = 0.0

    @property
    def now(self) -> datetime:
        """The broker's time of day, in UTC."""
        return datetime.fromtimestamp(self._read(), UTC)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and do everything that is due: messages expire or become due, locks
        lapse, nodes without clients are deleted, idle connections are closed.

        It has happened in the broker when the method returns. Raises ValueError for a negative
        number, because the clock never goes back.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds: the clock never goes back, so 0 or more, not {seconds!r}")
        self._advance_by(seconds)
        self.advanced += seconds
