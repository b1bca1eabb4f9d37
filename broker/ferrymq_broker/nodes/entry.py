"""A message's place in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i32, i64, u8

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.groups import Group

# Plain numbers: members of an Enum are slow to reach for every message.
AVAILABLE: Final = 0
ACQUIRED: Final = 1
REMOVED: Final = 2
# Its message cannot be read from disk: it stays where it is, and nobody gets it.
DAMAGED: Final = 3
# No message, but the place of a run of messages that are on disk (`queues/disk_runs.py`).
RUN: Final = 4

# Where the level of priority lies in a rank, and the highest there is.
LEVEL_SHIFT: Final = 56
TOP_LEVEL: Final = 9
# What of a rank is the sequence.
_SEQUENCE: Final = (1 << LEVEL_SHIFT) - 1


@final
class Entry:
    """The place of one message in one queue, in the states of AMQP 1.0 §3.3.

    Entries of one priority form a list in order of publication, `prev` and `next`; those a consumer
    holds form another, `held_prev` and `held_next`. `sequence` grows by one with every publication;
    of two entries the one of the lower `rank` goes first. `attempts` counts acquisitions,
    `failures` those that ended as failed deliveries. `expires` is the deadline (`Agenda`) at which
    the message's time is over, 0 for never; `expires_too` is the one by the other clock, if it has
    both. `excluded` has the ids of the consumers that must not get the message (again). `group` is
    that of the message, where the queue goes by groups. `stored` is whether the entry has a record.
    `size` is that of the message's payload, wherever it is: a message that has another was left on
    disk (`nodes/paging`).
    """

    __slots__ = (
        "message",
        "rank",
        "state",
        "stored",
        "attempts",
        "failures",
        "size",
        "expires",
        "expires_too",
        "excluded",
        "group",
        "prev",
        "next",
        "held_prev",
        "held_next",
    )

    def __init__(self, message: BrokerMessage, sequence: i64, level: i64 = 4) -> None:
        self.message = message
        self.rank: i64 = ((TOP_LEVEL - level) << LEVEL_SHIFT) | sequence
        self.state: u8 = AVAILABLE
        self.stored = False
        self.attempts: i32 = 0
        self.failures: i32 = 0
        self.size: i32 = 0
        self.expires: i64 = 0
        self.expires_too: i64 = 0
        self.excluded: set[int] | None = None
        self.group: Group | None = None
        self.prev: Entry | None = None
        self.next: Entry | None = None
        self.held_prev: Entry | None = None
        self.held_next: Entry | None = None

    @property
    def sequence(self) -> i64:
        """Its number among all that were published to the queue, or its offset in a stream."""
        return self.rank & _SEQUENCE

    @property
    def level(self) -> i64:
        """The level of priority it has in its queue, 0 to 9."""
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
        """By identity. A compiled class with an order has no hash of its own."""
        return id(self) >> 4

    def __lt__(self, other: Entry) -> bool:
        """False: in heaps, where entries lie behind their numbers, none of the same goes first."""
        return False

    def is_out(self) -> bool:
        """Return whether the message has been left on disk."""
        return len(self.message.payload) != i64(self.size)
