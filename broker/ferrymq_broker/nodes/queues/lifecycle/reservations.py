"""Reservations: room in a queue for messages that come later.

A message of a transaction is promised acceptance before it is in the queue, and so is the response
to a request. No other message gets reserved room. A message that will replace the last message of
its key takes the room of that message, which is reserved too: if the last message leaves earlier,
its room stays reserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import BrokerMessage


@final
class _Reservation:
    """The reservation of one message: its number of messages and bytes, and perhaps the entry that
    it will replace. `times` is how often it was made."""

    __slots__ = ("count", "size", "replaced", "times")

    def __init__(self, count: i64, size: i64, replaced: Entry | None) -> None:
        self.count = count
        self.size = size
        self.replaced = replaced
        self.times: i64 = 1


@final
class Reservations:
    """The reservations of one queue. `count` and `size` are the messages and bytes that they take,
    beside the present messages."""

    __slots__ = ("count", "size", "_by_message", "_replaced")

    def __init__(self) -> None:
        self.count: i64 = 0
        self.size: i64 = 0
        self._by_message: dict[BrokerMessage, _Reservation] = {}
        # Entries that will be replaced, each with the messages that use its room.
        self._replaced: dict[Entry, dict[_Reservation, None]] = {}

    def knows(self, message: BrokerMessage) -> bool:
        """Return whether there is a reservation for the message."""
        return message in self._by_message

    def add(self, message: BrokerMessage, replaced: Entry | None) -> None:
        """Reserve room for a message, which may use the room of an entry that it will replace."""
        known = self._by_message.get(message)
        if known is not None:
            known.times += 1
            return
        count: i64 = 1
        size: i64 = len(message.payload)
        if replaced is not None:
            count = 0
            size -= i64(replaced.size)
            if size < 0:
                size = 0
        made = _Reservation(count, size, replaced)
        self._by_message[message] = made
        self.count += count
        self.size += size
        if replaced is not None:
            self._replaced.setdefault(replaced, {})[made] = None

    def drop(self, message: BrokerMessage) -> None:
        """Cancel one of the reservations of a message."""
        known = self._by_message.get(message)
        if known is None:
            return
        known.times -= 1
        if known.times > 0:
            return
        del self._by_message[message]
        self.count -= known.count
        self.size -= known.size
        replaced = known.replaced
        if replaced is not None:
            claims = self._replaced.get(replaced)
            if claims is not None:
                claims.pop(known, None)
                if not claims:
                    del self._replaced[replaced]

    def succeed(self, entry: Entry, newer: Entry) -> None:
        """Use the room of a newer entry, which has replaced the expected one."""
        claims = self._replaced.pop(entry, None)
        if claims is not None:
            for claim in claims:
                claim.replaced = newer
            self._replaced.setdefault(newer, {}).update(claims)

    def leave(self, entry: Entry) -> None:
        """Keep the room of an entry that has left for the messages that were to replace it."""
        claims = self._replaced.pop(entry, None)
        if claims is not None:
            size = i64(entry.size)
            for claim in claims:
                claim.replaced = None
                claim.count = 1
                claim.size += size
                self.count += 1
                self.size += size
