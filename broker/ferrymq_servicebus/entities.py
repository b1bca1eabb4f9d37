"""Entities as policies of the broker's nodes: queues, topics, subscriptions, event hubs.

A description has the vendor's names of settings, as in the emulator's ``Config.json``. In a file of
the broker's configuration the same names may be written as keys there are: ``lock-duration`` for
``LockDuration``. Names of settings are compared without capitals and hyphens.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, final

from ferrymq_broker.addresses.address_space import Template
from ferrymq_broker.config.units import MAX_DURATION
from ferrymq_broker.values.names import DYNAMIC, PART
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_servicebus.durations import milliseconds_of, text_of

# The sub-queues of a queue and of a subscription.
DEAD_LETTERS: Final = "$DeadLetterQueue"
TRANSFER_DEAD_LETTERS: Final = "$Transfer/$DeadLetterQueue"
SUB_QUEUES: Final = (DEAD_LETTERS, TRANSFER_DEAD_LETTERS)
# The rule of a subscription that is described without rules: it gets everything.
DEFAULT_RULE: Final = "$Default"
# The consumer group that every event hub has.
DEFAULT_GROUP: Final = "$Default"

# The states of an entity.
ACTIVE: Final = "Active"
DISABLED: Final = "Disabled"
SEND_DISABLED: Final = "SendDisabled"
RECEIVE_DISABLED: Final = "ReceiveDisabled"

_LOCK: Final = 60_000
_LONGEST_LOCK: Final = 300_000
_DELIVERIES: Final = 10
_MOST_DELIVERIES: Final = 2000
_HISTORY: Final = 600_000
_LONGEST_HISTORY: Final = 7 * 86_400_000
_SHORTEST_HISTORY: Final = 20_000
_PARTITIONS: Final = 4
_MOST_PARTITIONS: Final = 1024
_MEBIBYTE: Final = 1024 * 1024

# What a client may ask for and the broker does anyway, or has no use for.
_WITHOUT_EFFECT: Final = (
    "EnableBatchedOperations",
    "EnableDeadLetteringOnFilterEvaluationExceptions",
    "EnableExpress",
    "EnablePartitioning",
    "FilteringMessagesBeforePublishing",
    "MaxMessageSizeInKilobytes",
    "SupportOrdering",
    "UserMetadata",
)
_OF_RECEIVERS: Final = (
    "DeadLetteringOnMessageExpiration",
    "DefaultMessageTimeToLive",
    "ForwardDeadLetteredMessagesTo",
    "ForwardTo",
    "LockDuration",
    "MaxDeliveryCount",
    "RequiresSession",
    "AutoDeleteOnIdle",
)
_OF_SENDERS: Final = (
    "DuplicateDetectionHistoryTimeWindow",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
)
QUEUE_SETTINGS: Final = (*_OF_RECEIVERS, *_OF_SENDERS)
TOPIC_SETTINGS: Final = ("DefaultMessageTimeToLive", "AutoDeleteOnIdle", *_OF_SENDERS)
SUBSCRIPTION_SETTINGS: Final = _OF_RECEIVERS
HUB_SETTINGS: Final = ("PartitionCount", "ConsumerGroups", "MessageRetentionInDays", "Capture")


class EntityError(Exception):
    """A description of an entity is wrong. The message names the entity and the key."""


def queue_policy(description: Mapping[str, object], entity: str = "the queue") -> QueuePolicy:
    """Return the policy of a queue. `entity` names it in an `EntityError`."""
    asked = Settings(entity, description, QUEUE_SETTINGS)
    status = asked.status(DISABLED, SEND_DISABLED, RECEIVE_DISABLED)
    return replace(
        _receivers_policy(asked),
        duplicate_window=_window(asked),
        max_bytes=_size(asked),
        send_disabled=status in (DISABLED, SEND_DISABLED),
        receive_disabled=status in (DISABLED, RECEIVE_DISABLED),
    )


def subscription_policy(
    description: Mapping[str, object],
    entity: str = "the subscription",
    topic: TopicPolicy | None = None,
) -> QueuePolicy:
    """Return the policy of the queue of a subscription; messages stay no longer than the `topic`
    allows. `entity` names the subscription in an `EntityError`."""
    asked = Settings(entity, description, SUBSCRIPTION_SETTINGS)
    # The topic goes on to fill the subscription, so that nothing is lost.
    receives = asked.status(DISABLED, RECEIVE_DISABLED) == ACTIVE
    policy = replace(_receivers_policy(asked), receive_disabled=not receives)
    most = 0 if topic is None else topic.subscription.message_ttl
    if most != 0 and (policy.message_ttl == 0 or policy.message_ttl > most):
        policy = replace(policy, message_ttl=most)
    if topic is not None:
        policy = replace(policy, max_bytes=topic.subscription.max_bytes)
    return policy


def topic_policy(description: Mapping[str, object], entity: str = "the topic") -> TopicPolicy:
    """Return the policy of a topic. `entity` names it in an `EntityError`."""
    asked = Settings(entity, description, TOPIC_SETTINGS)
    return TopicPolicy(
        subscription=replace(
            _receivers_policy(Settings(entity, {}, ())),
            message_ttl=_time_to_live(asked),
            max_bytes=_size(asked),
        ),
        duplicate_window=_window(asked),
        auto_delete=_idle(asked),
        unpack_batches=True,
        send_disabled=asked.status(DISABLED, SEND_DISABLED) != ACTIVE,
    )


def hub_policy(description: Mapping[str, object], entity: str = "the event hub") -> StreamPolicy:
    """Return the policy of the stream of an event hub. `entity` names it in an `EntityError`.

    Without ``ConsumerGroups`` readers may name any group.
    """
    asked = Settings(entity, description, HUB_SETTINGS)
    asked.status()
    groups = asked.names("ConsumerGroups")
    days = asked.number("MessageRetentionInDays", 0, 0, 36_500)
    return StreamPolicy(
        partitions=asked.number("PartitionCount", _PARTITIONS, 1, _MOST_PARTITIONS),
        max_age=days * 86_400_000,
        consumer_groups=_with_default(groups) if groups else (),
        capture=asked.flag("Capture"),
        unpack_batches=True,
    )


def entity_of(address: str) -> str:
    """Return the path of an entity that is named by a path or by a URL of its namespace."""
    _, scheme, rest = address.partition("://")
    path = rest.partition("/")[2] if scheme else address
    return path.strip("/")


@final
class EntityTemplate(Template):
    """Entities that are made when a client names them first: a queue, or a topic if the client
    names a subscription."""

    def __init__(self) -> None:
        self._queue: NodePolicy = queue_policy({})
        self._topic: NodePolicy = replace(topic_policy({}), auto_subscribe=True)

    def policy_for(self, address: str, capabilities: Sequence[str]) -> NodePolicy | None:
        """Return the policy of the entity of a name; None for a name that no entity has."""
        if not _may_be_made(address):
            return None
        return self._topic if "topic" in capabilities else self._queue


@final
class HubTemplate(Template):
    """Event hubs that are made when a client names them first."""

    def __init__(self) -> None:
        self._hub: NodePolicy = hub_policy({})

    def policy_for(self, address: str, capabilities: Sequence[str]) -> NodePolicy | None:
        """Return the policy of the hub of a name; None for a name that no entity has."""
        return self._hub if _may_be_made(address) else None


def _may_be_made(address: str) -> bool:
    return not (PART in address or "$" in address or address.startswith(DYNAMIC))


@final
class Settings:
    """The settings in the description of one entity, which may have the `known` ones. Raises
    `EntityError` for others."""

    def __init__(
        self, entity: str, description: Mapping[str, object], known: Sequence[str]
    ) -> None:
        self._entity = entity
        names = {_folded(name): name for name in (*known, *_WITHOUT_EFFECT, "Status")}
        self._given: dict[str, object] = {}
        for key, value in description.items():
            name = names.get(_folded(key))
            if name is None:
                close = difflib.get_close_matches(_folded(key), names, n=1)
                hint = f"; did you mean {names[close[0]]!r}?" if close else ""
                raise EntityError(f"{entity}: unknown key {key[:100]!r}{hint}")
            if name in self._given:
                raise EntityError(f"{entity}: {name} is given twice")
            if value is not None:
                self._given[name] = value

    def wrong(self, key: str, reason: str) -> EntityError:
        """Return the error for a setting."""
        return EntityError(f"{self._entity}: {key}: {reason}")

    def status(self, *possible: str) -> str:
        """Return the status, one of `ACTIVE` and the possible ones."""
        status = self._given.get("Status", ACTIVE)
        if isinstance(status, str) and status in (ACTIVE, *possible):
            return status
        known = ", ".join((ACTIVE, *possible))
        raise self.wrong("Status", f"{status!r:.60} is not possible; {known} are")

    def flag(self, key: str) -> bool:
        """Return a setting that is true or false; false without it."""
        value = self._given.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, f"{value!r:.60} is neither true nor false")
        return value

    def number(self, key: str, usual: int, least: int, most: int) -> int:
        """Return a whole number; the vendor's tools write some as text."""
        value = self._given.get(key, usual)
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"{value!r:.60} is no number from {least} to {most}")
        return value

    def duration(self, key: str, usual: int, least: int, most: int) -> int:
        """Return a duration in milliseconds."""
        value = self._given.get(key)
        if value is None or value == "":
            return usual
        try:
            duration = milliseconds_of(value)
        except ValueError as error:
            raise self.wrong(key, f"{value!r:.60}: {error}") from None
        if not least <= duration <= most:
            span = f"from {text_of(least)} to {text_of(most)}"
            raise self.wrong(key, f"{value!r:.60} is not {span}")
        return duration

    def address(self, key: str) -> str:
        """Return the path of another entity, empty without the setting."""
        value = self._given.get(key, "")
        if not isinstance(value, str):
            raise self.wrong(key, f"{value!r:.60} is no name of an entity")
        path = entity_of(value)
        if value and not path:
            raise self.wrong(key, f"{value!r:.60} names no entity")
        return path

    def names(self, key: str) -> list[str]:
        """Return a list of names: texts, or maps with a ``Name``."""
        value = self._given.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, f"{value!r:.60} is no list")
        found: list[str] = []
        for one in value:
            name = one.get("Name", one.get("name")) if isinstance(one, dict) else one
            if not isinstance(name, str) or not 0 < len(name) <= 256:
                raise self.wrong(key, f"{one!r:.60} has no name of 1 to 256 characters")
            found.append(name)
        return found


