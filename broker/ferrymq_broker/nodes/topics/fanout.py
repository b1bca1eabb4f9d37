"""The fan-out: from one message to the queues of all subscriptions that want it.

Subscriptions with equal filters form a group, whose filter is asked once for each message. All
queues get the same message object, not copies, so its bytes are in memory once. Only the actions of
rules make copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.message_view import view_of
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
# The most bytes of the copies of one message in one subscription, unless there is only one copy.
MAX_COPIED: Final = 64 * 1024 * 1024
# This many comparisons of rules are one unit of `Slices`. A changed copy counts as so many
# comparisons, and 2**12 bytes of it as one.
_COMPARISONS: Final = 4
_COPY: Final = 40
_COPIED_SHIFT: Final = 12
# Up to this number of bytes, the sections before the body add nothing to the cost.
_SHORT: Final = 512


@final
class _Group:
    """The subscriptions with the same filter, and their queues in the same order. `ruled` are those
    with rules."""

    __slots__ = ("filter", "members", "queues", "ruled")

    def __init__(self, filter: Filter | None) -> None:
        self.filter = filter
        self.members: list[Subscription] = []
        self.queues: list[Queue] = []
        self.ruled: dict[Subscription, None] = {}


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
        if subscription.rules is not None:
            group.ruled[subscription] = None
        else:
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
        if subscription in group.ruled:
            del group.ruled[subscription]
        else:
            last = group.members.pop()
            group.queues.pop()
            if last is not subscription:
                place = subscription.place
                group.members[place] = last
                group.queues[place] = last.queue
                last.place = place
        if not group.members and not group.ruled:
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
            if group.ruled:
                refused += self._publish_by_rules(group, message)
        return refused

    def _publish_by_rules(self, group: _Group, message: BrokerMessage) -> i64:
        """Publish the message to subscriptions with rules; return how often it was refused."""
        refused: i64 = 0
        work: i64 = 0
        for subscription in group.ruled:
            rules = subscription.rules
            if rules is None:
                continue
            work += rules.work()
            queue = subscription.queue
            if rules.passes(message) and queue.publish(message) is not None:
                subscription.refused += 1
                refused += 1
            copied: i64 = 0
            for action in rules.actions(message):
                size: i64 = len(message.payload)
                if copied > 0 and copied + size > MAX_COPIED:
                    subscription.refused += 1
                    refused += 1
                    continue
                copied += size
                work += _COPY + (size >> _COPIED_SHIFT)
                if queue.publish(action.apply(message)) is not None:
                    subscription.refused += 1
                    refused += 1
        if work > _FEW:
            # A message with long properties costs more, as `Filter.price` says.
            large: i64 = 1 + view_of(message).head_size // _SHORT
            self._slices.spend(work * large // _COMPARISONS)
        return refused
