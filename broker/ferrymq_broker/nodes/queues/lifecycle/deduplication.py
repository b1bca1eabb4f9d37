"""Deduplication: messages that are sent twice are known by their message-id (AMQP 1.0 §3.2.4).

An id is remembered for the window, counted from its first message, and only while it is among the
newest `limit` ids, so that memory is bounded. Ids of the four types are different ids.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.nodes.queues.persistence import QueueRecords

# An id longer than this is remembered by its digest.
_LONG: Final = 64


def identity_of(message: BrokerMessage) -> object:
    """Return the identity of the message; None if it has no message-id."""
    value = view_of(message).message_id
    if isinstance(value, str):
        if len(value) > _LONG:
            return ("string", blake2b(value.encode("utf-8", "surrogatepass")).digest())
    elif isinstance(value, bytes) and len(value) > _LONG:
        return ("binary", blake2b(value).digest())
    return value


@final
class DuplicateDetection:
    """The ids that one queue or topic has seen in the last `window` milliseconds, at most `limit`
    of them.

    The ids of stored messages are stored with them.
    """

    __slots__ = ("window", "limit", "_records", "_seen", "_order", "_last")

    def __init__(self, records: QueueRecords, window: i64, limit: i64) -> None:
        self._records = records
        self.window: i64 = window
        self.limit: i64 = limit
        self._seen: set[object] = set()
        # When each id was seen, the oldest first, and the number of its record, 0 without one.
        self._order: deque[tuple[int, object, int]] = deque()
        self._last: i64 = 0

    def __len__(self) -> int:
        return len(self._order)

    def knows(self, identity: object, now: i64) -> bool:
        """Return whether a message with this identity came within the window."""
        self._forget(now, self.limit)
        return identity in self._seen

    def remember(self, identity: object, agenda: Agenda, stored: bool) -> None:
        """Remember the new identity of a message that has been admitted."""
        if self.limit <= 0:
            return
        now = agenda.now
        self._forget(now, self.limit - 1)
        number: i64 = 0
        if stored:
            self._last += 1
            number = self._last
            self._records.put_identity(number, agenda.wall, identity)
        self._seen.add(identity)
        self._order.append((now, identity, number))

    def retract(self, identity: object) -> None:
        """Forget the identity that was remembered last: its message was not taken in after all."""
        if self._order and self._order[-1][1] == identity:
            _, _, number = self._order.pop()
            self._seen.discard(identity)
            if number != 0:
                self._records.drop_identity(number)

    def restore(self, number: i64, time: i64, identity: object) -> None:
        """Restore an identity of the moment `time`; the oldest first."""
        self._last = number
        self._seen.add(identity)
        self._order.append((time, identity, number))

    def close(self) -> None:
        """Forget all identities."""
        self._forget(0, 0)

    def _forget(self, now: i64, limit: i64) -> None:
        order = self._order
        oldest = now - self.window
        while order and (len(order) > limit or order[0][0] <= oldest):
            _, identity, number = order.popleft()
            self._seen.discard(identity)
            if number != 0:
                self._records.drop_identity(number)
