"""The length limit of a queue, and what happens to messages above it.

Available messages, held messages and scheduled messages count. Held messages are never dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.node import BOUNDLESS, Refusal
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import MAX_BYTES, MAX_LENGTH
from ferrymq_broker.nodes.queues.lifecycle.target_latency import TargetLatency
from ferrymq_broker.slices import SlicedTask, Slices, freed

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle
    from ferrymq_broker.values.policy import QueuePolicy

# The overflow policies as plain numbers.
_REJECT: Final = 0
_DROP_HEAD: Final = 1
_DEAD_LETTER: Final = 2
_BLOCK: Final = 3
_OVERFLOWS: Final[dict[str, int]] = {
    "reject": _REJECT,
    "drop-head": _DROP_HEAD,
    "dead-letter": _DEAD_LETTER,
    "block": _BLOCK,
    "reject-dead-letter": _REJECT,
}
# The assumed size of a message, for an empty queue.
_TYPICAL: Final = 1024


@final
class LengthTrim(SlicedTask):
    """The task that drops messages of a queue above its limits, after the limits were lowered."""

    __slots__ = ("_lifecycle",)

    def __init__(self, lifecycle: MessageLifecycle) -> None:
        super().__init__()
        self._lifecycle = lifecycle

    def go_on(self, slices: Slices) -> bool:
        """Drop messages, as far as the slice allows."""
        return self._lifecycle.keep_bounds()


@final
class LengthLimit:
    """The limits of one queue by its policy; 0 for no limit. `buries` is whether a message that is
    refused becomes a dead letter."""

    __slots__ = (
        "buries",
        "_lifecycle",
        "_max_length",
        "_max_bytes",
        "_overflow",
        "_target_latency",
    )

    def __init__(self, lifecycle: MessageLifecycle, policy: QueuePolicy) -> None:
        self._lifecycle = lifecycle
        self._max_length: i64 = policy.max_length
        self._max_bytes: i64 = policy.max_bytes
        self._overflow: i64 = _OVERFLOWS[policy.overflow]
        self.buries: bool = policy.overflow == "reject-dead-letter"
        self._target_latency: TargetLatency | None = None
        if policy.target_latency > 0:
            self._target_latency = TargetLatency(
                policy.target_latency, lifecycle.node.agenda.now, _taken(lifecycle.entries)
            )

    def room(self) -> i64:
        """Return how many more messages fit, for `Node.room`.

        Only a queue with overflow *block* runs out of room. The number of messages that fit into
        `max_bytes` is estimated from the average size.
        """
        if self._overflow != _BLOCK:
            return BOUNDLESS
        count = self._count()
        result: i64 = BOUNDLESS
        if self._max_length > 0:
            result = self._max_length - count
        if self._max_bytes > 0:
            size = self._size()
            free = self._max_bytes - size
            if free > 0:
                typical = (size + count - 1) // count if count > 0 else _TYPICAL
                free = free // typical
                if free == 0 and count == 0:
                    free = 1
            if free < result:
                result = free
        target = self._target_latency
        if target is not None:
            node = self._lifecycle.node
            entries = self._lifecycle.entries
            waiting = entries.available
            length = target.length(node.agenda.now, waiting, node.pledged(), _taken(entries))
            if length - waiting < result:
                result = length - waiting
        return result if result > 0 else 0

    def find_room(
        self, message: BrokerMessage, scheduled: bool, replaced: Entry | None
    ) -> Refusal | None:
        """Return None if there is room for the message, else the reason; make room if the policy
        says so. The message may be `scheduled`, or it may replace an entry."""
        overflow = self._overflow
        size: i64 = len(message.payload)
        if self._max_bytes > 0 and size > self._max_bytes:
            return self._full(MAX_BYTES, f"of {self._max_bytes} bytes for a message of {size}")
        if overflow == _BLOCK and message.origin != 0:
            # The sender had credit, and credit is a promise.
            return None
        count: i64 = 1
        if overflow == _BLOCK:
            # The message comes from the broker itself (a dead letter), which has no credit.
            lifecycle = self._lifecycle
            return self._exceeded(1 + lifecycle.reserved, size + lifecycle.reserved_bytes)
        if overflow != _REJECT:
            if not scheduled:
                # Room is made when the message is in the queue.
                return None
            self._drop_heads(count, size)
        elif replaced is not None:
            count = 0
            size -= i64(replaced.size)
        if overflow == _REJECT:
            # Room that is reserved for transactions is not available to other messages.
            count += self._lifecycle.reserved
            size += self._lifecycle.reserved_bytes
        return self._exceeded(count, size)

    def foresee_room(
        self, message: BrokerMessage, scheduled: bool, replaced: Entry | None
    ) -> Refusal | None:
        """Return None if there will be room for a message that comes later, else the reason;
        nothing is dropped now."""
        if self._overflow == _REJECT:
            return self.find_room(message, scheduled, replaced)
        size: i64 = len(message.payload)
        if self._max_bytes > 0 and size > self._max_bytes:
            return self._full(MAX_BYTES, f"of {self._max_bytes} bytes for a message of {size}")
        if self._overflow == _BLOCK or not scheduled:
            return None
        # Room that could be made later by dropping messages does not count.
        lifecycle = self._lifecycle
        return self._exceeded(1 + lifecycle.reserved, size + lifecycle.reserved_bytes)

    def _exceeded(self, count: i64, size: i64) -> Refusal | None:
        """Return the refusal if `count` more messages of `size` bytes break a limit."""
        if self._max_length > 0 and self._count() + count > self._max_length:
            return self._full(MAX_LENGTH, f"of {self._max_length} messages")
        if self._max_bytes > 0 and self._size() + size > self._max_bytes:
            return self._full(MAX_BYTES, f"of {self._max_bytes} bytes")
        return None

    def keep(self) -> bool:
        """Drop the oldest messages until the limits are kept, if that is the policy.

        At least one message is dropped, the others as far as the slice allows. Return whether the
        limits are kept.
        """
        if self._overflow == _REJECT or self._overflow == _BLOCK:
            return True
        slices = self._lifecycle.node.agenda.slices
        if self._drop_one_head(0, 0) >= 0:
            while not slices.is_spent():
                size = self._drop_one_head(0, 0)
                if size < 0:
                    return True
                slices.spend(freed(size))
            return self._broken(0, 0) == ""
        return True

    def _drop_heads(self, count: i64, size: i64) -> None:
        """Make room for `count` messages of `size` bytes, as far as possible."""
        while self._drop_one_head(count, size) >= 0:
            pass

    def _drop_one_head(self, count: i64, size: i64) -> i64:
        """Drop the oldest message if there is no room for `count` messages of `size` bytes. Return
        its size in bytes, -1 if none was dropped."""
        reason = self._broken(count, size)
        if not reason:
            return -1
        entry = self._lifecycle.entries.first_available()
        if entry is None:
            return -1
        bytes = i64(entry.size)
        self._lifecycle.drop_head(entry, reason, self._overflow == _DEAD_LETTER)
        return bytes

    def _broken(self, count: i64, size: i64) -> str:
        """Return the name of the limit that `count` more messages of `size` bytes would break, or
        empty."""
        if self._max_length > 0 and self._count() + count > self._max_length:
            return MAX_LENGTH
        if self._max_bytes > 0 and self._size() + size > self._max_bytes:
            return MAX_BYTES
        return ""

    def excess(self) -> i64:
        """Return how many messages there are above `max_length`."""
        excess = self._count() - self._max_length if self._max_length > 0 else 0
        return excess if excess > 0 else 0

    def excess_bytes(self) -> i64:
        """Return how many bytes of messages there are above `max_bytes`."""
        excess = self._size() - self._max_bytes if self._max_bytes > 0 else 0
        return excess if excess > 0 else 0

    def _count(self) -> i64:
        entries = self._lifecycle.entries
        deferred = entries.deferred
        count = entries.available + entries.acquired + self._lifecycle.scheduled()
        return count if deferred is None else count + deferred.count

    def _size(self) -> i64:
        return self._lifecycle.entries.bytes + self._lifecycle.scheduled_bytes()

    def _full(self, reason: str, what: str) -> Refusal:
        address = self._lifecycle.node.address
        return Refusal(
            "amqp:resource-limit-exceeded",
            f"the queue {address[:200]!r} has no room: its limit is {reason} {what}",
            info={"queue": address, "reason": reason},
        )


def _taken(entries: QueueEntries) -> i64:
    """Return how many messages do not wait any more."""
    return entries.published - entries.available
