"""The interface of a journal that several brokers share.

All methods return at once. They call `done` later, in the event loop, with the result or with an
error: `JournalUnavailable` if the journal cannot be reached or the result is unknown,
`ReplicationError` if a person has to mend something. Calls that append or confirm are
carried out in the order in which they were made, and so are those of the lease, and all others; no
call waits for one of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
Done: TypeAlias = Callable[[T | Exception], None]


class Position(NamedTuple):
    """The number of a batch, and the term in which it was appended; (0, 0) before the first."""

    number: int
    term: int


START: Final = Position(0, 0)
"""The position before the first batch."""


class SharedBatch(NamedTuple):
    """A batch that was read. `data` has `changes` changes in the form of `store/changes.py`;
    `committed` is the time of its commit, in seconds since the epoch, by the journal's clock."""

    number: int
    term: int
    changes: int
    data: bytes
    committed: float


class Lease(NamedTuple):
    """The lease as the journal has it. `holder` is the name of a member, "" for nobody; `address`
    is the URL for its clients. `remaining` is in seconds by the journal's clock, negative after the
    end. `successor` is the only member that may take the lease next, "" for any. `taken` is true
    only in the answer to the `acquire` that has taken the lease."""

    term: int
    holder: str
    address: str
    remaining: float
    successor: str
    taken: bool = False


STANDBY: Final = "standby"
LEADER: Final = "leader"
SUSPENDED: Final = "suspended"
# A member that has announced nothing for so many seconds does not run.
_GONE: Final = 30.0


class Member(NamedTuple):
    """A member as it last announced itself, `seen` seconds ago. `role` is one of the three above,
    `applied` the last batch in its records."""

    name: str
    role: str
    address: str
    applied: int
    version: str
    seen: float

    @property
    def runs(self) -> bool:
        """Whether the member has announced itself lately."""
        return self.seen <= _GONE


class SnapshotInfo(NamedTuple):
    """A complete snapshot: the records up to `position`, in `pieces` pieces of together `size`
    bytes. `created` is in seconds since the epoch."""

    id: int
    position: Position
    pieces: int
    size: int
    created: float


class JournalFigures(NamedTuple):
    """Figures of a journal: the `first` and the `last` batch that it has ((0, 0) if none), the
    bytes of its batches and of its snapshots, and the id of the cluster, a UUID as text.

    `synchronous` is whether a commit waits for another machine; None if that is unknown.
    """

    cluster: str
    first: Position
    last: Position
    batch_bytes: int
    snapshot_bytes: int
    synchronous: bool | None


