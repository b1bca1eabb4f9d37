"""Deferred messages: the policy `deferral` of a queue.

A consumer sets a message aside that it wants later: the queue keeps the message, and offers it to
nobody. A receiver takes deferred messages by their sequence numbers. A message that was deferred
once stays deferred until it leaves the queue: if it comes back, it is set aside again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import Consumer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry


@final
class DeferredMessages:
    """The deferred messages of one queue, by their sequence numbers.

    `count` is the number of those that wait; the others are held by receivers. `receiver` holds
    them in place of the links of these receivers, which took them by a request.
    """

    __slots__ = ("count", "receiver", "_entries")

    def __init__(self) -> None:
        self.count: i64 = 0
        self.receiver: Consumer = Consumer(0, False)
        self._entries: dict[int, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Add a message that waits from now on."""
        self.count += 1
        self._entries[int(entry.sequence)] = entry

    def find(self, sequence: int) -> Entry | None:
        """Return the entry with this sequence number, if it was deferred and is in the queue."""
        return self._entries.get(sequence)

    def forget(self, entry: Entry) -> None:
        """Remove a message that has left the queue."""
        self._entries.pop(int(entry.sequence), None)
