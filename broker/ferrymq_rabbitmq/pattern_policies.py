"""Policies as RabbitMQ has them: settings for all queues or exchanges whose names match a pattern.

A policy counts when a queue or an exchange is declared, as if its settings were arguments. The
arguments that the client gave itself stay what the queue is compared with when it is declared
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ferrymq_rabbitmq.arguments import (
    ALTERNATE,
    CLASSIC,
    QUORUM,
    STREAM,
    ArgumentError,
    acts,
    queue_policy,
    queue_type,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Space

EXCHANGE: Final = "exchange"
QUEUES: Final = (CLASSIC, QUORUM, STREAM)
# What each value of apply-to is for.
APPLY_TO: Final = {
    "all": (*QUEUES, EXCHANGE),
    "queues": QUEUES,
    "classic_queues": (CLASSIC,),
    "quorum_queues": (QUORUM,),
    "streams": (STREAM,),
    "exchanges": (EXCHANGE,),
}
_KEYS: Final = ("name", "virtual-host", "pattern", "apply-to", "priority", "definition", "operator")


@dataclass(frozen=True, slots=True)
class PatternPolicy:
    """A policy. `pattern` is a regular expression that a part of the name must match. Of several
    policies the one with the highest `priority` counts. An `operator` policy counts in addition,
    and only makes limits smaller. Raises ValueError for a wrong pattern or `apply_to`."""

    name: str
    pattern: str
    definition: Mapping[str, object]
    apply_to: str = "all"
    priority: int = 0
    operator: bool = False
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.apply_to not in APPLY_TO:
            raise ValueError(f"apply-to: {self.apply_to!r} is none of {', '.join(APPLY_TO)}")
        try:
            compiled = re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"pattern: {self.pattern!r}: {error}") from None
        object.__setattr__(self, "_pattern", compiled)

    def fits(self, kind: str, name: str) -> bool:
        """Return whether the policy is for a name of a kind: a type of queue, or `EXCHANGE`."""
        return kind in APPLY_TO[self.apply_to] and self._pattern.search(name) is not None


class PatternPolicies:
    """The policies of one virtual host."""

    def __init__(self, policies: Iterable[PatternPolicy] = ()) -> None:
        self._policies = {(policy.name, policy.operator): policy for policy in policies}

    def all(self, operator: bool = False) -> list[PatternPolicy]:
        """Return the policies, or the operator policies, by name."""
        found = (each for each in self._policies.values() if each.operator == operator)
        return sorted(found, key=lambda policy: policy.name)

    def everything(self) -> list[PatternPolicy]:
        """Return the policies and the operator policies."""
        return list(self._policies.values())

    def get(self, name: str, operator: bool = False) -> PatternPolicy | None:
        """Return the policy of a name; None if there is none."""
        return self._policies.get((name, operator))

    def put(self, policy: PatternPolicy) -> None:
        """Add a policy; it replaces one of the same name."""
        self._policies[policy.name, policy.operator] = policy

    def drop(self, name: str, operator: bool = False) -> None:
        """Remove a policy, if there is one of this name."""
        self._policies.pop((name, operator), None)

    def copy(self) -> PatternPolicies:
        """Return the same policies, which change independently."""
        return PatternPolicies(self.everything())

    def find(self, kind: str, name: str, operator: bool = False) -> PatternPolicy | None:
        """Return the policy that counts for a name of a kind; None if there is none."""
        found = [
            policy
            for policy in self._policies.values()
            if policy.operator == operator and policy.fits(kind, name)
        ]
        return max(found, key=lambda policy: policy.priority, default=None)

    def queue_arguments(self, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a queue completed by its policies. A policy that does not fit the
        arguments does not count."""
        type = queue_type(arguments)
        merged = dict(arguments)
        for operator in (False, True):
            policy = self.find(type, name, operator)
            if policy is not None:
                try:
                    merged = merge_policy(type, merged, policy.definition)
                except ArgumentError:
                    continue
        return merged

    def exchange_arguments(self, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of an exchange completed by its policy."""
        policy = self.find(EXCHANGE, name)
        alternate = None if policy is None else policy.definition.get(ALTERNATE)
        if not isinstance(alternate, str) or ALTERNATE in arguments:
            return dict(arguments)
        return {**arguments, ALTERNATE: alternate}


def merge_policy(
    type: str, arguments: Mapping[str, object], definition: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments of a queue with the settings of a policy. Of two numbers the smaller one
    counts; otherwise the argument does. Settings that the type does not have are left out. Raises
    `ArgumentError` if the result is no valid queue."""
    merged = dict(arguments)
    for key, value in definition.items():
        name = f"x-{key}"
        own = merged.get(name)
        if not acts(type, name):
            continue
        if isinstance(own, int) and isinstance(value, int):
            merged[name] = min(own, value)
        elif own is None:
            merged[name] = value
    queue_policy(merged)
    return merged


def policies_of(space: Space) -> PatternPolicies:
    """Return the policies of a virtual host; none if its personality is another one."""
    policies = getattr(space.personality, "policies", None)
    return policies if isinstance(policies, PatternPolicies) else PatternPolicies()


def read_policies(setting: object, vhost: str) -> PatternPolicies:
    """Return the policies of a virtual host by the setting ``[[personality.policy]]``. Raises
    ValueError."""
    if not isinstance(setting, list):
        raise ValueError("policy: a list of tables is needed: [[personality.policy]]")
    found = PatternPolicies()
    for table in setting:
        if not isinstance(table, dict):
            raise ValueError("policy: a table is needed: [[personality.policy]]")
        unknown = [key for key in table if key not in _KEYS]
        if unknown:
            raise ValueError(f"policy: unknown key {unknown[0]!r}; the keys are {', '.join(_KEYS)}")
        policy = policy_of(table)
        if table.get("virtual-host", "/") == vhost:
            found.put(policy)
    return found


def policy_of(table: Mapping[str, object], operator: bool = False) -> PatternPolicy:
    """Return the policy of a table with RabbitMQ's keys. Raises ValueError."""
    name, pattern = table.get("name"), table.get("pattern")
    definition = table.get("definition")
    if (
        not isinstance(name, str)
        or not isinstance(pattern, str)
        or not isinstance(definition, dict)
    ):
        raise ValueError("policy: name, pattern and definition are needed")
    priority = table.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ValueError(f"policy {name!r}: priority: {priority!r} is no number")
    try:
        return PatternPolicy(
            name,
            pattern,
            definition,
            str(table.get("apply-to", "all")),
            priority,
            operator or table.get("operator") is True,
        )
    except ValueError as error:
        raise ValueError(f"policy {name!r}: {error}") from None