class SharedJournal:
    """A journal with its lease, members and snapshots, of one cluster."""

    # -- batches -----------------------------------------------------------------------------

    def append(
        self, term: int, number: int, changes: int, parts: Sequence[bytes], done: Done[None]
    ) -> None:
        """Append a batch if `term` is still that of the lease, in one atomic step.

        The number follows that of the last batch. In a journal without batches it follows the
        newest complete snapshot, or is 1.

        `done` gets None when the batch is committed to the quorum, `LeaseLost` if the term is not
        that of the lease, and `JournalUnavailable` if it is unknown whether the batch was written,
        also if a batch of this number and term is there already. `ReplicationError` says that the
        number does not follow the last batch, or is that of a batch of another term.
        """
        raise NotImplementedError

    def confirm(self, term: int, number: int, done: Done[bool]) -> None:
        """Find out whether the batch `number` of this term was written by an append whose result is
        unknown. If it was, `done` gets True after the batch is committed to the quorum. Else it
        gets False: the batch may be appended again. `LeaseLost` as with `append`."""
        raise NotImplementedError

    def read(self, after: int, most: int, done: Done[list[SharedBatch]]) -> None:
        """Return the batches that follow the batch `after`, in order without gaps: as many as have
        together at most `most` bytes, but at least one if there is one.

        `done` gets `ReplicationError` if the next batch was trimmed, or if a batch is damaged.
        """
        raise NotImplementedError

    def has(self, position: Position, done: Done[bool]) -> None:
        """Return whether the journal, or a snapshot whose last batch it is, has a batch with this
        number and this term. (0, 0) is in every journal that begins with batch 1."""
        raise NotImplementedError

    def trim(self, before: int, done: Done[int]) -> None:
        """Delete the batches before this number; return how many were deleted. Neither the last
        batch nor one after the oldest complete snapshot is ever deleted."""
        raise NotImplementedError

    def figures(self, done: Done[JournalFigures]) -> None:
        """Return the figures."""
        raise NotImplementedError

    # -- the lease ---------------------------------------------------------------------------

    def observe(self, done: Done[Lease]) -> None:
        """Return the lease."""
        raise NotImplementedError

    def acquire(self, holder: str, address: str, seconds: float, done: Done[Lease]) -> None:
        """Take the lease for so many seconds, with the next term, if it has ended or has no holder,
        and `successor` is "" or this member; a successor is forgotten some seconds after the end.

        Return the lease as it is then; `taken` says whether this call has taken it. The name of the
        holder does not say that: by mistake, two members may have the same name. When it is
        returned, the step is committed to the quorum, and no batch of an older term can be appended
        any more.
        """
        raise NotImplementedError

    def renew(self, term: int, seconds: float, done: Done[Lease]) -> None:
        """Extend the lease of this term to so many seconds from now, also after its end. `done`
        gets `LeaseLost` if there is another term. A `successor` in the result asks the leader to
        hand over."""
        raise NotImplementedError

    def release(self, term: int, done: Done[None]) -> None:
        """End the lease of this term now; a successor stays named. Nothing happens with another
        term."""
        raise NotImplementedError

    def name_successor(self, name: str, done: Done[Lease]) -> None:
        """Ask the leader to hand over to this member; "" to nobody in particular."""
        raise NotImplementedError

    def fence(self, done: Done[Lease]) -> None:
        """Begin a new term without a holder: the leader can append nothing more, wherever it is."""
        raise NotImplementedError

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the lease may have changed, as far as the journal can tell. It takes
        the place of the function given before. Members look from time to time anyway."""
        raise NotImplementedError

    # -- members -----------------------------------------------------------------------------

    def announce(self, member: Member, done: Done[None]) -> None:
        """Write what a member says of itself; `seen` is ignored."""
        raise NotImplementedError

    def members(self, done: Done[list[Member]]) -> None:
        """Return the members by name, also those not seen for long."""
        raise NotImplementedError

    # -- snapshots ---------------------------------------------------------------------------

    def begin_snapshot(self, position: Position, done: Done[int]) -> None:
        """Begin a snapshot and return its id. It does not count until it is complete."""
        raise NotImplementedError

    def add_piece(self, id: int, index: int, data: bytes, done: Done[None]) -> None:
        """Add a piece to a snapshot; pieces are counted from 0."""
        raise NotImplementedError

    def finish_snapshot(self, id: int, pieces: int, size: int, done: Done[None]) -> None:
        """Make a snapshot complete; return when it is committed.

        `done` gets `ReplicationError` if pieces are missing, or if the journal does not have the
        last batch of the snapshot: its records have a batch that was lost before it was committed
        to the quorum. A journal without batches and snapshots takes any snapshot.
        """
        raise NotImplementedError

    def snapshots(self, done: Done[list[SnapshotInfo]]) -> None:
        """Return the complete snapshots, the newest first."""
        raise NotImplementedError

    def read_piece(self, id: int, index: int, done: Done[bytes]) -> None:
        """Return a piece, whose checksum was right."""
        raise NotImplementedError

    def drop_snapshot(self, id: int, done: Done[None]) -> None:
        """Delete a snapshot, complete or not."""
        raise NotImplementedError

    # -- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Close all connections. No `done` is called after that."""
        raise NotImplementedError
