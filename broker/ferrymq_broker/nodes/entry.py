"""The entry: the place of a message in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i32, i64, u8

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.groups import Group
    from ferrymq_broker.nodes.queues.sessions import QueueSession

# Plain numbers, because access to members of an Enum is slow and needed for every message.
AVAILABLE: Final = 0
ACQUIRED: Final = 1
REMOVED: Final = 2
# The message cannot be read from disk: the entry stays where it is, and no consumer gets it.
DAMAGED: Final = 3
# Not a message, but the place of a run of messages on disk (`queues/disk_runs.py`).
RUN: Final = 4

# The message was set aside; a receiver takes it by its sequence (`queues/deferred.py`).
DEFERRED: Final = 5

# The bit position of the priority level in a rank, and the highest level.
LEVEL_SHIFT: Final = 56
TOP_LEVEL: Final = 9
# The bits of a rank that are the sequence.
_SEQUENCE: Final = (1 << LEVEL_SHIFT) - 1


@final
class Entry:
    """The place of one message in one queue; its states are those of AMQP 1.0 §3.3.

    Entries of one priority form a list in order of publication (`prev`, `next`); the entries that a
    consumer holds form another list (`held_prev`, `held_next`). `sequence` grows by one with every
    publication; the entry with the lower `rank` is delivered first. `attempts` counts acquisitions,
    `failures` counts failed deliveries. `expires` is the deadline (`Agenda`) of the message, 0 for
    never; if the message has a deadline by each clock, `expires_too` is the other one. `excluded`
    has the ids of consumers that must not get the message (again). `group` is the message group, if
    the queue uses groups, `session` the session, if the queue has sessions. `lock` is that of a
    locked message: what its holder knows it by, the delivery or a `MessageLock` (`queues/locks`);
    `lock_deadline` is when the lock lapses, by `Agenda.now`, 0 for never. `enlisted` is whether a
    transaction decides on the message. `deferred` is whether the message was set aside, even while
    a receiver holds it (again). `stored` is whether the entry has a
    record. `size` is the size of the message's payload, in memory or on disk: if the message in
    memory has another size, the payload is on disk (`nodes/paging`).
    """

    __slots__ = (
        "message",
        "rank",
        "state",
        "stored",
        "deferred",
        "enlisted",
        "attempts",
        "failures",
        "size",
        "expires",
        "expires_too",
        "excluded",
        "group",
        "lock",
        "lock_deadline",
        "session",
        "prev",
        "next",
        "held_prev",
        "held_next",
    )

    def __init__(self, message: BrokerMessage, sequence: i64, level: i64 = 4) -> None:
        self.message: BrokerMessage = message
        self.rank: i64 = ((TOP_LEVEL - level) << LEVEL_SHIFT) | sequence
        self.state: u8 = AVAILABLE
        self.stored: bool = False
        self.deferred: bool = False
        self.enlisted: bool = False
        self.attempts: i32 = 0
        self.failures: i32 = 0
        self.size: i32 = 0
        self.expires: i64 = 0
        self.expires_too: i64 = 0
        self.excluded: set[int] | None = None
        self.group: Group | None = None
        self.lock: object = None
        self.lock_deadline: i64 = 0
        self.session: QueueSession | None = None
        self.prev: Entry | None = None
        self.next: Entry | None = None
        self.held_prev: Entry | None = None
        self.held_next: Entry | None = None

    @property
    def sequence(self) -> i64:
        """The number of the message among all that were published to the queue, or its offset in a
        stream."""
        return self.rank & _SEQUENCE

    @property
    def level(self) -> i64:
        """The priority level of the entry in its queue, 0 to 9."""
        return TOP_LEVEL - (self.rank >> LEVEL_SHIFT)

    def renumber(self, sequence: i64) -> None:
        """Make the entry stand for another message of its level."""
        self.rank = (self.rank & ~_SEQUENCE) | sequence

    def exclude(self, consumer_id: i64) -> None:
        """Never offer the message to this consumer again."""
        excluded = self.excluded
        if excluded is None:
            self.excluded = {consumer_id}
        else:
            excluded.add(consumer_id)

    def __hash__(self) -> int:
        """Return the identity hash. A compiled class that defines an order has no hash of its
        own."""
        return id(self) >> 4

    def __lt__(self, other: Entry) -> bool:
        """Return false: in heaps, where numbers come before entries, no two entries are in
        order."""
        return False

    def is_out(self) -> bool:
        """Return whether the payload of the message is on disk only."""
        return len(self.message.payload) != i64(self.size)
