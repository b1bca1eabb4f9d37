"""The subscriptions of one topic: how they are created, found and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.backpressure import BackpressureGroup
from ferrymq_broker.nodes.eviction import LinkEnd
from ferrymq_broker.nodes.narrowing import narrow
from ferrymq_broker.nodes.node import BOUNDLESS, Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.queues.sub_queues import expect_free_sub_queues
from ferrymq_broker.nodes.topics.fanout import Fanout
from ferrymq_broker.nodes.topics.persistence import SubscriptionRecords
from ferrymq_broker.nodes.topics.rules import RuleSet
from ferrymq_broker.nodes.topics.subscription import Subscription, SubscriptionOwner
from ferrymq_broker.nodes.topics.subscription_expiry import SubscriptionExpiry
from ferrymq_broker.values.names import PART
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.filters.rule import SubscriptionRule
    from ferrymq_broker.values.policy import QueuePolicy

# The most characters of a name: as many as an address may have.
MAX_NAME: Final = 1024


@final
class EndedSubscriptions(LinkEnd):
    """The counters of ended subscriptions of one topic: `totals` by public names. With them, sums
    over a topic do not fall when a subscription ends."""

    __slots__ = ("totals",)

    def __init__(self) -> None:
        super().__init__()
        self.totals: dict[str, int] = {}

    def settle(self, node: Node) -> None:
        """Add up the counters of a queue."""
        if isinstance(node, Queue):
            totals = self.totals
            for name, value in node.totals().items():
                totals[name] = totals.get(name, 0) + value


@final
class SubscriptionRegistry:
    """The subscriptions of `topic` by name; `fanout` sends messages to them, `expiry` ends those
    without links.

    `ended` has the totals of ended subscriptions, by whether they were named.
    """

    __slots__ = (
        "topic",
        "records",
        "fanout",
        "expiry",
        "ended",
        "_by_name",
        "_by_key",
        "_backpressures",
    )

    def __init__(self, topic: SubscriptionOwner) -> None:
        self.topic: SubscriptionOwner = topic
        self.records: SubscriptionRecords = SubscriptionRecords(topic)
        self.fanout: Fanout = Fanout(topic.agenda.slices)
        self.expiry: SubscriptionExpiry = SubscriptionExpiry(topic, self.records)
        self.ended: dict[bool, EndedSubscriptions] = {}
        self._by_name: dict[str, Subscription] = {}
        # Subscriptions that several links can find: kept and shared ones.
        self._by_key: dict[tuple[bool, str], Subscription] = {}
        self._backpressures = BackpressureGroup(topic)

    def __len__(self) -> int:
        return len(self._by_name)

    def all(self) -> list[Subscription]:
        """Return all subscriptions in the order of creation."""
        return list(self._by_name.values())

    def get(self, name: str) -> Subscription | None:
        """Return the subscription of a name."""
        return self._by_name.get(name)

    def find(self, key: str, kept: bool) -> Subscription | None:
        """Return the subscription with this identity; kept and other subscriptions have separate
        identities."""
        return self._by_key.get((kept, key))

    def room(self) -> i64:
        """Return the room of the fullest subscription with overflow *block*."""
        blocking: list[Node] = []
        for subscription in self._by_name.values():
            if subscription.queue.policy.overflow == "block":
                blocking.append(subscription.queue)
        return self._backpressures.room(blocking) if blocking else BOUNDLESS

    def regain_room(self) -> None:
        """Share out room that the topic no longer promises."""
        self._backpressures.regain_room()

    def add(
        self, name: str, key: str, kept: bool, filter: Filter | None, policy: QueuePolicy
    ) -> Subscription:
        """Create a subscription. Raises `BrokerError` if there are too many, or if the name is too
        long."""
        topic = self.topic
        limit = topic.policy.max_subscriptions
        if limit != 0 and len(self._by_name) >= limit:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"{topic.address!r} has {limit} subscriptions already, which is the limit; "
                "delete some first",
            )
        most = topic.space.max_nodes
        if kept and len(topic.space.durables) >= most:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"there are {most} durable subscriptions already, which is the limit of the "
                "virtual host (max_nodes)",
            )
        if len(name) > MAX_NAME:
            raise BrokerError(
                "amqp:invalid-field",
                f"the name of the subscription has {len(name)} characters; at most {MAX_NAME} "
                "are allowed",
            )
        expect_free_sub_queues(topic.space, f"{topic.address}{PART}{name}", policy)
        subscription = self.insert(name, key, kept, filter, policy)
        self.records.keep(subscription)
        subscription.queue.make_sub_queues()
        return subscription

    def insert(
        self, name: str, key: str, kept: bool, filter: Filter | None, policy: QueuePolicy
    ) -> Subscription:
        """Create a subscription without checking limits; it is not stored yet."""
        topic = self.topic
        queue = Queue(f"{topic.address}{PART}{name}", topic.space, policy)
        queue.watchers = [topic]
        subscription = Subscription(name, key, queue)
        subscription.filter = filter
        subscription.kept = kept
        self._by_name[name] = subscription
        if key:
            self._by_key[kept, key] = subscription
            if kept:
                topic.space.durables[key] = topic
        self.fanout.add(subscription)
        topic.subscription_added()
        if queue.room() != BOUNDLESS:
            # Producers of the topic may have credit beyond its new bound.
            narrow(queue)
        return subscription

    def refilter(self, subscription: Subscription, filter: Filter | None) -> None:
        """Replace the filter of a subscription: the same words mean another connection now."""
        before = subscription.filter
        if before is not None and filter is not None and before.key != filter.key:
            self.fanout.remove(subscription)
            subscription.filter = filter
            self.fanout.add(subscription)

    def add_rule(self, subscription: Subscription, rule: SubscriptionRule) -> None:
        """Add a rule. From the first one on, the subscription gets only what its rules say.

        Raises `BrokerError` if there is one of this name, or no room.
        """
        rules = subscription.rules
        if rules is None:
            rules = RuleSet()
        elif rules.get(rule.name) is not None:
            raise BrokerError(
                "amqp:not-allowed",
                f"the subscription {subscription.address[:200]!r} has a rule {rule.name!r} already",
            )
        rules.expect_room(rule, self.topic.policy.max_rules)
        if subscription.rules is None:
            self.use_rules(subscription, rules)
            self.records.put(subscription)
        rules.add(rule)
        self.records.put_rule(subscription, rule)

    def remove_rule(self, subscription: Subscription, name: str) -> None:
        """Remove a rule. A subscription without any rule left gets no messages.

        Raises `BrokerError` if there is none of this name.
        """
        rules = subscription.rules
        rule = None if rules is None else rules.get(name)
        if rules is None or rule is None:
            raise BrokerError(
                "amqp:not-found",
                f"the subscription {subscription.address[:200]!r} has no rule {name[:200]!r}",
            )
        rules.remove(rule)
        self.records.drop_rule(subscription, rule)

    def use_rules(self, subscription: Subscription, rules: RuleSet) -> None:
        """Send messages to the subscription by these rules, its first ones, from now on."""
        self.fanout.remove(subscription)
        subscription.rules = rules
        self.fanout.add(subscription)

    def drop(self, subscription: Subscription, why: str) -> None:
        """End a subscription: close its links and drop its messages."""
        if subscription.gone:
            return
        subscription.gone = True
        topic = self.topic
        self.expiry.attached(subscription)
        self.records.drop(subscription)
        self.fanout.remove(subscription)
        del self._by_name[subscription.name]
        key = subscription.key
        if key:
            del self._by_key[subscription.kept, key]
            if subscription.kept:
                topic.space.durables.pop(key, None)
        queue = subscription.queue
        if not queue.deleted:
            queue.delete(
                Error(
                    condition="amqp:resource-deleted",
                    description=f"the subscription {queue.address!r} has ended: {why}",
                )
            )
        ended = self.ended.get(subscription.named)
        if ended is None:
            ended = EndedSubscriptions()
            self.ended[subscription.named] = ended
        ended.add(queue)
        if queue.policy.overflow == "block":
            topic.grant_room()
        topic.subscription_dropped()
