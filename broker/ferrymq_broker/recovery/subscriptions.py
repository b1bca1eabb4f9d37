"""Recovery of subscriptions from the store: their filters, owners, timeouts and rules."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.broker import Broker
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.filters.filter import Filter
from ferrymq_broker.filters.parse import parse_filters
from ferrymq_broker.filters.rule import make_rule
from ferrymq_broker.nodes.stored_policy import read_queue_policy
from ferrymq_broker.nodes.topics.subscription import Subscription
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.recovery.recovered_state import Fields, RecoveredState
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import decode_map
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import (
    DUPLICATE,
    ENTRY,
    RULE,
    SCHEDULED,
    SESSION,
    STATE,
    SUBSCRIPTION,
)

# The connection that set a `no-local` filter is gone; no message has this origin.
_NOBODY: Final = -2


def recover_subscriptions(broker: Broker, store: Store, found: RecoveredState) -> None:
    """Restore all durable subscriptions. Raises `StoreDamaged`."""
    changes = broker.agenda.changes
    ruled: dict[int, Subscription] = {}
    for record in store.scan(SUBSCRIPTION):
        changes.has_id(record.number)
        if record.id in found.aside:
            found.aside.add(record.number)
            continue
        topic = found.nodes.get(record.id)
        if not isinstance(topic, Topic):
            log.warning(
                "a subscription is dropped: its topic is gone",
                topic=record.id,
                subscription=record.number,
            )
            changes.drop(SUBSCRIPTION, record.id, record.number)
            for table in (ENTRY, STATE, SCHEDULED, DUPLICATE, RULE, SESSION):
                changes.drop_range(table, record.number, 0, LAST)
            # Later warnings about this subscription are not needed.
            found.aside.add(record.number)
            continue
        subscription = _recover(topic, record.number, decode_map(record.value), found)
        if subscription.rules is not None:
            ruled[record.number] = subscription
    for record in store.scan(RULE):
        owner = ruled.get(record.id)
        if owner is not None:
            _recover_rule(owner, record.number, decode_map(record.value))
        elif record.id not in found.aside:
            log.warning("a rule is dropped: its subscription is gone", subscription=record.id)
            changes.drop_range(RULE, record.id, 0, LAST)


def _recover_rule(subscription: Subscription, number: int, record: dict[str, object]) -> None:
    fields = Fields(f"rule {number} of {subscription.address[:200]!r}", record)
    name = fields.text("name")
    try:
        rule = make_rule(name, {key: value for key, value in record.items() if key != "name"})
    except BrokerError as error:
        raise StoreDamaged(f"{fields.what}, {name[:200]!r}: {error}") from error
    rules = subscription.rules
    if rules is None or rules.get(name) is not None:
        raise fields.wrong("name")
    rule.number = number
    subscription.rule_number = max(int(subscription.rule_number), number)
    rules.add(rule)


def _recover(
    topic: Topic, id: int, record: dict[str, object], found: RecoveredState
) -> Subscription:
    fields = Fields(f"subscription {id} of {topic.address[:200]!r}", record)
    filters = fields.named("filters")
    name = fields.text("name")
    if not name or not fields.text("key"):
        raise fields.wrong("key" if name else "name")
    try:
        policy = read_queue_policy(record.get("policy"))
        subscription = topic.restore_subscription(
            id,
            name,
            fields.text("key"),
            _filter(filters, topic.space.position_words),
            policy,
            record,
        )
    except (StoreDamaged, BrokerError) as error:
        raise StoreDamaged(f"{fields.what}, {name[:200]!r}: {error}") from error
    subscription.filters = filters
    subscription.declared = fields.flag("declared")
    subscription.shared = fields.flag("shared")
    subscription.everywhere = fields.flag("everywhere")
    subscription.container = fields.text("container")
    subscription.user = None if record.get("user") is None else fields.text("user")
    subscription.link_name = fields.text("link-name")
    subscription.expiry_policy = fields.text("expiry-policy")
    subscription.timeout = fields.number("timeout")
    subscription.idle_since = fields.number("idle-since")
    if fields.flag("ruled"):
        topic.restore_rules(subscription)
    topic.restored(subscription)
    found.queues[id] = subscription.queue
    return subscription


def _filter(asked: dict[str, object], words: dict[object, int]) -> Filter | None:
    """Return the predicate of the requested filters. Raises `BrokerError`."""
    filters = parse_filters(asked, _NOBODY, words)
    filters.decline_position()
    return filters.predicate
