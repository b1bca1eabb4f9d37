"""A message's place in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import Message

# Plain numbers: members of an Enum are slow to reach for every message.
AVAILABLE: Final = 0
ACQUIRED: Final = 1
REMOVED: Final = 2


@final
class Entry:
    """One message in one queue, in the states of AMQP 1.0 §3.3.

    Entries form a list in order of publication, `prev` and `next`; those a consumer holds form
    another, `held_prev` and `held_next`. `sequence` grows by one with every publication. `attempts`
    counts acquisitions, `failures` those that ended as failed deliveries. `expires` is when the
    message's time is over, in milliseconds since the epoch, 0 for never. `excluded` has the ids of
    the consumers that must not get the message (again).
    """

    __slots__ = (
        "message",
        "sequence",
        "state",
        "attempts",
        "failures",
        "expires",
        "excluded",
        "prev",
        "next",
        "held_prev",
        "held_next",
    )

    def __init__(self, message: Message, sequence: i64) -> None:
        self.message = message
        self.sequence: i64 = sequence
        self.state: i64 = AVAILABLE
        self.attempts: i64 = 0
        self.failures: i64 = 0
        self.expires: i64 = 0
        self.excluded: set[int] | None = None
        self.prev: Entry | None = None
        self.next: Entry | None = None
        self.held_prev: Entry | None = None
        self.held_next: Entry | None = None

    def exclude(self, consumer_id: i64) -> None:
        """Never offer the message to this consumer again."""
        excluded = self.excluded
        if excluded is None:
            self.excluded = {consumer_id}
        else:
            excluded.add(consumer_id)

    def payload(self) -> bytes:
        """What to send in the next delivery."""
        if self.attempts == 0:
            return self.message.payload
        return self.message.redelivery(self.failures)
