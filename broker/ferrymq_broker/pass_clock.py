"""The time of a pass by three clocks, and the time at which the next timer is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.timers import TimerHeap


@final
class PassClock:
    """The clocks of one broker, and the one wake-up for all its timers.

    `now` is the time of the current pass, in seconds of a clock that never goes back. `now + epoch`
    is the time since the Unix epoch. `wake_at` is called with the `now` at which the next timer is
    due.
    """

    __slots__ = (
        "now",
        "epoch",
        "_base",
        "_suspended",
        "_agenda",
        "_timers",
        "_wake_at",
        "_awake",
        "_awake_at",
    )

    def __init__(
        self,
        agenda: Agenda,
        timers: TimerHeap,
        wake_at: Callable[[float], object],
        epoch: float,
    ) -> None:
        self.now: float = 0.0
        self.epoch: float = epoch
        # The difference between `Agenda.now` and `now`, in seconds: the epoch when the broker
        # began, plus the time for which the machine has been suspended since.
        self._base = epoch
        self._suspended = 0.0
        self._agenda = agenda
        self._timers = timers
        self._wake_at = wake_at
        # Whether the server has been asked to wake the broker up, and at what `now`.
        self._awake = False
        self._awake_at = 0.0

    def begin_pass(self, now: float) -> None:
        """Set the time of the clocks until the end of the pass."""
        self.now = now
        agenda = self._agenda
        agenda.now = i64((now + self._base) * 1000.0)
        agenda.wall = i64((now + self.epoch) * 1000.0)

    def set(self, epoch: float, suspended: float) -> tuple[float, float]:
        """Adapt to changes of the wall clock. Called at intervals, before `run_timers`.

        `epoch` is the present difference between the time since the Unix epoch and `now`,
        `suspended` the time for which the machine has been suspended since the broker began; both
        in seconds. Return by how many seconds the wall clock was set since the last call, and for
        how many seconds the machine was suspended.

        Setting the wall clock moves dates only. Durations continue, and include the time of a
        suspension (`docs/decisions/0016-clocks.md`).
        """
        slept = suspended - self._suspended
        if slept < 0.001:
            # The two clocks are read one after the other, so small differences mean nothing.
            slept = 0.0
        else:
            self._suspended = suspended
            self._base += slept
        stepped = epoch - self.epoch - slept
        self.epoch = epoch
        # The wake-up was computed with the old difference of the clocks.
        self._awake = False
        self._timers.moved = True
        return stepped, slept

    def run_timers(self) -> None:
        """Run the timers and the dates that are due by the time of the pass."""
        self._awake = False
        # Set first, so that `arm` sees the remaining timers even if one timer raises.
        self._timers.moved = True
        self._timers.run(self._agenda.now)
        self._agenda.dates.run(self._agenda.wall)

    def arm(self) -> None:
        """Request a wake-up for the next timer and the next date, if one of them has changed."""
        timers = self._timers
        dates = self._agenda.dates
        if not timers.moved and not dates.moved:
            return
        timers.moved = False
        dates.moved = False
        due = timers.next_due()
        if due != 0:
            self._awake_by(float(due) / 1000.0 - self._base)
        date = dates.next_due()
        if date != 0:
            self._awake_by(float(date) / 1000.0 - self.epoch)

    def _awake_by(self, now: float) -> None:
        if not self._awake or now < self._awake_at:
            self._awake = True
            self._awake_at = now
            self._wake_at(now)
