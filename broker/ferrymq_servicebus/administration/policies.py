"""Descriptions of entities as settings of the broker's nodes, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_servicebus.administration.errors import HttpError
from ferrymq_servicebus.entities import (
    ACTIVE,
    DISABLED,
    QUEUE_SETTINGS,
    RECEIVE_DISABLED,
    SEND_DISABLED,
    SUBSCRIPTION_SETTINGS,
    TOPIC_SETTINGS,
    EntityError,
    queue_policy,
    subscription_policy,
    topic_policy,
)

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_servicebus.entity_names import EntityNames

# Told of entities without a limit of their size.
MEGABYTES: Final = 1024
_MEBIBYTE: Final = 1024 * 1024
_LOCK: Final = 60_000
_WINDOW: Final = 600_000
# Told of queues whose messages may be delivered any number of times.
_ANY_NUMBER: Final = 2_147_483_647
# The settings that name another entity, and what they are called in a description.
_FORWARDING: Final = {
    "forward-to": "ForwardTo",
    "dead-letter": "ForwardDeadLetteredMessagesTo",
}
# The settings that a description of a queue or a subscription has.
_OF_RECEIVERS: Final = (
    "lock-duration",
    "delivery-limit",
    "message-ttl",
    "drop-expired",
    "dead-letter",
    "forward-to",
    "sessions",
    "auto-delete",
    "receive-disabled",
)
_OF_QUEUES: Final = (*_OF_RECEIVERS, "duplicate-window", "max-bytes", "send-disabled")
_OF_TOPICS: Final = ("duplicate-window", "auto-delete", "send-disabled")
# What a topic says for the queues of its subscriptions.
_OF_TOPICS_QUEUES: Final = ("message-ttl", "max-bytes")


def new_queue(description: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a new queue. Raises `HttpError` (400)."""
    with _told():
        return policy_attributes(queue_policy(_known(description, QUEUE_SETTINGS)))


def changed_queue(description: Mapping[str, object], before: QueuePolicy) -> dict[str, object]:
    """Return the settings of a queue that a description changes. Raises `HttpError` (400)."""
    return _changed(new_queue(_sized(description, before.max_bytes)), before, _OF_QUEUES)


