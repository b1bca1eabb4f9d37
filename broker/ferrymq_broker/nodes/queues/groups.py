"""Message groups: messages of one group-id (AMQP 1.0 §3.2.4) go to one consumer, in order.

A group belongs to the consumer that got its first message, until that consumer leaves or the queue
has no more messages of the group. Messages that reach the front in the turn of another consumer
wait in a heap for their own consumer, so that other groups go on.

If the consumer must not get a message any more (undeliverable-here, too large), it loses the group.
If no consumer can take the message now, the rest of the group waits behind it.

A consumer may leave while a transaction, or a source that outlives its link, still holds messages
of its group. These messages may come back, so the group waits until they are back or settled.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, Entry
from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer

# The number of outdated entries that a list may have before it is checked for too many.
_SLACK: Final = 64


@final
class Group:
    """A message group: `count` of its messages are in the queue, and `consumer` gets them.

    `waiting` has the messages that were passed over, for the consumer or because of `blockers`: a
    heap of messages that no consumer could take. `left` has messages that are still held for a
    consumer that has left, None if there are none.
    """

    __slots__ = ("id", "count", "consumer", "waiting", "blockers", "left")

    def __init__(self, id: str) -> None:
        self.id: str = id
        self.count: i64 = 0
        self.consumer: Consumer | None = None
        self.waiting: list[Entry] = []
        self.blockers: list[tuple[int, Entry]] = []
        self.left: set[Entry] | None = None

    def blocks(self, entry: Entry) -> bool:
        """Return whether an older message of the group must be taken, or settled, first."""
        if self.left is not None:
            return True
        blockers = self.blockers
        while blockers and blockers[0][1].state != AVAILABLE:
            heappop(blockers)
        return bool(blockers) and blockers[0][1].rank < entry.rank

    def block(self, entry: Entry) -> None:
        """Block the group behind this message, which no consumer could take."""
        heappush(self.blockers, (entry.rank, entry))

    def leave_behind(self, entry: Entry) -> None:
        """Add a message that is still held though the consumer of the group leaves."""
        left = self.left
        if left is None:
            self.left = {entry}
        else:
            left.add(entry)

    def settle(self, entry: Entry) -> bool:
        """Remove a settled message from those left behind; return whether it was the last."""
        left = self.left
        if left is None or entry not in left:
            return False
        left.remove(entry)
        if left:
            return False
        self.left = None
        return True

    def wait(self, entry: Entry) -> None:
        """Add a message that was passed over."""
        waiting = self.waiting
        waiting.append(entry)
        if len(waiting) > _SLACK and len(waiting) > 2 * self.count:
            self.waiting = list(dict.fromkeys(self.take_waiting()))

    def take_waiting(self) -> list[Entry]:
        """Return the messages that were passed over and are still in the queue, to offer them
        again."""
        waiting = self.waiting
        self.waiting = []
        return [entry for entry in waiting if entry.state == AVAILABLE]


@final
class Groups:
    """The groups of one queue."""

    __slots__ = ("_groups", "_owned")

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._owned: dict[int, dict[str, Group]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, entry: Entry) -> None:
        """Add a new message of the queue to its group."""
        id = view_of(entry.message).group_id
        if id is None:
            return
        group = self._groups.get(id)
        if group is None:
            group = Group(id)
            self._groups[id] = group
        group.count += 1
        entry.group = group

    def leave(self, group: Group) -> None:
        """Count out a message of the group that has left the queue."""
        group.count -= 1
        if group.count == 0:
            self.release(group)
            del self._groups[group.id]

    def give(self, group: Group, consumer: Consumer) -> None:
        """Give the group to the consumer."""
        group.consumer = consumer
        owned = self._owned.get(consumer.id)
        if owned is None:
            owned = {}
            self._owned[consumer.id] = owned
        owned[group.id] = group

    def release(self, group: Group) -> None:
        """Take the group from its consumer."""
        consumer = group.consumer
        if consumer is not None:
            group.consumer = None
            owned = self._owned.get(consumer.id)
            if owned is not None:
                owned.pop(group.id, None)
                if not owned:
                    del self._owned[consumer.id]

    def owned_by(self, consumer: Consumer) -> list[Group]:
        """Return the groups that belong to the consumer."""
        owned = self._owned.get(consumer.id)
        return [] if owned is None else list(owned.values())
