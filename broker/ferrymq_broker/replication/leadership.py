"""Leadership: one member's part in the lease, as a state machine without input and output.

See `docs/decisions/0033-replication.md`. The clock and the timers are injected, so that a
simulation can run it.

A standby observes the lease and takes it when it is free (`LeaseSeeker`). The leader renews it
(`LeaseKeeper`). The deadline of the leader is the time at which it sent the last successful
request, plus what was left of the lease when the database answered: it is never later than the end
that the database knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ferrymq_broker.replication.append_attempts import AppendAttempts
from ferrymq_broker.replication.errors import LeaseLost
from ferrymq_broker.replication.leadership_states import (
    LEADERSHIP_TABLE,
    LeadershipInput,
    LeadershipState,
)
from ferrymq_broker.replication.lease_keeper import LeaseKeeper, LeaseUser
from ferrymq_broker.replication.lease_seeker import LeaseSeeker
from ferrymq_broker.replication.shared_journal import Lease, SharedJournal
from ferrymq_broker.replication.waiting import Later
from ferrymq_broker.store.appender import BatchAppender


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Names and times. `lease` and `step_down_after` are in seconds. `delay` is how many seconds
    this member waits before it takes a free lease; it should differ between members."""

    name: str
    address: str
    lease: float = 10.0
    step_down_after: float = 60.0
    delay: float = 0.0


class LeadershipEvents:
    """The events that a leadership reports to its member, in the event loop."""

    def observed(self, lease: Lease) -> None:
        """Handle that the lease was read."""

    def elected(self, term: int) -> None:
        """Handle that this member has the lease. It has to read the rest of the journal before it
        serves."""

    def suspended(self) -> None:
        """Handle that the deadline has passed: nothing may be written to clients."""

    def resumed(self) -> None:
        """Handle that the lease was renewed, and was nobody else's meanwhile."""

    def waiting(self, on: bool) -> None:
        """Handle that appends do not get through, or do again: producers should get no credit."""

    def asked_to_hand_over(self, successor: str) -> None:
        """Handle that the leader is asked to hand over; it answers with `step_down`."""

    def lost(self, lease: Lease | None) -> None:
        """Handle that this member is leader no more; `lease` is the new one if it is known.

        The error of an append under way comes before. After `step_down` this is called only if the
        lease was lost before it could be released.
        """


