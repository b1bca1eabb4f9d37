"""Permissions of RabbitMQ as access rules of the broker.

| permission | rights at the names that match |
|---|---|
| configure | create, delete and manage queues and exchanges |
| write | send to queues and exchanges; a name that matches ``amq.default`` allows every queue |
| read | receive, browse and dead-letter at queues; receive at exchanges, which is binding to them |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ferrymq_broker.access.access import NEW_DYNAMIC
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.values.names import PART
from ferrymq_broker.values.wildcards import pattern_codes, wildcards_match
from ferrymq_rabbitmq.address_v2 import EXCHANGES, exchange_address
from ferrymq_rabbitmq.definitions.document import (
    Entry,
    HostDefinitions,
    Omission,
    text_of,
)
from ferrymq_rabbitmq.definitions.name_patterns import (
    NamePattern,
    NoPatternError,
    name_patterns,
    wildcard_text,
)

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
_METRICS: Final = "$metrics"
_EVERYTHING: Final[NamePattern] = (("*", False),)
_DEFAULT_EXCHANGE: Final = "amq.default"
# The rights of each permission.
_RIGHTS: Final = {
    "configure": ("create", "delete", "manage"),
    "write": ("send",),
    "read": ("receive", "browse", "dead-letter"),
}


@dataclass(frozen=True, slots=True)
class StatedRule:
    """A rule as the configuration states it."""

    who: str
    where: tuple[str, ...]
    may: tuple[str, ...] = ()
    may_not: tuple[str, ...] = ()


def rules_of(host: HostDefinitions, users: set[str]) -> tuple[list[StatedRule], list[Omission]]:
    """Return the rules for the permissions of a virtual host, and what has no equal."""
    rules: list[StatedRule] = []
    omitted: list[Omission] = []
    for entry in host.topic_permissions:
        rules += _topic_rules(host, entry, users, omitted)
    for entry in host.permissions:
        user = text_of(entry, "user", "permissions")
        if user in users:
            for permission in _RIGHTS:
                rules += _rules(host, entry, user, permission, omitted)
    return rules, omitted


def rules_of_tags(default: bool) -> list[StatedRule]:
    """Return the rules for the tags of users, which are groups here. The metrics belong to the
    `default` virtual host."""
    rules = [StatedRule(f"group:{ADMINISTRATOR}", (ADDRESS,), ("manage",))]
    if default:
        for tag in (ADMINISTRATOR, MONITORING):
            rules.append(StatedRule(f"group:{tag}", (_METRICS,), ("manage",)))
    return rules


def _rules(
    host: HostDefinitions, entry: Entry, user: str, permission: str, omitted: list[Omission]
) -> list[StatedRule]:
    expression = text_of(entry, permission, f"permissions of {user!r}")
    try:
        patterns = name_patterns(expression)
        places = _places(patterns)
    except NoPatternError as error:
        reason = f"{permission}: {error}; the user does not get this permission"
        omitted.append(Omission("permission", user, host.name, reason))
        return []
    if not patterns:
        return []
    who, rights = f"user:{user}", _RIGHTS[permission]
    rules = [StatedRule(who, places, rights)]
    if permission == "configure":
        # For replies: a receiver with a dynamic source.
        rules.append(StatedRule(who, (NEW_DYNAMIC,), ("create",)))
    if permission == "write" and _EVERYTHING not in patterns and _names_default(patterns):
        # What is sent to the default exchange goes to the queue that it names.
        rules.append(StatedRule(who, (f"{EXCHANGES}*",), may_not=rights))
        rules.append(StatedRule(who, ("*",), rights))
    return rules


def _topic_rules(
    host: HostDefinitions, entry: Entry, users: set[str], omitted: list[Omission]
) -> list[StatedRule]:
    """Return the rules for the routing keys with which a user may publish to an exchange."""
    user = text_of(entry, "user", "topic_permissions")
    exchange = text_of(entry, "exchange", "topic_permissions")
    if user not in users:
        return []
    who, address = f"user:{user}", exchange_address(exchange or _DEFAULT_EXCHANGE)
    name = f"{user} at {exchange}"
    if str(entry.get("read", ".*")) not in (".*", "^.*$"):
        reason = "read: the keys of bindings are not restricted here"
        omitted.append(Omission("topic permission", name, host.name, reason))
    try:
        patterns = name_patterns(text_of(entry, "write", "topic_permissions"))
        keys = tuple(f"{address}{PART}{wildcard_text(pattern)}" for pattern in patterns)
    except NoPatternError as error:
        reason = f"write: {error}; the user may not publish to the exchange"
        omitted.append(Omission("topic permission", name, host.name, reason))
        patterns, keys = [], ()
    if _EVERYTHING in patterns:
        return []
    if not _may_write(host, user, exchange):
        keys = ()
    allowed = [StatedRule(who, keys, ("send",))] if keys else []
    return [*allowed, StatedRule(who, (address,), may_not=("send",))]


def _may_write(host: HostDefinitions, user: str, exchange: str) -> bool:
    """Return whether a user has the permission to write to an exchange."""
    try:
        return any(
            entry.get("user") == user
            and any(
                wildcards_match(pattern_codes(wildcard_text(pattern)), exchange)
                for pattern in name_patterns(str(entry.get("write", "")))
            )
            for entry in host.permissions
        )
    except NoPatternError:
        return False


def _places(patterns: list[NamePattern]) -> tuple[str, ...]:
    """Return the addresses of the queues and exchanges whose names match."""
    places: list[str] = []
    for pattern in patterns:
        places.append(wildcard_text(pattern))
        if pattern != _EVERYTHING:
            places.append(EXCHANGES + wildcard_text(pattern, quoted=True))
    return tuple(places)


def _names_default(patterns: list[NamePattern]) -> bool:
    """Return whether a pattern matches the name of the default exchange."""
    return any(
        wildcards_match(pattern_codes(wildcard_text(pattern)), _DEFAULT_EXCHANGE)
        for pattern in patterns
    )
