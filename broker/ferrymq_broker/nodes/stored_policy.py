"""Policies in records of the store: maps from the names of settings to their values.

A setting that is missing in a record has its default; a setting that this version does not know is
ignored, because settings change between versions.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.values.policy import (
    AUTO_DELETES,
    EXCHANGE_TYPES,
    OVERFLOWS,
    ExchangePolicy,
    NodePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)


def policy_fields(policy: NodePolicy) -> dict[str, object]:
    """Return the fields from which `read_policy` makes the policy again."""
    result: dict[str, object] = {}
    for setting in fields(policy):
        value = getattr(policy, setting.name)
        if isinstance(value, QueuePolicy):
            value = policy_fields(value)
        elif isinstance(value, tuple):
            value = list(value)
        result[setting.name] = value
    return result


def read_policy(kind: str, record: object) -> NodePolicy:
    """Return the policy of a node of this kind. Raises `StoreDamaged` for impossible values."""
    if kind == "queue":
        return read_queue_policy(record)
    if kind == "topic":
        known = _known(TopicPolicy(), record)
        known["subscription"] = read_queue_policy(known["subscription"])
        return TopicPolicy(**known)
    if kind == "stream":
        return StreamPolicy(**_known(StreamPolicy(), record))
    if kind == "exchange":
        exchange = ExchangePolicy(**_known(ExchangePolicy(), record))
        if exchange.type not in EXCHANGE_TYPES:
            raise StoreDamaged(f"a stored exchange has the unknown type {exchange.type!r}")
        return exchange
    raise StoreDamaged(f"a stored node has the unknown kind {kind!r}")


def read_queue_policy(record: object) -> QueuePolicy:
    """Return the policy of a queue. Raises `StoreDamaged`."""
    if isinstance(record, QueuePolicy):
        return record
    policy = QueuePolicy(**_known(QueuePolicy(), record))
    if policy.overflow not in OVERFLOWS:
        raise StoreDamaged(f"a stored policy has the unknown overflow {policy.overflow!r}")
    if policy.auto_delete_when not in AUTO_DELETES:
        raise StoreDamaged(
            f"a stored policy has the unknown auto-delete-when {policy.auto_delete_when!r}"
        )
    return policy


def _known(default: NodePolicy, record: object) -> dict[str, Any]:
    """Return the known settings of a policy, from the record or by default."""
    if not isinstance(record, dict):
        raise StoreDamaged(f"a stored policy is of type {type(record).__name__}; it must be a map")
    known: dict[str, Any] = {}
    for setting in fields(default):
        usual = getattr(default, setting.name)
        value = record.get(setting.name, usual)
        if isinstance(usual, tuple):
            fits = isinstance(value, list) and all(isinstance(name, str) for name in value)
            value = tuple(value) if fits else value
        elif isinstance(usual, bool) or not isinstance(usual, int):
            fits = isinstance(value, dict if isinstance(usual, QueuePolicy) else type(usual))
        else:
            fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits and value is not usual:
            raise StoreDamaged(
                f"the setting {setting.name!r} of a stored policy has the invalid value {value!r}"
            )
        known[setting.name] = value
    return known
