"""The settings of nodes, and the policies made of them: for the configuration and management."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from ferrymq.partitioning import MOST_PARTITIONS, parse_placement
from ferrymq_broker.config.section import StrictSection, kebab
from ferrymq_broker.config.units import Count, Duration, Expiry, Size
from ferrymq_broker.values.names import MAX_ADDRESS_LENGTH, MAX_SUB_QUEUE, PART
from ferrymq_broker.values.policy import (
    ExchangePolicy,
    NodePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)

# The most sub-queues of a queue.
MOST_SUB_QUEUES: Final = 8

# An address or an empty text; longer addresses cannot be created.
Address = Annotated[str, Field(max_length=MAX_ADDRESS_LENGTH)]

# The name of a consumer group; a reader cannot name a longer one.
GroupName = Annotated[str, Field(min_length=1, max_length=256)]


# The name of a sub-queue; the address of the sub-queue is ``QUEUE/NAME``.
SubQueueName = Annotated[str, Field(min_length=1, max_length=MAX_SUB_QUEUE)]


# A text that is kept with a node.
Label = Annotated[str, Field(min_length=1, max_length=1024)]
# The most such texts.
MOST_LABELS: Final = 100

# Partitions of a stream, and the URLs of their broker.
PlacementEntry = Annotated[str, Field(max_length=4096)]


def _placement(entries: list[str]) -> list[str]:
    parse_placement(entries)
    return entries


class QueueSettings(StrictSection):
    """The settings of a queue; `QueuePolicy` explains each of them."""

    priorities: int = Field(default=10, ge=1, le=10)
    max_length: Count = 0
    max_bytes: Size = 0
    overflow: Literal["reject", "drop-head", "dead-letter", "block", "reject-dead-letter"] = (
        "reject"
    )
    target_latency: Duration = 0
    message_ttl: Duration = 0
    delivery_limit: int = Field(default=0, ge=-1, le=0xFFFFFFFF)
    dead_letter: Address = ""
    expired: Address = ""
    drop_expired: bool = False
    return_rejected: bool = False
    single_active: bool = False
    exclusive: bool = False
    groups: bool = False
    sessions: bool = False
    last_value_key: str = Field(default="", max_length=255)
    duplicate_window: Duration = 0
    duplicate_limit: int = Field(default=100_000, ge=1, le=100_000_000)
    auto_delete: Expiry = -1
    auto_delete_when: Literal["unused", "unconsumed"] = "unused"
    max_consumers: Count = 0
    durable: bool = True
    persist: bool = False
    lock_duration: Duration = 0
    deferral: bool = False
    unpack_batches: bool = False
    sub_queues: list[SubQueueName] = Field(default=[], max_length=MOST_SUB_QUEUES)
    forward_to: Address = ""
    forward_failed: Address = ""
    labels: list[Label] = Field(default=[], max_length=MOST_LABELS)
    send_disabled: bool = False
    receive_disabled: bool = False


class TopicSettings(StrictSection):
    """The settings of a topic, and of the queues behind its subscriptions."""

    subscription: QueueSettings = Field(default_factory=QueueSettings.defaults)
    max_subscriptions: Count = 0
    max_rules: Count = 10_000
    duplicate_window: Duration = 0
    duplicate_limit: int = Field(default=100_000, ge=1, le=100_000_000)
    auto_subscribe: bool = False
    auto_delete: Expiry = -1
    durable: bool = True
    unpack_batches: bool = False
    labels: list[Label] = Field(default=[], max_length=MOST_LABELS)
    send_disabled: bool = False


class StreamSettings(StrictSection):
    """The settings of a stream."""

    partitions: int = Field(default=1, ge=1, le=MOST_PARTITIONS)
    partitions_on: Annotated[list[PlacementEntry], AfterValidator(_placement)] = Field(
        default=[], max_length=MOST_PARTITIONS
    )
    max_bytes: Size = 0
    max_age: Duration = 0
    max_records: Count = 0
    segment_bytes: Annotated[Size, Field(ge=1024)] = 1024 * 1024
    durable: bool = True
    capture: bool = False
    unpack_batches: bool = False
    consumer_groups: list[GroupName] = Field(default=[], max_length=1000)
    readers_per_group: Count = 0
    labels: list[Label] = Field(default=[], max_length=MOST_LABELS)


class ExchangeSettings(StrictSection):
    """The settings of an exchange."""

    routing: Literal["direct", "topic", "fanout", "headers"] = "direct"
    alternate: Address = ""
    auto_delete: Expiry = -1
    durable: bool = True
    unpack_batches: bool = False
    labels: list[Label] = Field(default=[], max_length=MOST_LABELS)


SETTINGS: Final[dict[str, type[StrictSection]]] = {
    "queue": QueueSettings,
    "topic": TopicSettings,
    "stream": StreamSettings,
    "exchange": ExchangeSettings,
}
KINDS: Final = tuple(SETTINGS)

# Settings whose names differ from those of the policy's fields.
_RENAMED: Final = {"routing": "type"}


def given(settings: StrictSection) -> dict[str, object]:
    """Return the settings that a table contains, by the names of the model's fields."""
    return {name: getattr(settings, name) for name in settings.model_fields_set}


