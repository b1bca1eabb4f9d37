"""The entities that a configuration declares, checked, and how they are made in a virtual host.

A stored entity follows the configuration, as nodes of the broker's configuration do: it gets the
declared settings and rules, and keeps its messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar, final

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.config.apply.declare import declare_node
from ferrymq_broker.config.apply.store_conflicts import difference
from ferrymq_broker.config.apply.subscriptions import follow_rules
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.rule import SubscriptionRule, make_rule
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.names import DYNAMIC, PART
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy, TopicPolicy
from ferrymq_servicebus.entities import (
    DEFAULT_RULE,
    EntityError,
    hub_policy,
    queue_policy,
    subscription_policy,
    topic_policy,
)

# The most characters of the names of entities, and of subscriptions.
_LONGEST: Final = 260
_LONGEST_SUBSCRIPTION: Final = 50
_SUBSCRIPTION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_Policy = TypeVar("_Policy", bound=NodePolicy)


@final
@dataclass
class SubscriptionEntity:
    """A subscription: its `topic`, its name, the policy of its queue, and its rules by name."""

    topic: str
    name: str
    policy: QueuePolicy
    rules: dict[str, SubscriptionRule]


@final
class DeclaredEntities:
    """All declared entities of one virtual host: the policies of `nodes` by name, and
    `subscriptions` by topic and name, each in the order of the declarations.

    Names that differ only in capitals are the same. The methods that add entities collect
    `mistakes` instead of raising them, so that all can be reported together.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodePolicy] = {}
        self.subscriptions: dict[tuple[str, str], SubscriptionEntity] = {}
        self.mistakes: list[str] = []
        # The names as they were declared, by the names without capitals.
        self._spelled: dict[str, str] = {}
        self._seen: set[tuple[str, str]] = set()
        # Equal policies are one object.
        self._policies: dict[NodePolicy, NodePolicy] = {}

    def add_queue(self, name: object, description: Mapping[str, object], where: str) -> None:
        """Add a queue; `where` is its place in the file."""
        entity = _entity(where, "the queue", name)
        try:
            self._take(name, queue_policy(description, entity), entity)
        except EntityError as error:
            self.mistakes.append(str(error))

    def add_topic(
        self, name: object, description: Mapping[str, object], where: str
    ) -> TopicPolicy | None:
        """Add a topic and return its policy; None after a mistake."""
        entity = _entity(where, "the topic", name)
        try:
            policy = topic_policy(description, entity)
            self._take(name, policy, entity)
        except EntityError as error:
            self.mistakes.append(str(error))
            return None
        return policy

    def add_hub(self, name: object, description: Mapping[str, object], where: str) -> None:
        """Add an event hub."""
        entity = _entity(where, "the event hub", name)
        try:
            self._take(name, hub_policy(description, entity), entity)
        except EntityError as error:
            self.mistakes.append(str(error))

    def add_subscription(
        self,
        topic: str,
        policy: TopicPolicy,
        name: object,
        description: Mapping[str, object],
        rules: list[tuple[str, dict[str, object]]],
        where: str,
    ) -> None:
        """Add a subscription of a topic, with the descriptions of its rules. Without any it gets
        one for every message, of the name that the vendor gives it."""
        entity = _entity(where, f"the subscription of {topic!r}", name)
        try:
            if not isinstance(name, str) or not _SUBSCRIPTION.fullmatch(name):
                raise EntityError(f"{entity}: Name: letters, digits, periods, - and _ are allowed")
            if len(name) > _LONGEST_SUBSCRIPTION:
                raise EntityError(
                    f"{entity}: Name: {_LONGEST_SUBSCRIPTION} characters are the most"
                )
            key = topic.casefold(), name.casefold()
            if key in self._seen:
                raise EntityError(f"{entity}: Name: it is declared twice")
            self._seen.add(key)
            made = self._shared(subscription_policy(description, entity, policy))
            self.subscriptions[topic, name] = SubscriptionEntity(
                topic, name, made, _rules(rules, entity)
            )
        except EntityError as error:
            self.mistakes.append(str(error))

    def _take(self, name: object, policy: NodePolicy, entity: str) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST:
            raise EntityError(f"{entity}: Name: 1 to {_LONGEST} characters are needed")
        if "$" in name or PART in name or name.startswith(DYNAMIC) or name != name.strip("/ "):
            raise EntityError(f"{entity}: Name: it is reserved, or has a slash at its end")
        before = self._spelled.setdefault(name.casefold(), name)
        if name in self.nodes or before != name:
            raise EntityError(f"{entity}: Name: {before!r} is declared already")
        self.nodes[name] = self._shared(policy)

    def _shared(self, policy: _Policy) -> _Policy:
        same: NodePolicy = self._policies.setdefault(policy, policy)
        assert isinstance(same, type(policy))
        return same

    def finish(self) -> None:
        """Give the entities that others forward to the names of these. Raises `ConfigError` with
        all mistakes."""
        if self.mistakes:
            raise ConfigError("\n".join(self.mistakes))
        for name, policy in self.nodes.items():
            if isinstance(policy, QueuePolicy):
                self.nodes[name] = self._directed(policy)
        for subscription in self.subscriptions.values():
            subscription.policy = self._directed(subscription.policy)

    def _directed(self, policy: QueuePolicy) -> QueuePolicy:
        forward_to = self._spelled.get(policy.forward_to.casefold(), policy.forward_to)
        dead_letter = self._spelled.get(policy.dead_letter.casefold(), policy.dead_letter)
        if (forward_to, dead_letter) == (policy.forward_to, policy.dead_letter):
            return policy
        return self._shared(replace(policy, forward_to=forward_to, dead_letter=dead_letter))

    def make(self, space: AddressSpace) -> None:
        """Make the entities in the virtual host, or give stored ones their declared settings.

        Raises `ConfigError` if a stored entity cannot become what is declared, or if there is no
        room.
        """
        found: list[str] = []
        stored = {address.casefold(): address for address in space.nodes}
        for name, policy in self.nodes.items():
            # A stored entity keeps its spelling: its address is part of other records.
            address = stored.get(name.casefold(), name)
            node = space.nodes.get(address)
            differs = None if node is None else difference(node, policy)
            if differs is not None:
                found.append(
                    f"{name!r} is declared {differs[0]}, but stored {differs[1]}: declare it as "
                    "stored, or use another name"
                )
        if found:
            raise ConfigError("\n".join(found))
        try:
            for name, policy in self.nodes.items():
                declare_node(space, stored.get(name.casefold(), name), policy)
            for subscription in self.subscriptions.values():
                topic = space.nodes[stored.get(subscription.topic.casefold(), subscription.topic)]
                assert isinstance(topic, Topic)
                _make_subscription(topic, subscription)
        except BrokerError as error:
            raise ConfigError(error.description) from error


