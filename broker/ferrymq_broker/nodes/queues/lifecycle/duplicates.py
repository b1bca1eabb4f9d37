"""Messages that were sent twice, known by their message-id (AMQP 1.0 §3.2.4).

An id is remembered for the window, counted from its first message, and no longer than the newest
`limit` ids are: memory is bounded whatever clients send. Ids of the four types are told apart.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.facts import facts_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import Message

# Longer ids are remembered by their digests.
_LONG: Final = 64


def identity_of(message: Message) -> object:
    """What tells the message apart from all others; None if it has no message-id."""
    value = facts_of(message).message_id
    if isinstance(value, str):
        if len(value) > _LONG:
            return ("string", blake2b(value.encode("utf-8", "surrogatepass")).digest())
    elif isinstance(value, bytes) and len(value) > _LONG:
        return ("binary", blake2b(value).digest())
    return value


@final
class Duplicates:
    """The ids one queue has seen: for `window` milliseconds, `limit` of them at most."""

    __slots__ = ("window", "limit", "_seen", "_order")

    def __init__(self, window: i64, limit: i64) -> None:
        self.window: i64 = window
        self.limit: i64 = limit
        self._seen: set[object] = set()
        # When each was seen, the oldest first.
        self._order: deque[tuple[int, object]] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def knows(self, identity: object, now: i64) -> bool:
        """Whether a message of this identity came within the window."""
        self._forget(now, self.limit)
        return identity in self._seen

    def remember(self, identity: object, now: i64) -> None:
        """A message of this identity, which was not known, has been taken in."""
        if self.limit <= 0:
            return
        self._forget(now, self.limit - 1)
        self._seen.add(identity)
        self._order.append((now, identity))

    def _forget(self, now: i64, limit: i64) -> None:
        order = self._order
        oldest = now - self.window
        while order and (len(order) > limit or order[0][0] <= oldest):
            self._seen.discard(order.popleft()[1])
