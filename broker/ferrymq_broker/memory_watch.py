"""Limits for the memory of messages: above them, messages are paged out and producers wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.node import BOUNDLESS

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.nodes.paging.sweep import Sweep

MEMORY: Final = "memory"
"""The reason of the alarm."""

# By default the alarm ends one fifth below its limit, after consumers have taken the messages that
# producers sent with the credit that they still had.
_ABOVE_LOW_WATER: Final = 5


@final
class MemoryWatch:
    """The memory that the messages of one broker take.

    `sweep` pages messages out; None if there is no store for them. `short` is True while the alarm
    is on. Up to `look_above` bytes, `look` need not be called. `set_alarm` is called when the alarm
    begins or ends; `page_soon` is called to schedule another pass that pages more out.
    """

    __slots__ = (
        "sweep",
        "short",
        "look_above",
        "_high_water",
        "_low_water",
        "_paging",
        "_agenda",
        "_set_alarm",
        "_page_soon",
    )

    def __init__(
        self,
        agenda: Agenda,
        set_alarm: Callable[[str, bool], object],
        page_soon: Callable[[], object],
    ) -> None:
        self.sweep: Sweep | None = None
        self.short: bool = False
        self.look_above: i64 = BOUNDLESS
        # Bytes of messages above which there is an alarm, and at which it ends.
        self._high_water: i64 = BOUNDLESS
        self._low_water: i64 = 0
        # Whether a pass that pages more out has been scheduled.
        self._paging = False
        self._agenda = agenda
        self._set_alarm = set_alarm
        self._page_soon = page_soon

    def limit(self, limit: i64, low_water: i64 = 0) -> None:
        """Set the limits of the alarm: it begins above `limit` bytes and ends at `low_water` bytes
        (by default 80 % of the limit). A `limit` of 0 is no limit."""
        if low_water == 0:
            low_water = limit - limit // _ABOVE_LOW_WATER
        self._high_water = BOUNDLESS if limit == 0 else limit
        self._low_water = BOUNDLESS if limit == 0 else low_water
        self.look_above = self._high_water
        if self.sweep is not None and self.sweep.pager.high < self.look_above:
            self.look_above = self.sweep.pager.high
        self.look()

    def page_out(self, sweep: Sweep) -> None:
        """Page messages out above the limit of the sweep's pager from now on."""
        self.sweep = sweep
        if sweep.pager.high < self.look_above:
            self.look_above = sweep.pager.high

    def look(self) -> None:
        """Page messages out, and begin or end the alarm, if the memory of messages requires it."""
        sweep = self.sweep
        held = self._agenda.held
        if sweep is not None and self._agenda.pageable() > sweep.pager.high:
            if sweep.turn() and not self._paging:
                self._paging = True
                self._page_soon()
            held = self._agenda.held
        short = held > self._low_water if self.short else held > self._high_water
        if short != self.short:
            self.short = short
            self._set_alarm(MEMORY, short)

    def page_more(self) -> None:
        """Allow `look` to schedule another pass. Called in the pass that was scheduled."""
        self._paging = False