def _make_subscription(topic: Topic, declared: SubscriptionEntity) -> None:
    subscription = topic.declared_subscription(declared.name)
    if subscription is None:
        folded = declared.name.casefold()
        for other in topic.subscriptions():
            if other.declared and other.name.casefold() == folded:
                subscription = other
    if subscription is None:
        subscription = topic.declare_subscription(declared.name, policy=declared.policy)
    elif subscription.queue.policy != declared.policy:
        if subscription.queue.policy.sessions != declared.policy.sessions:
            raise ConfigError(
                f"the subscription {subscription.address!r} is stored with another "
                "RequiresSession: delete it, or declare it as stored"
            )
        topic.change_subscription(subscription, declared.policy)
    follow_rules(topic, subscription, declared.rules)


def _rules(
    described: list[tuple[str, dict[str, object]]], entity: str
) -> dict[str, SubscriptionRule]:
    """Return the rules of a subscription. Raises `EntityError`."""
    rules: dict[str, SubscriptionRule] = {}
    for name, fields in described or [(DEFAULT_RULE, {"true": True})]:
        try:
            rule = make_rule(name, fields)
        except BrokerError as error:
            raise EntityError(f"{entity}: the rule {name!r:.100}: {error.description}") from error
        if name in rules:
            raise EntityError(f"{entity}: the rule {name!r:.100} is declared twice")
        rules[name] = rule
    return rules


def _entity(where: str, kind: str, name: object) -> str:
    return f"{where}: {kind} {name!r:.100}"