def make_policy(kind: str, settings: Mapping[str, object]) -> NodePolicy:
    """Make the policy for a node of this kind from checked settings, with defaults for the rest.

    A topic's ``subscription`` is the policy of its queues. Settings of other kinds are ignored.
    """
    # Values of any type, which the model has checked already.
    known: dict[str, Any] = {
        _RENAMED.get(name, name): settings[name]
        for name in SETTINGS[kind].model_fields
        if name in settings
    }
    known["labels"] = tuple(dict.fromkeys(known.get("labels", ())))
    if kind == "queue":
        known["sub_queues"] = tuple(dict.fromkeys(known.get("sub_queues", ())))
        return QueuePolicy(**known)
    if kind == "topic":
        return TopicPolicy(**known)
    if kind == "stream":
        known["consumer_groups"] = tuple(dict.fromkeys(known.get("consumer_groups", ())))
        known["partitions_on"] = tuple(known.get("partitions_on", ()))
        if known["partitions_on"]:
            # The number may be that of an earlier placement.
            known["partitions"] = len(parse_placement(known["partitions_on"]))
        return StreamPolicy(**known)
    return ExchangePolicy(**known)


def contradictions(policy: NodePolicy) -> list[tuple[str, str]]:
    """Return settings that contradict each other: the key and the reason."""
    found: list[tuple[str, str]] = []
    if isinstance(policy, TopicPolicy):
        return [(f"subscription.{key}", why) for key, why in contradictions(policy.subscription)]
    if isinstance(policy, StreamPolicy) and policy.capture and not policy.durable:
        reason = "capture needs durable = true: without it the stream is a new one after each start"
        found.append(("capture", reason))
    if not isinstance(policy, QueuePolicy):
        return found
    if policy.overflow in ("dead-letter", "reject-dead-letter") and not policy.dead_letter:
        found.append(("overflow", "dead-lettering needs a dead-letter address"))
    if policy.target_latency and policy.overflow != "block":
        found.append(("target-latency", "it holds back credit, which needs overflow = block"))
    if policy.last_value_key and policy.groups:
        found.append(
            ("last-value-key", "a queue of last values has no groups: a group needs every message")
        )
    if policy.last_value_key and policy.deferral:
        found.append(("last-value-key", "a queue of last values keeps no deferred messages"))
    if policy.sessions and (policy.groups or policy.single_active or policy.last_value_key):
        found.append(
            ("sessions", "a queue with sessions has no groups, single-active or last-value-key")
        )
    for name in policy.sub_queues:
        if not name.strip("/") or name.startswith("/") or name.endswith("/") or PART in name:
            reason = f"{name!r} must not begin or end with a slash, or contain {PART}"
            found.append(("sub-queues", reason))
    if policy.exclusive and policy.single_active:
        found.append(
            (
                "single-active",
                "an exclusive queue has one consumer; no second one can wait",
            )
        )
    if policy.exclusive and policy.max_consumers > 1:
        found.append(("max-consumers", "an exclusive queue has one consumer"))
    return found


def kind_of(policy: NodePolicy) -> str:
    """Return the kind of a policy: ``queue``, ``topic``, ``stream`` or ``exchange``."""
    if isinstance(policy, QueuePolicy):
        return "queue"
    if isinstance(policy, TopicPolicy):
        return "topic"
    return "stream" if isinstance(policy, StreamPolicy) else "exchange"


def policy_attributes(policy: NodePolicy) -> dict[str, object]:
    """Return every setting of a policy by its key; times in milliseconds, sizes in bytes.

    The type of an exchange is called ``routing``, because management itself uses ``type``. The
    ``subscription`` of a topic is a map of the settings of a queue.
    """
    public = {field: key for key, field in _RENAMED.items()}
    attributes: dict[str, object] = {}
    for field in fields(policy):
        value = getattr(policy, field.name)
        if isinstance(value, QueuePolicy):
            value = policy_attributes(value)
        elif isinstance(value, tuple):
            value = list(value)
        attributes[kebab(public.get(field.name, field.name))] = value
    return attributes
