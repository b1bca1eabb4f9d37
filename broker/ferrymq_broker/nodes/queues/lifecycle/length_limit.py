"""The limits of how much a queue may hold, and what is done about a message too many.

What waits, what consumers hold and what is scheduled counts. What is held is never pushed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.node import BOUNDLESS, Refusal
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import MAX_BYTES, MAX_LENGTH
from ferrymq_broker.slices import SlicedTask, Slices, freed

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle
    from ferrymq_broker.values.policy import QueuePolicy

# What is done about a message too many, as plain numbers.
_REJECT: Final = 0
_DROP_HEAD: Final = 1
_DEAD_LETTER: Final = 2
_BLOCK: Final = 3
_OVERFLOWS: Final[dict[str, int]] = {
    "reject": _REJECT,
    "drop-head": _DROP_HEAD,
    "dead-letter": _DEAD_LETTER,
    "block": _BLOCK,
}
# The size of a message, for a queue that has none to judge by.
_TYPICAL: Final = 1024


@final
class LengthTrim(SlicedTask):
    """The task that pushes out what a queue has above its bounds, which are narrower than they
    were."""

    __slots__ = ("_lifecycle",)

    def __init__(self, lifecycle: MessageLifecycle) -> None:
        super().__init__()
        self._lifecycle = lifecycle

    def go_on(self, slices: Slices) -> bool:
        """Push out as many as the slice allows."""
        return self._lifecycle.keep_bounds()


@final
class LengthLimit:
    """The bounds of one queue, as its policy has them; 0 for a bound it has not."""

    __slots__ = ("_lifecycle", "_max_length", "_max_bytes", "_overflow")

    def __init__(self, lifecycle: MessageLifecycle, policy: QueuePolicy) -> None:
        self._lifecycle = lifecycle
        self._max_length: i64 = policy.max_length
        self._max_bytes: i64 = policy.max_bytes
        self._overflow: i64 = _OVERFLOWS[policy.overflow]

    def room(self) -> i64:
        """Return how many more messages get in, for `Node.room`.

        Only a queue that blocks runs out of room. How many messages `max_bytes` have room for is
        estimated by those there are.
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
        return result if result > 0 else 0

    def find_room(
        self, message: BrokerMessage, scheduled: bool, replaced: Entry | None
    ) -> Refusal | None:
        """Why there is no room for the message; it may be `scheduled`, or come for another."""
        overflow = self._overflow
        size: i64 = len(message.payload)
        if self._max_bytes > 0 and size > self._max_bytes:
            return self._full(MAX_BYTES, f"of {self._max_bytes} bytes for a message of {size}")
        if overflow == _BLOCK and message.origin != 0:
            # The sender had credit, which is a promise.
            return None
        count: i64 = 1
        if overflow == _BLOCK:
            # It comes from the broker itself, a dead letter: nobody has promised it anything.
            lifecycle = self._lifecycle
            return self._exceeded(1 + lifecycle.reserved, size + lifecycle.reserved_bytes)
        if overflow != _REJECT:
            if not scheduled:
                # There will be room as soon as it is in the queue.
                return None
            self._drop_heads(count, size)
        elif replaced is not None:
            count = 0
            size -= i64(replaced.size)
        if overflow == _REJECT:
            # What transactions have been promised nobody else gets.
            count += self._lifecycle.reserved
            size += self._lifecycle.reserved_bytes
        return self._exceeded(count, size)

    def foresee_room(
        self, message: BrokerMessage, scheduled: bool, replaced: Entry | None
    ) -> Refusal | None:
        """Why there would be no room for a message that is to come; nothing is pushed out now."""
        if self._overflow == _REJECT:
            return self.find_room(message, scheduled, replaced)
        size: i64 = len(message.payload)
        if self._max_bytes > 0 and size > self._max_bytes:
            return self._full(MAX_BYTES, f"of {self._max_bytes} bytes for a message of {size}")
        if self._overflow == _BLOCK or not scheduled:
            return None
        # Only what is available can be pushed out for it, and none of that is counted on.
        lifecycle = self._lifecycle
        return self._exceeded(1 + lifecycle.reserved, size + lifecycle.reserved_bytes)

    def _exceeded(self, count: i64, size: i64) -> Refusal | None:
        """Return the bound that so many messages of so many bytes more would break."""
        if self._max_length > 0 and self._count() + count > self._max_length:
            return self._full(MAX_LENGTH, f"of {self._max_length} messages")
        if self._max_bytes > 0 and self._size() + size > self._max_bytes:
            return self._full(MAX_BYTES, f"of {self._max_bytes} bytes")
        return None

    def keep(self) -> bool:
        """Drop the oldest messages until the bounds are kept, if that is the policy.

        One goes at least, the others as far as the slice allows. Return whether that is all.
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
        """Make room for so many messages of so many bytes, as far as that is possible."""
        while self._drop_one_head(count, size) >= 0:
            pass

    def _drop_one_head(self, count: i64, size: i64) -> i64:
        """Drop the oldest message if there is no room for so much more. Return how many bytes it
        had, -1 if none went."""
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
        """Return the bound that so many more messages of so many bytes would break, or empty."""
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
        return entries.available + entries.acquired + self._lifecycle.scheduled()

    def _size(self) -> i64:
        return self._lifecycle.entries.bytes + self._lifecycle.scheduled_bytes()

    def _full(self, reason: str, what: str) -> Refusal:
        address = self._lifecycle.node.address
        return Refusal(
            "amqp:resource-limit-exceeded",
            f"the queue {address[:200]!r} has no room: its limit is {reason} {what}",
            info={"queue": address, "reason": reason},
        )
