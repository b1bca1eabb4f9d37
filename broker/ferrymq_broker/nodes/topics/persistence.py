"""Subscriptions as the store has them.

Stored are those that are kept, of topics that are stored; the others end with their links, and
these with the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.nodes.stored_policy import policy_fields
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.tables import SUBSCRIPTION

if TYPE_CHECKING:
    from ferrymq_broker.nodes.topics.subscription import Subscription
    from ferrymq_broker.nodes.topics.topic import Topic


def keep_subscription(topic: Topic, subscription: Subscription) -> None:
    """A subscription has been made; it is stored from now on, if it is one of these."""
    queue = subscription.queue
    if topic.store_id != 0 and subscription.kept and queue.policy.durable:
        queue.store_id = topic.agenda.changes.new_id()
        subscription.store_id = queue.store_id


def put_subscription(topic: Topic, subscription: Subscription) -> None:
    """Store what the subscription is now, if it is stored at all."""
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
        "policy": policy_fields(subscription.queue.policy),
    }
    fields.update(subscription.queue.describe_stored())
    topic.agenda.changes.put(
        SUBSCRIPTION, topic.store_id, subscription.store_id, encode_map(fields)
    )


def drop_subscription(topic: Topic, subscription: Subscription) -> None:
    """The subscription is no more. What its queue has the queue drops itself."""
    if subscription.store_id != 0:
        if topic.store_id != 0:
            topic.agenda.changes.drop(SUBSCRIPTION, topic.store_id, subscription.store_id)
        subscription.store_id = 0
