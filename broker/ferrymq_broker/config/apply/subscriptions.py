"""Makes the declared subscriptions and their rules.

A stored subscription follows the configuration: it gets the declared rules, and loses others. A
declared subscription without rules keeps the rules that it has.
"""

from __future__ import annotations

from collections.abc import Iterator

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.config.declarations import DeclaredSubscription, Tables
from ferrymq_broker.config.errors import ConfigMistake, Location
from ferrymq_broker.config.model import Config
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.rule import SubscriptionRule, make_rule
from ferrymq_broker.nodes.topics.subscription import Subscription
from ferrymq_broker.nodes.topics.topic import Topic


def rule_mistakes(config: Config) -> list[ConfigMistake]:
    """Return the mistakes in the filters and actions of all declared rules."""
    found = list(_mistakes(config, ()))
    for at, host in enumerate(config.virtual_host):
        found += _mistakes(host, ("virtual-host", at))
    return found


def declare_subscriptions(tables: Tables, space: AddressSpace) -> None:
    """Make the declared subscriptions of one virtual host, whose topics exist. Raises
    `BrokerError`."""
    for entry in tables.subscription:
        topic = space.nodes.get(entry.topic)
        if isinstance(topic, Topic):
            _declare(topic, entry)


def _mistakes(tables: Tables, place: Location) -> Iterator[ConfigMistake]:
    for at, entry in enumerate(tables.subscription):
        for number, rule in enumerate(entry.rule):
            try:
                make_rule(rule.name, rule.described())
            except BrokerError as error:
                here = (*place, "subscription", at, "rule", number)
                yield ConfigMistake(here, f"the rule {rule.name!r}: {error.description}")


def _declare(topic: Topic, entry: DeclaredSubscription) -> None:
    subscription = topic.declared_subscription(entry.name)
    if subscription is None:
        subscription = topic.declare_subscription(entry.name)
    if not entry.rule:
        return
    wanted: dict[str, SubscriptionRule] = {
        rule.name: make_rule(rule.name, rule.described()) for rule in entry.rule
    }
    follow_rules(topic, subscription, wanted)


def follow_rules(
    topic: Topic, subscription: Subscription, declared: dict[str, SubscriptionRule]
) -> None:
    """Give a subscription the declared rules, by name, and no others."""
    wanted = dict(declared)
    present = [] if subscription.rules is None else subscription.rules.all()
    for rule in present:
        same = wanted.get(rule.name)
        if same is not None and same.describe() == rule.describe():
            del wanted[rule.name]
        else:
            topic.remove_rule(subscription, rule.name)
    for rule in wanted.values():
        topic.add_rule(subscription, rule)