def _receivers_policy(asked: Settings) -> QueuePolicy:
    """Return the policy that is the same for a queue and for the queue of a subscription."""
    deliveries = asked.number("MaxDeliveryCount", _DELIVERIES, 1, _MOST_DELIVERIES)
    return QueuePolicy(
        # The vendor's queues have no priorities, and store every message.
        priorities=1,
        persist=True,
        unpack_batches=True,
        deferral=True,
        sub_queues=SUB_QUEUES,
        lock_duration=asked.duration("LockDuration", _LOCK, 1, _LONGEST_LOCK),
        # The last of the deliveries is the one that must not fail.
        delivery_limit=deliveries - 1 if deliveries > 1 else -1,
        message_ttl=_time_to_live(asked),
        drop_expired=not asked.flag("DeadLetteringOnMessageExpiration"),
        dead_letter=asked.address("ForwardDeadLetteredMessagesTo") or f"/{DEAD_LETTERS}",
        forward_to=asked.address("ForwardTo"),
        forward_failed=f"/{TRANSFER_DEAD_LETTERS}",
        sessions=asked.flag("RequiresSession"),
        auto_delete=_idle(asked),
    )


def _time_to_live(asked: Settings) -> int:
    """Return the longest time a message may stay; 0 for any time."""
    duration = asked.duration("DefaultMessageTimeToLive", MAX_DURATION, 1, MAX_DURATION)
    return duration if duration < MAX_DURATION else 0


def _idle(asked: Settings) -> int:
    """Return after what time an unused entity is deleted; −1 for never."""
    duration = asked.duration("AutoDeleteOnIdle", MAX_DURATION, 1, MAX_DURATION)
    return duration if duration < MAX_DURATION else -1


def _window(asked: Settings) -> int:
    """Return how long message-ids are remembered; 0 for not at all."""
    window = asked.duration(
        "DuplicateDetectionHistoryTimeWindow", _HISTORY, _SHORTEST_HISTORY, _LONGEST_HISTORY
    )
    return window if asked.flag("RequiresDuplicateDetection") else 0


def _size(asked: Settings) -> int:
    """Return the most bytes of messages; 0 for any number."""
    return asked.number("MaxSizeInMegabytes", 0, 0, 80 * 1024 * 1024) * _MEBIBYTE


def _with_default(groups: list[str]) -> tuple[str, ...]:
    """Return the groups, with the one that every event hub has."""
    others = [name for name in dict.fromkeys(groups) if name.casefold() != DEFAULT_GROUP.casefold()]
    return (DEFAULT_GROUP, *others)


@lru_cache(1024)
def _folded(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()