class Leadership(BatchAppender, LeaseUser):
    """The part of one member in the lease, from standby to the loss of its lease.

    `time` returns the seconds of a clock that goes on while the machine sleeps; `later` calls a
    function after some seconds and returns a function that cancels it.
    """

    def __init__(
        self,
        journal: SharedJournal,
        options: LeaseOptions,
        events: LeadershipEvents,
        time: Callable[[], float],
        later: Later,
    ) -> None:
        self.journal = journal
        self.options = options
        self.state: LeadershipState = LeadershipState.STANDBY
        self.term: int = 0
        self.lease: Lease | None = None
        self._events = events
        self._time = time
        self._later = later
        self._seeker = LeaseSeeker(journal, options, time, later, self._observed, self._on_taken)
        self._keeper: LeaseKeeper | None = None
        self._attempts: AppendAttempts | None = None
        self._appended: Callable[[Exception | None], None] | None = None
        self._stepped_down: Callable[[], None] | None = None
        self._successor = ""
        self._is_stopped = False

    # -- what the member does ------------------------------------------------------------------

    def start(self) -> None:
        """Observe the lease, and take it when it is free."""
        self.journal.watch(self._look)
        self._look()

    def may_write(self) -> bool:
        """Return whether this moment is before the deadline. Call it before each output."""
        keeper = self._keeper
        return self.state is LeadershipState.LEADER and keeper is not None and keeper.is_valid()

    def append(
        self,
        number: int,
        changes: int,
        parts: Sequence[bytes],
        done: Callable[[Exception | None], None],
    ) -> None:
        """See `BatchAppender.append`. Appends that break are confirmed or repeated.

        `done` gets `LeaseLost` when the member is leader no more.
        """
        assert self._appended is None, "one batch is under way at a time"
        self._appended = done
        if self._stepped_down is not None or not self._is_leading():
            error = LeaseLost("this broker is not the leader any more")
            self._later(0.0, lambda: self._end_append(error))
            return
        self._attempts = AppendAttempts(
            self.journal, self._later, self.term, self._events.waiting, self._on_appended
        )
        self._attempts.start(number, changes, parts)

    def step_down(self, done: Callable[[], None]) -> None:
        """Release the lease when the append under way has ended, and become LOST.

        `done` is called when the lease is released, or cannot be released.
        """
        if self.state is LeadershipState.LOST:
            self._later(0.0, done)
            return
        self._stepped_down = done
        if self._attempts is None:
            self._release()

    def stop(self) -> None:
        """Do nothing more, without releasing the lease: for the end of a standby. Nothing is called
        after that, and a batch under way is not confirmed."""
        self._is_stopped = True
        self._take(LeadershipInput.STOPPED)

    # -- appends and their end -----------------------------------------------------------------

    def _on_appended(self, error: Exception | None) -> None:
        if isinstance(error, LeaseLost):
            self._lose(LeadershipInput.REPLACED, error)
        elif error is not None:
            self._lose(LeadershipInput.GAVE_UP, error)
        else:
            self._end_append(None)
            if self._stepped_down is not None:
                self._release()

    def _end_append(self, error: Exception | None) -> None:
        done, self._appended = self._appended, None
        self._attempts = None
        if done is not None and not self._is_stopped:
            done(error)

    def _release(self) -> None:
        was_leading = self._is_leading()
        if not self._take(LeadershipInput.STEPPED_DOWN):
            return
        if was_leading:
            self.journal.release(self.term, lambda result: self._end_step_down())
        else:
            self._later(0.0, self._end_step_down)

    def _end_step_down(self) -> None:
        done, self._stepped_down = self._stepped_down, None
        if done is not None and not self._is_stopped:
            done()

    # -- the state -----------------------------------------------------------------------------

    def _is_leading(self) -> bool:
        return self.state in (LeadershipState.LEADER, LeadershipState.SUSPENDED)

    def _take(self, given: LeadershipInput) -> bool:
        """Make the transition; return whether there is one."""
        state = LEADERSHIP_TABLE.get((self.state, given))
        if state is None:
            return False
        self.state = state
        if state is LeadershipState.LOST:
            self._seeker.stop()
            if self._keeper is not None:
                self._keeper.stop()
            if self._attempts is not None:
                self._attempts.cancel()
        return True

    def _lose(self, given: LeadershipInput, error: Exception) -> None:
        """Become LOST for a reason that is not the member's wish, and tell the member."""
        if not self._take(given):
            return
        self._end_append(error)
        if self._is_stopped:
            return
        if given is LeadershipInput.REPLACED:
            # The new lease says where the clients have to go.
            self.journal.observe(self._tell_lost)
        else:
            self.journal.release(self.term, lambda result: None)
            self._tell_lost(error)

    def _tell_lost(self, lease: Lease | Exception) -> None:
        if self._is_stopped:
            return
        if isinstance(lease, Exception):
            self._events.lost(None)
        else:
            self.lease = lease
            self._events.lost(lease)
        self._end_step_down()

    # -- the lease -----------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at the lease now."""
        if self.state is LeadershipState.STANDBY:
            self._seeker.look()
        elif self._keeper is not None:
            self._keeper.look()

    def _observed(self, lease: Lease) -> None:
        self.lease = lease
        self._events.observed(lease)

    def _on_taken(self, sent: float, lease: Lease) -> None:
        if self._take(LeadershipInput.ACQUIRED):
            self.term = lease.term
            self._keeper = LeaseKeeper(
                self.journal, self.options, self._time, self._later, self, sent, lease
            )
            self._events.elected(lease.term)

    def on_renewed(self, lease: Lease) -> None:
        """See `LeaseUser`."""
        was_suspended = self.state is LeadershipState.SUSPENDED
        if not self._take(LeadershipInput.RENEWED):
            return
        if was_suspended:
            self._events.resumed()
        self._observed(lease)
        asked, self._successor = self._successor, lease.successor
        if lease.successor not in ("", asked, self.options.name) and self._is_leading():
            self._events.asked_to_hand_over(lease.successor)

    def on_expired(self) -> None:
        """See `LeaseUser`."""
        if self._take(LeadershipInput.EXPIRED):
            self._events.suspended()

    def on_replaced(self, error: LeaseLost) -> None:
        """See `LeaseUser`."""
        self._lose(LeadershipInput.REPLACED, error)

    def on_given_up(self, error: LeaseLost) -> None:
        """See `LeaseUser`."""
        self._lose(LeadershipInput.GAVE_UP, error)
