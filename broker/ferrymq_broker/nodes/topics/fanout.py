"""The fan-out: from one message to the queues of all subscriptions that want it.

Subscriptions with equal filters form a group, whose filter is asked once for each message. All
queues get the same message object, not copies, so its bytes are in memory once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.subscription import Subscription
from ferrymq_broker.slices import Slices

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.message import BrokerMessage

# The key of the group without a filter; filters have keys that are not empty.
_ALL = ""
# A message to fewer subscriptions than this counts no work; above it, so many subscriptions are one
# unit of `Slices`.
_FEW: Final = 64
_QUEUES: Final = 2


@final
class _Group:
    """The subscriptions with the same filter, and their queues in the same order."""

    __slots__ = ("filter", "members", "queues")

    def __init__(self, filter: Filter | None) -> None:
        self.filter = filter
        self.members: list[Subscription] = []
        self.queues: list[Queue] = []


@final
class Fanout:
    """The subscriptions of a topic, grouped by filter."""

    __slots__ = ("several", "_by_key", "_count", "_slices")

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        # Whether a message may go to several queues.
        self.several: bool = False
        self._by_key: dict[str, _Group] = {}
        # The number of subscriptions in all groups.
        self._count: i64 = 0

    def filters(self) -> i64:
        """Return how many filters are asked for each message; equal filters count once."""
        count: i64 = len(self._by_key)
        return count - 1 if _ALL in self._by_key else count

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, which gets messages from now on."""
        filter = subscription.filter
        key = _ALL if filter is None else filter.key
        group = self._by_key.get(key)
        if group is None:
            group = _Group(filter)
            self._by_key[key] = group
        subscription.place = len(group.members)
        group.members.append(subscription)
        group.queues.append(subscription.queue)
        self._count += 1
        self.several = self._count > 1

    def remove(self, subscription: Subscription) -> None:
        """Give the subscription no more messages."""
        filter = subscription.filter
        key = _ALL if filter is None else filter.key
        group = self._by_key[key]
        last = group.members.pop()
        group.queues.pop()
        if last is not subscription:
            place = subscription.place
            group.members[place] = last
            group.queues[place] = last.queue
            last.place = place
        if not group.members:
            del self._by_key[key]
        self._count -= 1
        self.several = self._count > 1

    def publish(self, message: BrokerMessage) -> i64:
        """Publish the message to every subscription that wants it; return how many refused it."""
        refused: i64 = 0
        if self._count > _FEW:
            self._slices.spend(self._count // _QUEUES)
        if message.durable and self.several:
            message.shared = True
        for group in self._by_key.values():
            filter = group.filter
            if filter is not None and not filter.matches(message):
                continue
            queues = group.queues
            i: i64 = 0
            while i < len(queues):
                if queues[i].publish(message) is not None:
                    group.members[i].refused += 1
                    refused += 1
                i += 1
        return refused
