"""A standby's part in the lease: it observes it, and takes it when it is free."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ferrymq_broker.replication.lease_looks import LeaseLooks
from ferrymq_broker.replication.shared_journal import Lease, SharedJournal
from ferrymq_broker.replication.waiting import Cancel, Later

if TYPE_CHECKING:
    from ferrymq_broker.replication.leadership import LeaseOptions

# The shortest time between two looks at a lease that is about to end, in seconds.
_SHORTEST: Final = 0.02


class LeaseSeeker:
    """The search for the lease, every third of its duration, when it changes, and when it ends.

    `observed` is called with each lease that is read, `taken` once, with the time at which the
    successful request was sent and the lease. After that, or after `stop`, nothing is called.
    """

    def __init__(
        self,
        journal: SharedJournal,
        options: LeaseOptions,
        time: Callable[[], float],
        later: Later,
        observed: Callable[[Lease], None],
        taken: Callable[[float, Lease], None],
    ) -> None:
        self._journal = journal
        self._options = options
        self._time = time
        self._later = later
        self._observed = observed
        self._taken = taken
        self._is_stopped = False
        self._cancel_delay: Cancel | None = None
        self._looks = LeaseLooks(later, self._observe)

    def look(self) -> None:
        """Read the lease now."""
        self._looks.now()

    def stop(self) -> None:
        """Look no more."""
        self._is_stopped = True
        self._looks.stop()
        if self._cancel_delay is not None:
            self._cancel_delay()

    def _observe(self) -> None:
        self._journal.observe(self._on_observed)

    def _on_observed(self, result: Lease | Exception) -> None:
        if self._is_stopped:
            return
        third = self._options.lease / 3
        if isinstance(result, Exception):
            self._looks.plan(third)
            return
        self._observed(result)
        if result.holder and result.remaining > 0:
            self._looks.plan(min(third, max(result.remaining, _SHORTEST)))
            return
        delay = 0.0 if result.successor == self._options.name else self._options.delay
        self._cancel_delay = self._later(delay, self._acquire)

    def _acquire(self) -> None:
        if self._is_stopped:
            return
        options = self._options
        sent = self._time()
        self._journal.acquire(
            options.name,
            options.address,
            options.lease,
            lambda result: self._on_acquired(sent, result),
        )

    def _on_acquired(self, sent: float, result: Lease | Exception) -> None:
        if self._is_stopped:
            return
        if isinstance(result, Exception):
            # If the lease was taken all the same, it has to end first: a lease of this name might
            # also be that of another process with the same name.
            self._looks.plan(self._options.lease / 3)
            return
        self._observed(result)
        if result.taken:
            self.stop()
            self._taken(sent, result)
        else:
            self._looks.plan(self._options.lease / 3)
