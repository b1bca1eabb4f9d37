"""The policy of a node as the settings of a configuration file that make it."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.config.nodes import kind_of, policy_attributes
from ferrymq_broker.config.units import format_duration
from ferrymq_broker.values.policy import (
    ExchangePolicy,
    NodePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)

# Settings in milliseconds, which the file has as text with a unit.
_DURATIONS: Final = (
    "message-ttl",
    "duplicate-window",
    "auto-delete",
    "max-age",
    "lock-duration",
    "target-latency",
)
_DEFAULTS: Final = {
    "queue": policy_attributes(QueuePolicy()),
    "topic": policy_attributes(TopicPolicy()),
    "stream": policy_attributes(StreamPolicy()),
    "exchange": policy_attributes(ExchangePolicy()),
}


def stated_settings(policy: NodePolicy) -> dict[str, object]:
    """Return the settings that differ from the defaults, by their keys in the file."""
    return _different(policy_attributes(policy), _DEFAULTS[kind_of(policy)])


def _different(settings: dict[str, object], defaults: dict[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in settings.items():
        usual = defaults[key]
        if isinstance(value, dict) and isinstance(usual, dict):
            inner = _different(value, usual)
            if inner:
                found[key] = inner
        elif value != usual:
            found[key] = _stated(key, value)
    return found


def _stated(key: str, value: object) -> object:
    if key in _DURATIONS and isinstance(value, int):
        return format_duration(value) if value >= 0 else False
    return value
