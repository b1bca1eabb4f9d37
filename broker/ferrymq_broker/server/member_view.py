"""A member's view of its cluster, and its announcements to the other members."""

from __future__ import annotations

from collections.abc import Callable

from ferrymq import __version__
from ferrymq_broker.replication.shared_journal import (
    STANDBY,
    SUSPENDED,
    JournalFigures,
    Lease,
    Member,
    SharedJournal,
)
from ferrymq_broker.replication.waiting import Later
from ferrymq_broker.server.cluster_role import elsewhere
from ferrymq_types.transport import Error


class MemberView:
    """The cluster as one member knows it.

    `role` is what the member is, `address` its URL for clients, `applied` returns the last batch in
    its records, and `step` is what it does at the moment, empty if that is nothing special. The
    view is renewed every `period` seconds of `later`; `time` returns the seconds of a clock.
    """

    def __init__(
        self,
        journal: SharedJournal,
        name: str,
        cluster_name: str,
        period: float,
        time: Callable[[], float],
        later: Later,
    ) -> None:
        self.name = name
        self.role: str = STANDBY
        self.address: str = ""
        self.applied: Callable[[], int] = lambda: 0
        self.step: str = ""
        self.elections: int = 0
        self.figures: JournalFigures | None = None
        # Whether the journal grows because no snapshot is made.
        self.is_growing: bool = False
        self._journal = journal
        self._cluster_name = cluster_name
        self._period = period
        self._time = time
        self._later = later
        self._cancel: Callable[[], None] = lambda: None
        self._lease: Lease | None = None
        self._lease_read = 0.0
        self._members: list[Member] = []
        # Seconds of suspensions that have ended, and when the present one began.
        self._suspended = 0.0
        self._suspended_since: float | None = None

    # -- the view ------------------------------------------------------------------------------

    def look(self) -> None:
        """Tell the others of this member, and read what they say, now and then again."""
        self._cancel()
        self._cancel = self._later(self._period, self.look)
        member = Member(self.name, self.role, self.address, self.applied(), __version__, 0.0)
        self._journal.announce(member, lambda result: None)
        self._journal.figures(self._on_figures)
        self._journal.members(self._on_members)

    def stop(self) -> None:
        """Look no more."""
        self._cancel()

    def _on_figures(self, result: JournalFigures | Exception) -> None:
        if not isinstance(result, Exception):
            self.figures = result

    def _on_members(self, result: list[Member] | Exception) -> None:
        if not isinstance(result, Exception):
            self.take_members(result)

    def take_members(self, members: list[Member]) -> None:
        """Take the members that were read now."""
        self._members = members

    def note_growth(self, on: bool) -> None:
        """Note whether the journal grows because no snapshot is made."""
        self.is_growing = on

    def note(self, lease: Lease) -> None:
        """Take a lease that was read now."""
        self._lease = lease
        self._lease_read = self._time()

    def suspend(self) -> None:
        """Note that the leader must not write."""
        self.role = SUSPENDED
        self._suspended_since = self._time()

    def resume(self) -> None:
        """Note that a suspension has ended, if there was one."""
        if self._suspended_since is not None:
            self._suspended += self._time() - self._suspended_since
            self._suspended_since = None

    # -- what follows from it --------------------------------------------------------------------

    @property
    def term(self) -> int:
        """The term of the lease that was seen last; 0 for none."""
        return 0 if self._lease is None else self._lease.term

    @property
    def cluster(self) -> str:
        """The UUID of the cluster; empty until it is known."""
        return "" if self.figures is None else self.figures.cluster

    @property
    def lag(self) -> int:
        """The batches that the records lack, as far as it is known."""
        return 0 if self.figures is None else max(0, self.figures.last.number - self.applied())

    def address_of(self, name: str) -> str:
        """Return the URL of another member for clients; empty if it is unknown."""
        return next((each.address for each in self._members if each.name == name), "")

    def standby_reason(self) -> str:
        """Return why a standby serves nobody."""
        text = f"standby of {self._leader() or 'nobody'}, {self.lag} batches behind"
        return f"{text}; {self.step}" if self.step else text

    def refusal(self) -> Error:
        """Return the error that a client of a standby gets."""
        leader = self._leader()
        if not leader:
            return elsewhere("", "", "this broker is a standby, and knows no leader")
        assert self._lease is not None
        return elsewhere(self._lease.address, leader, f"this broker is a standby of {leader}")

    def _leader(self) -> str:
        """Return the name of the leader, if it is another member; else nothing."""
        lease = self._lease
        if lease is None or lease.holder == self.name or self._remaining(lease) <= 0:
            return ""
        return lease.holder

    def _remaining(self, lease: Lease) -> float:
        return lease.remaining - (self._time() - self._lease_read)

    def describe(self) -> dict[str, object]:
        """Return the figures of the cluster and of this member, by their public names."""
        lease, figures = self._lease, self.figures
        since = self._suspended_since
        suspended = self._suspended + (0.0 if since is None else self._time() - since)
        return {
            "cluster": self.cluster,
            "cluster-name": self._cluster_name,
            "member": self.name,
            "role": self.role,
            "term": self.term,
            "leader": "" if lease is None else lease.holder,
            "leader-address": "" if lease is None else lease.address,
            "lease-seconds": 0.0 if lease is None else round(self._remaining(lease), 3),
            "last-batch": 0 if figures is None else figures.last.number,
            "applied-batch": self.applied(),
            "lag-batches": self.lag,
            "journal-bytes": 0 if figures is None else figures.batch_bytes,
            "snapshot-bytes": 0 if figures is None else figures.snapshot_bytes,
            "journal-alarm": self.is_growing,
            "synchronous": None if figures is None else figures.synchronous,
            "elections": self.elections,
            "suspended-seconds": round(suspended, 3),
            "members": [
                {
                    "name": each.name,
                    "role": each.role,
                    "address": each.address,
                    "applied-batch": each.applied,
                    "version": each.version,
                    "seen-seconds": round(each.seen, 3),
                }
                for each in self._members
            ],
        }
