"""The events of a member's lease, from the time it stands by until it is the leader no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ferrymq_broker.event_log import log
from ferrymq_broker.replication.leadership import LeadershipEvents
from ferrymq_broker.replication.shared_journal import LEADER, STANDBY, SUSPENDED, Lease
from ferrymq_broker.server.member_view import MemberView

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer

# The reason why producers get no credit while batches cannot be appended.
ALARM: Final = "replication"


class TermEvents(LeadershipEvents):
    """The events of one leadership. `changed` is called when the member has something to do.

    `is_lost` says that the lease is lost, and `lost_to` is the new one if it is known. `successor`
    is the member to which to hand over, "" for nobody.
    """

    def __init__(self, view: MemberView, changed: Callable[[], None]) -> None:
        self.is_elected: bool = False
        self.is_lost: bool = False
        self.lost_to: Lease | None = None
        self.successor: str = ""
        self._view = view
        self._changed = changed
        # The server of the leader, once its broker may be used.
        self._server: BrokerServer | None = None
        self._is_waiting = False

    @property
    def is_over(self) -> bool:
        """Whether the leader has to leave."""
        return self.is_lost or self.successor != ""

    def serve(self, server: BrokerServer) -> None:
        """Note that the leader's server has started."""
        self._server = server
        self._view.role = LEADER
        self._set_alarm()
        server.go_on()

    def end(self) -> None:
        """Leave the server alone from now on."""
        self._server = None

    # -- from the leadership ---------------------------------------------------------------------

    def observed(self, lease: Lease) -> None:
        """See `LeadershipEvents`."""
        self._view.note(lease)

    def elected(self, term: int) -> None:
        """See `LeadershipEvents`."""
        log.info("elected", term=term)
        self.is_elected = True
        self._changed()

    def suspended(self) -> None:
        """See `LeadershipEvents`."""
        log.warning("suspended: the lease was not renewed in time")
        self._view.suspend()
        self._set_alarm()

    def resumed(self) -> None:
        """See `LeadershipEvents`."""
        log.info("the lease is renewed")
        self._view.resume()
        self._view.role = STANDBY if self._server is None else LEADER
        self._set_alarm()
        if self._server is not None:
            self._server.go_on()

    def waiting(self, on: bool) -> None:
        """See `LeadershipEvents`."""
        if on:
            log.warning("changes cannot be appended to the journal at the moment")
        self._is_waiting = on
        self._set_alarm()

    def asked_to_hand_over(self, successor: str) -> None:
        """See `LeadershipEvents`."""
        log.info("asked to hand over", successor=successor)
        self.successor = successor
        self._changed()

    def lost(self, lease: Lease | None) -> None:
        """See `LeadershipEvents`."""
        self.lost_to = lease
        self.is_lost = True
        self._changed()

    def _set_alarm(self) -> None:
        if self._server is not None:
            self._server.set_alarm(ALARM, self._is_waiting or self._view.role == SUSPENDED)