def new_topic(description: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a new topic. Raises `HttpError` (400)."""
    with _told():
        return policy_attributes(topic_policy(_known(description, TOPIC_SETTINGS)))


def changed_topic(description: Mapping[str, object], before: TopicPolicy) -> dict[str, object]:
    """Return the settings of a topic that a description changes. Raises `HttpError` (400)."""
    wanted = new_topic(_sized(description, before.subscription.max_bytes))
    of_queues = wanted["subscription"]
    assert isinstance(of_queues, dict)
    changed = {key: of_queues[key] for key in _OF_TOPICS_QUEUES}
    kept = policy_attributes(before.subscription)
    return {**{key: wanted[key] for key in _OF_TOPICS}, "subscription": {**kept, **changed}}


def new_subscription(description: Mapping[str, object], topic: TopicPolicy) -> dict[str, object]:
    """Return the settings of the queue of a new subscription. Raises `HttpError` (400)."""
    with _told():
        known = _known(description, SUBSCRIPTION_SETTINGS)
        return policy_attributes(subscription_policy(known, topic=topic))


def changed_subscription(
    description: Mapping[str, object], topic: TopicPolicy, before: QueuePolicy
) -> dict[str, object]:
    """Return the settings that a description changes. Raises `HttpError` (400)."""
    return _changed(new_subscription(description, topic), before, _OF_RECEIVERS)


def queue_description(policy: QueuePolicy) -> dict[str, object]:
    """Return the description of a queue with a policy."""
    found: dict[str, object] = {
        "LockDuration": policy.lock_duration or _LOCK,
        "MaxSizeInMegabytes": policy.max_bytes // _MEBIBYTE or MEGABYTES,
        "RequiresDuplicateDetection": policy.duplicate_window > 0,
        "RequiresSession": policy.sessions,
        "DefaultMessageTimeToLive": policy.message_ttl,
        "DeadLetteringOnMessageExpiration": bool(
            (policy.expired or policy.dead_letter) and not policy.drop_expired
        ),
        "DuplicateDetectionHistoryTimeWindow": policy.duplicate_window or _WINDOW,
        "MaxDeliveryCount": _deliveries(policy.delivery_limit),
        "AutoDeleteOnIdle": policy.auto_delete,
        "Status": ACTIVE,
    }
    if policy.receive_disabled:
        found["Status"] = DISABLED if policy.send_disabled else RECEIVE_DISABLED
    elif policy.send_disabled:
        found["Status"] = SEND_DISABLED
    if policy.forward_to:
        found["ForwardTo"] = policy.forward_to
    if policy.dead_letter and not policy.dead_letter.startswith("/"):
        found["ForwardDeadLetteredMessagesTo"] = policy.dead_letter
    return found


def topic_description(policy: TopicPolicy) -> dict[str, object]:
    """Return the description of a topic with a policy."""
    return {
        "DefaultMessageTimeToLive": policy.subscription.message_ttl,
        "MaxSizeInMegabytes": policy.subscription.max_bytes // _MEBIBYTE or MEGABYTES,
        "RequiresDuplicateDetection": policy.duplicate_window > 0,
        "DuplicateDetectionHistoryTimeWindow": policy.duplicate_window or _WINDOW,
        "AutoDeleteOnIdle": policy.auto_delete,
        "Status": DISABLED if policy.send_disabled else ACTIVE,
    }


def spell_targets(settings: dict[str, object], names: EntityNames) -> None:
    """Give the entities that messages are forwarded to the spelling they were made with."""
    for key in _FORWARDING:
        named = settings.get(key)
        if isinstance(named, str) and named and not named.startswith("/"):
            settings[key] = names.spelled(named)


def expect_targets(settings: dict[str, object], before: QueuePolicy, space: AddressSpace) -> None:
    """Raise `HttpError` (400) if messages are to be forwarded to an entity that does not exist, and
    were not before. Check rights at the entity first."""
    present = ("", before.forward_to, before.dead_letter)
    for key, setting in _FORWARDING.items():
        named = str(settings.get(key, ""))
        if named not in present and not named.startswith("/") and named not in space.nodes:
            raise HttpError(
                400, f"{setting}: The messaging entity {named[:200]!r} could not be found"
            )


def _changed(
    wanted: dict[str, object], before: QueuePolicy, keys: tuple[str, ...]
) -> dict[str, object]:
    changed = {key: wanted[key] for key in keys}
    own = str(changed["dead-letter"])
    if own.startswith("/"):
        if own[1:] in before.sub_queues:
            # They are not changed. They tell that the address is the queue's own.
            changed["sub-queues"] = list(before.sub_queues)
        else:
            # A queue that something else made, without a place of its own for dead letters.
            del changed["dead-letter"]
    return changed


def _sized(description: Mapping[str, object], bytes: int) -> Mapping[str, object]:
    """Return the description without a size that was only told."""
    if bytes == 0 and description.get("MaxSizeInMegabytes") == MEGABYTES:
        return {**description, "MaxSizeInMegabytes": 0}
    return description


def _known(description: Mapping[str, object], names: tuple[str, ...]) -> dict[str, object]:
    return {key: description[key] for key in (*names, "Status") if key in description}


def _deliveries(limit: int) -> int:
    """Return how often a message is delivered, for a limit of failed deliveries."""
    if limit == 0:
        return _ANY_NUMBER
    return max(limit, 0) + 1


@contextmanager
def _told() -> Iterator[None]:
    """Turn errors about entities into errors of the request."""
    try:
        yield
    except EntityError as error:
        raise HttpError(400, str(error)) from None
