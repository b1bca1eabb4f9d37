"""Checks of streams whose partitions are on several brokers."""

from __future__ import annotations

from collections.abc import Mapping

from ferrymq.partitioning import is_at, parse_placement
from ferrymq_broker.config.declarations import Policy, Tables
from ferrymq_broker.config.errors import ConfigMistake, Location
from ferrymq_broker.config.policy_resolution import resolve_policy
from ferrymq_broker.values.policy import StreamPolicy


def check_placements(
    advertised: str | None,
    personality: str,
    places: list[tuple[Tables, Location]],
    policies: Mapping[str, Policy],
) -> list[ConfigMistake]:
    """Return the mistakes about streams on several brokers. `advertised` is the URL of this
    broker, `personality` the name of its personality; `places` are the tables of each virtual host
    with their place in the file."""
    mistakes: list[ConfigMistake] = []
    for tables, place in places:
        for at, entry in enumerate(tables.stream):
            policy = resolve_policy("stream", entry, policies)
            assert isinstance(policy, StreamPolicy)
            if not policy.partitions_on:
                continue
            reason = _reason(advertised, personality, policy)
            here = (*place, "stream", at, "partitions-on")
            if reason:
                mistakes.append(ConfigMistake(here, f"{entry.address!r}: {reason}"))
            if "partitions" in entry.model_fields_set and entry.partitions != policy.partitions:
                reason = f"the entries have {policy.partitions} partitions, not {entry.partitions}"
                mistakes.append(ConfigMistake(here, f"{entry.address!r}: {reason}"))
    return mistakes


def _reason(advertised: str | None, personality: str, policy: StreamPolicy) -> str:
    if personality:
        return f"clients of {personality!r} cannot be sent to other brokers"
    if advertised is None:
        return "this broker does not know which entry it is: set advertise to its URL"
    if not any(is_at(urls, advertised) for urls in parse_placement(policy.partitions_on)):
        return f"no entry has the URL of this broker, {advertised}"
    return ""
