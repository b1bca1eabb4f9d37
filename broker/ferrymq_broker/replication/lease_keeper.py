"""The leader's part in the lease: it renews it, and knows when it may not write any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrymq_broker.replication.errors import LeaseLost
from ferrymq_broker.replication.lease_looks import LeaseLooks
from ferrymq_broker.replication.shared_journal import Lease, SharedJournal
from ferrymq_broker.replication.waiting import Cancel, Later

if TYPE_CHECKING:
    from ferrymq_broker.replication.leadership import LeaseOptions


class LeaseUser:
    """The owner of a lease keeper."""

    def on_renewed(self, lease: Lease) -> None:
        """Handle that the lease was renewed, and the deadline is in the future."""

    def on_expired(self) -> None:
        """Handle that the deadline has passed. It is called once before the next renewal."""

    def on_replaced(self, error: LeaseLost) -> None:
        """Handle that there is another term."""

    def on_given_up(self, error: LeaseLost) -> None:
        """Handle that the lease was not renewed for too long."""


class LeaseKeeper:
    """The renewals of one term, at each third of the lease's duration and when the lease changes.

    `sent` and `lease` are those of the request that has taken the lease. After `stop` nothing is
    called.
    """

    def __init__(
        self,
        journal: SharedJournal,
        options: LeaseOptions,
        time: Callable[[], float],
        later: Later,
        user: LeaseUser,
        sent: float,
        lease: Lease,
    ) -> None:
        self._journal = journal
        self._options = options
        self._time = time
        self._later = later
        self._user = user
        self._term = lease.term
        self._is_stopped = False
        self._is_expired = False
        # The moments at which the leader is suspended, and at which it gives up.
        self._deadline = 0.0
        self._end = 0.0
        self._cancel_watch: Cancel | None = None
        self._looks = LeaseLooks(later, self._renew)
        self._extend(sent, lease)

    def is_valid(self) -> bool:
        """Return whether this moment is before the deadline."""
        return self._time() < self._deadline

    def look(self) -> None:
        """Renew the lease now."""
        self._looks.now()

    def stop(self) -> None:
        """Renew no more."""
        self._is_stopped = True
        self._looks.stop()
        if self._cancel_watch is not None:
            self._cancel_watch()

    def _renew(self) -> None:
        sent = self._time()
        self._journal.renew(
            self._term, self._options.lease, lambda result: self._on_renewed(sent, result)
        )

    def _on_renewed(self, sent: float, result: Lease | Exception) -> None:
        if self._is_stopped:
            return
        if isinstance(result, LeaseLost):
            self._user.on_replaced(result)
        elif isinstance(result, Exception):
            self._looks.plan(self._options.lease / 10)
        elif self._time() < sent + result.remaining:
            # The timer of the deadline may be late: the machine has slept, or the process was
            # stopped.
            self._expire()
            self._extend(sent, result)
            self._user.on_renewed(result)
        else:
            # The answer took longer than the lease.
            self._looks.plan(0.0)

    def _extend(self, sent: float, lease: Lease) -> None:
        """Set the deadline by a request that was sent at `sent`."""
        options = self._options
        self._deadline = sent + lease.remaining
        self._end = sent + max(options.lease, options.step_down_after)
        self._is_expired = False
        self._looks.plan(max(0.0, sent + options.lease / 3 - self._time()))
        self._watch_in(max(0.0, self._deadline - self._time()))

    def _watch_in(self, seconds: float) -> None:
        if self._is_stopped:
            return
        if self._cancel_watch is not None:
            self._cancel_watch()
        self._cancel_watch = self._later(seconds, self._watch)

    def _watch(self) -> None:
        """Expire at the deadline, and give up at the end."""
        if self._is_stopped:
            return
        options = self._options
        now = self._time()
        if now < self._deadline:
            self._watch_in(self._deadline - now)
        elif self._expire():
            # A process that was stopped until after the end has time for one renewal.
            self._watch_in(max(self._end - now, options.lease / 3))
        elif now < self._end:
            self._watch_in(self._end - now)
        else:
            text = f"the lease was not renewed for {options.step_down_after:g} s"
            self._user.on_given_up(LeaseLost(text))

    def _expire(self) -> bool:
        """Tell that the deadline has passed, if it has; return whether this is new."""
        if self._is_expired or self.is_valid():
            return False
        self._is_expired = True
        self._user.on_expired()
        return True
