"""Finding the source of a durable subscription when the attach does not have it.

JMS clients unsubscribe in this way: they attach a link by its name, without a source, expect the
broker to tell the source, and close the link.
"""

from __future__ import annotations

from ferrymq_broker.nodes.node import Space
from ferrymq_broker.nodes.topics.subscription_identity import global_key, own_key
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_types.messaging import Source, TerminusDurability, TerminusExpiryPolicy


def find_durable_source(
    space: Space, user: str | None, container: str, link_name: str
) -> Source | None:
    """Return the source of the durable subscription of this link, or of a link with the same name
    before the number."""
    name, bar, _ = link_name.partition("|")
    keys = [own_key(user, container, link_name), own_key(user, container, name)]
    if bar:
        keys.append(global_key(name))
    for key in keys:
        topic = space.durables.get(key)
        if isinstance(topic, Topic):
            subscription = topic.durable(key)
            if subscription is None or (bar != "" and not subscription.shared):
                continue
            capabilities = ["topic"]
            if subscription.shared:
                capabilities.append("shared")
            if subscription.everywhere:
                capabilities.append("global")
            return Source(
                address=topic.address,
                durable=TerminusDurability.UNSETTLED_STATE,
                expiry_policy=TerminusExpiryPolicy(subscription.expiry_policy),
                timeout=subscription.timeout,
                filter=subscription.filters or None,
                capabilities=capabilities,
            )
    return None
