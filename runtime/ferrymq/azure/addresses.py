"""Addresses of Azure Service Bus and Event Hubs, and the URIs that tokens for them are for.

The address of a queue, a topic or a hub is its name.
"""

from __future__ import annotations

import re
from typing import Final

# The parts of an address behind the name of a hub, and the management of an entity: a token for the
# hub or entity is for these too.
_BEHIND: Final = re.compile(r"/(ConsumerGroups|Partitions|Publishers|\$management)(/|$)", re.I)
_MANAGEMENT: Final = "$management"


def subscription_address(topic: str, subscription: str) -> str:
    """Return the address at which a subscription of a topic is received: ``T/Subscriptions/S``."""
    return f"{_name(topic, 'topic')}/Subscriptions/{_name(subscription, 'subscription')}"


def dead_letter_address(address: str, *, transfer: bool = False) -> str:
    """Return the address of the dead letters of a queue or subscription; with `transfer`, of the
    messages that could not be passed on to another entity."""
    between = "/$Transfer" if transfer else ""
    return f"{_name(address, 'queue')}{between}/$DeadLetterQueue"


def consumer_address(hub: str, partition: str | int, consumer_group: str = "$Default") -> str:
    """Return the address at which a consumer group of a hub receives a partition."""
    group = _name(consumer_group, "consumer group")
    return f"{_name(hub, 'hub')}/ConsumerGroups/{group}/Partitions/{partition}"


def partition_address(hub: str, partition: str | int) -> str:
    """Return the address to send to one partition of a hub. To send to any of them, the address is
    the hub's name."""
    return f"{_name(hub, 'hub')}/Partitions/{partition}"


def audience_of(host: str, address: str, entity: str | None) -> str:
    """Return the URI of the token for an address. `entity` is the only one that there are tokens
    for, if they are not for the whole namespace."""
    name = _BEHIND.split(address.strip("/"), 1)[0]
    if name == _MANAGEMENT:
        name = entity or ""
    return f"sb://{host}/{name}"


def _name(name: str, what: str) -> str:
    if not name.strip("/"):
        raise ValueError(f"the name of the {what} is empty")
    return name
