"""Subscriptions in the store.

Kept subscriptions of stored topics are stored. Other subscriptions end with their links, or with
the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.nodes.stored_policy import policy_fields
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.tables import RULE, SUBSCRIPTION

if TYPE_CHECKING:
    from ferrymq_broker.filters.rule import SubscriptionRule
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.topics.subscription import Subscription


@final
class SubscriptionRecords:
    """The records of the subscriptions of `topic`."""

    __slots__ = ("topic",)

    def __init__(self, topic: Node) -> None:
        self.topic: Node = topic

    def keep(self, subscription: Subscription) -> None:
        """Store a new subscription from now on, if it is kept."""
        topic = self.topic
        queue = subscription.queue
        if topic.store_id != 0 and subscription.kept and queue.policy.durable:
            queue.store_id = topic.agenda.changes.new_id()
            subscription.store_id = queue.store_id

    def put(self, subscription: Subscription) -> None:
        """Store the present state of the subscription, if it is stored."""
        topic = self.topic
        if subscription.store_id == 0 or topic.store_id == 0:
            return
        fields: dict[str, object] = {
            "name": subscription.name,
            "key": subscription.key,
            "declared": subscription.declared,
            "shared": subscription.shared,
            "everywhere": subscription.everywhere,
            "container": subscription.container,
            "user": subscription.user,
            "link-name": subscription.link_name,
            "expiry-policy": subscription.expiry_policy,
            "timeout": int(subscription.timeout),
            "idle-since": int(subscription.idle_since),
            "filters": subscription.filters,
            "ruled": subscription.rules is not None,
            "policy": policy_fields(subscription.queue.policy),
        }
        fields.update(subscription.queue.describe_stored())
        topic.agenda.changes.put(
            SUBSCRIPTION, topic.store_id, subscription.store_id, encode_map(fields)
        )

    def put_rule(self, subscription: Subscription, rule: SubscriptionRule) -> None:
        """Store a new rule, if the subscription is stored."""
        subscription.rule_number += 1
        rule.number = subscription.rule_number
        if subscription.store_id != 0 and self.topic.store_id != 0:
            self.topic.agenda.changes.put(
                RULE, subscription.store_id, rule.number, encode_map(rule.describe())
            )

    def drop_rule(self, subscription: Subscription, rule: SubscriptionRule) -> None:
        """Drop the record of a rule."""
        if subscription.store_id != 0 and self.topic.store_id != 0:
            self.topic.agenda.changes.drop(RULE, subscription.store_id, rule.number)

    def drop_rules(self, subscription: Subscription) -> None:
        """Drop the records of all rules of a subscription that ends."""
        if subscription.rules is not None and subscription.store_id != 0:
            self.topic.agenda.changes.drop_range(RULE, subscription.store_id, 0, LAST)

    def drop(self, subscription: Subscription) -> None:
        """Drop the record of a subscription that has ended; its queue drops its own records."""
        topic = self.topic
        self.drop_rules(subscription)
        if subscription.store_id != 0:
            if topic.store_id != 0:
                topic.agenda.changes.drop(SUBSCRIPTION, topic.store_id, subscription.store_id)
            subscription.store_id = 0
