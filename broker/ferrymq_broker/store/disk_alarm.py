"""The disk alarm: while the disk has no room, producers get no credit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferrymq_broker.event_log import log

# The reasons: no further segment can be created, a batch does not fit, records cannot grow,
# `max-bytes` is reached, or the free space is only enough to go on without producers.
SEGMENT: Final = "no room for another segment of the journal"
BATCH: Final = "no room for a batch"
RECORDS: Final = "no room for records"
LIMIT: Final = "the store has reached max-bytes"
ROOM: Final = "little room is left on the disk"


class DiskAlarm:
    """The reasons why there is no room. `tell` is called when the first reason comes and when the
    last one goes."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._reasons: set[str] = set()

    @property
    def is_on(self) -> bool:
        """Return whether there is no room."""
        return bool(self._reasons)

    def has(self, reason: str) -> bool:
        """Return whether this is one of the current reasons."""
        return reason in self._reasons

    def set(self, reason: str, on: bool) -> None:
        """Add a reason, or remove it."""
        if on == (reason in self._reasons):
            return
        was_on = self.is_on
        if on:
            self._reasons.add(reason)
            log.warning("the disk is full", reason=reason)
        else:
            self._reasons.discard(reason)
        if self.is_on != was_on:
            if was_on:
                log.warning("the disk has room again")
            self._tell(self.is_on)
