"""The source that a link had which comes back without saying so.

JMS clients unsubscribe without knowing from what: they attach the link by its name, with no source,
expect to be told the one it has had, and close it.
"""

from __future__ import annotations

from ferrymq_broker.nodes.node import Space
from ferrymq_broker.nodes.topics.subscription_identity import global_key, own_key
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_types.messaging import Source, TerminusDurability, TerminusExpiryPolicy


def find_durable_source(
    space: Space, user: str | None, container: str, link_name: str
) -> Source | None:
    """Return the source of the durable subscription that this link, or one numbered like it, has
    had."""
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
