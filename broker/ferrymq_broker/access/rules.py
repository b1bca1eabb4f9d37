"""Access rules. For each right the first rule that gives or refuses it decides."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.patterns import AddressPattern, node_of
from ferrymq_broker.values.rights import ALL

# Kinds of subjects.
ANYBODY: Final = 0
USER: Final = 1
GROUP: Final = 2
CLAIM: Final = 3
# Clients without a name.
ANONYMOUS: Final = 4
# Clients with a token that a shared access key has signed.
KEY: Final = 5


@final
class Subject:
    """A kind of client that a rule applies to. `value` is the value of a claim; ``""`` for any."""

    __slots__ = ("kind", "name", "value")

    def __init__(self, kind: int, name: str = "", value: str = "") -> None:
        self.kind: int = kind
        self.name: str = name
        self.value: str = value

    def is_meant(self, identity: UserIdentity) -> bool:
        """Return whether the subject includes this identity."""
        kind = self.kind
        if kind == ANYBODY:
            return True
        if kind == USER:
            return identity.user is not None and identity.user == self.name
        if kind == GROUP:
            return self.name in identity.groups
        if kind == CLAIM:
            values = identity.claims.get(self.name)
            return values is not None and (not self.value or self.value in values)
        if kind == KEY:
            return identity.key == self.name
        return identity.user is None and not identity.key


@final
class Rule:
    """A rule: gives the rights in `may` and refuses those in `may_not`, to `who`, at `where`.

    No right is in both.
    """

    __slots__ = ("who", "may", "may_not", "where")

    def __init__(
        self, who: list[Subject], may: int, may_not: int, where: list[AddressPattern]
    ) -> None:
        self.who: list[Subject] = who
        self.may: i64 = may
        self.may_not: i64 = may_not
        self.where: list[AddressPattern] = where

    def is_about(self, identity: UserIdentity) -> bool:
        """Return whether the rule applies to this identity."""
        return any(subject.is_meant(identity) for subject in self.who)

    def bind(self, identity: UserIdentity) -> Rule | None:
        """Return the rule with the user's name in its patterns; None if it does not apply."""
        if not self.is_about(identity):
            return None
        where: list[AddressPattern] = []
        for pattern in self.where:
            bound = pattern.bind(identity.user)
            if bound is not None:
                where.append(bound)
        return Rule(self.who, int(self.may), int(self.may_not), where) if where else None

    def matches(self, address: str, node: str) -> bool:
        """Return whether the rule applies to an address; `node` is the address without its part."""
        return any(pattern.matches(address if pattern.parted else node) for pattern in self.where)


@final
class RuleVerdict:
    """The rights that rules give at one address, and the rights that they refuse explicitly."""

    __slots__ = ("given", "refused")

    def __init__(self, given: i64, refused: i64) -> None:
        self.given: i64 = given
        self.refused: i64 = refused


@final
class BoundRules:
    """The rules of a virtual host that apply to one identity, in their order."""

    __slots__ = ("rules",)

    def __init__(self, rules: list[Rule]) -> None:
        self.rules: list[Rule] = rules

    def gives_anything(self) -> bool:
        """Return whether any rule gives a right."""
        return any(rule.may != 0 for rule in self.rules)

    def names_parts(self) -> bool:
        """Return whether any rule has a pattern of parts."""
        return any(pattern.parted for rule in self.rules for pattern in rule.where)

    def judge(self, address: str, named: str = "") -> RuleVerdict:
        """Judge each right on its own. The first rule decides that names the right and matches the
        address, or `named`, the client's name for the address.

        A rule for a node applies to all its parts; a rule for parts does not apply to the node.
        """
        given: i64 = 0
        refused: i64 = 0
        node = node_of(address)
        for rule in self.rules:
            if not rule.matches(address, node) and not (named and rule.matches(named, node)):
                continue
            given |= rule.may & ~refused
            refused |= rule.may_not & ~given
            if (given | refused) == ALL:
                break
        return RuleVerdict(given, refused)


def bind_rules(rules: list[Rule], identity: UserIdentity) -> BoundRules:
    """Return the rules that apply to this identity."""
    bound: list[Rule] = []
    for rule in rules:
        mine = rule.bind(identity)
        if mine is not None:
            bound.append(mine)
    return BoundRules(bound)
