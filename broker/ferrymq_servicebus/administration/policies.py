"""Descriptions of entities as policies of the broker's nodes, and the other way round.

What a policy cannot say is not kept: sizes of messages, express entities, partitions, metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_servicebus.administration.errors import HttpError

DEAD_LETTERS: Final = "$DeadLetterQueue"
_OWN_DEAD_LETTERS: Final = f"/{DEAD_LETTERS}"
# Told of entities without a limit.
MEGABYTES: Final = 1024
_MEGABYTE: Final = 1024 * 1024
_LOCK: Final = 60_000
_LONGEST_LOCK: Final = 300_000
_DELIVERIES: Final = 10
# Told of queues whose messages may be delivered any number of times.
_ANY_NUMBER: Final = 2_147_483_647
_WINDOW: Final = 600_000


def queue_policy(description: Mapping[str, object]) -> QueuePolicy:
    """Return the policy of a queue, or of the queue of a subscription. Raises `HttpError` (400)."""
    lock = _number(description, "LockDuration", _LOCK)
    if not 0 < lock <= _LONGEST_LOCK:
        raise HttpError(400, "LockDuration must be at most five minutes")
    deliveries = _number(description, "MaxDeliveryCount", _DELIVERIES)
    if deliveries < 1:
        raise HttpError(400, "MaxDeliveryCount must be at least 1")
    duplicates = description.get("RequiresDuplicateDetection") is True
    forward_dead = _target(description, "ForwardDeadLetteredMessagesTo")
    if _text(description, "Status") not in ("", "Active"):
        raise HttpError(400, "Status: entities can only be active")
    return QueuePolicy(
        lock_duration=lock,
        deferral=True,
        delivery_limit=deliveries - 1 or -1,
        message_ttl=_number(description, "DefaultMessageTimeToLive", 0),
        max_bytes=_number(description, "MaxSizeInMegabytes", 0) * _MEGABYTE,
        sessions=description.get("RequiresSession") is True,
        duplicate_window=(
            _number(description, "DuplicateDetectionHistoryTimeWindow", _WINDOW)
            if duplicates
            else 0
        ),
        auto_delete=_number(description, "AutoDeleteOnIdle", 0) or -1,
        sub_queues=(DEAD_LETTERS,),
        drop_expired=description.get("DeadLetteringOnMessageExpiration") is not True,
        dead_letter=forward_dead or _OWN_DEAD_LETTERS,
        forward_to=_target(description, "ForwardTo"),
        unpack_batches=True,
    )


def queue_description(policy: QueuePolicy) -> dict[str, object]:
    """Return the description of a queue with a policy."""
    found: dict[str, object] = {
        "LockDuration": policy.lock_duration or _LOCK,
        "MaxSizeInMegabytes": policy.max_bytes // _MEGABYTE or MEGABYTES,
        "RequiresDuplicateDetection": policy.duplicate_window > 0,
        "RequiresSession": policy.sessions,
        "DefaultMessageTimeToLive": policy.message_ttl,
        "DeadLetteringOnMessageExpiration": bool(
            (policy.expired or policy.dead_letter) and not policy.drop_expired
        ),
        "DuplicateDetectionHistoryTimeWindow": policy.duplicate_window or _WINDOW,
        "MaxDeliveryCount": _deliveries(policy.delivery_limit),
        "AutoDeleteOnIdle": policy.auto_delete,
    }
    if policy.forward_to:
        found["ForwardTo"] = policy.forward_to
    if policy.dead_letter and not policy.dead_letter.startswith("/"):
        found["ForwardDeadLetteredMessagesTo"] = policy.dead_letter
    return found


def _deliveries(limit: int) -> int:
    """Return how often a message is delivered, for a limit of failed deliveries."""
    if limit == 0:
        return _ANY_NUMBER
    return max(limit, 0) + 1


def topic_policy(description: Mapping[str, object]) -> TopicPolicy:
    """Return the policy of a topic; its messages' time to live is that of its subscriptions."""
    window = _number(description, "DuplicateDetectionHistoryTimeWindow", _WINDOW)
    return TopicPolicy(
        duplicate_window=window if description.get("RequiresDuplicateDetection") is True else 0,
        subscription=replace(
            queue_policy({}), message_ttl=_number(description, "DefaultMessageTimeToLive", 0)
        ),
        auto_delete=_number(description, "AutoDeleteOnIdle", 0) or -1,
        unpack_batches=True,
    )


def topic_description(policy: TopicPolicy) -> dict[str, object]:
    """Return the description of a topic with a policy."""
    return {
        "RequiresDuplicateDetection": policy.duplicate_window > 0,
        "DuplicateDetectionHistoryTimeWindow": policy.duplicate_window or _WINDOW,
        "DefaultMessageTimeToLive": policy.subscription.message_ttl,
        "AutoDeleteOnIdle": policy.auto_delete,
    }


def _number(description: Mapping[str, object], key: str, default: int) -> int:
    value = description.get(key, default)
    return value if isinstance(value, int) else default


def _text(description: Mapping[str, object], key: str) -> str:
    value = description.get(key)
    return value if isinstance(value, str) else ""


def _target(description: Mapping[str, object], key: str) -> str:
    """Return the address of an entity, which may be given as a URL."""
    text = _text(description, key)
    if "://" not in text:
        return text.strip("/")
    return unquote(text.partition("://")[2].partition("/")[2]).strip("/")
