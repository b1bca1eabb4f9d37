"""Rules: who may, or may not, do what where. The first that says something of it decides."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.patterns import AddressPattern, node_of
from ferrymq_broker.access.rights import ALL

# Kinds of subjects.
ANYBODY: Final = 0
USER: Final = 1
GROUP: Final = 2
CLAIM: Final = 3
# Who has not said who he is.
ANONYMOUS: Final = 4
# Who has proved to have a shared access key.
KEY: Final = 5


@final
class Subject:
    """Whom a rule is about. `value` is that of a claim; ``""`` for any."""

    __slots__ = ("kind", "name", "value")

    def __init__(self, kind: int, name: str = "", value: str = "") -> None:
        self.kind = kind
        self.name = name
        self.value = value

    def is_meant(self, identity: UserIdentity) -> bool:
        """Whether somebody is, or is one of, whom it names."""
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
    """The rights `may` are given, those in `may_not` refused, to all of `who`, at all of `where`.

    No right is in both.
    """

    __slots__ = ("who", "may", "may_not", "where")

    def __init__(
        self, who: list[Subject], may: int, may_not: int, where: list[AddressPattern]
    ) -> None:
        self.who = who
        self.may: i64 = may
        self.may_not: i64 = may_not
        self.where = where

    def is_about(self, identity: UserIdentity) -> bool:
        """Whether somebody is meant."""
        return any(subject.is_meant(identity) for subject in self.who)

    def bind(self, identity: UserIdentity) -> Rule | None:
        """The rule with the user's name in its patterns; None if it is not about him."""
        if not self.is_about(identity):
            return None
        where: list[AddressPattern] = []
        for pattern in self.where:
            bound = pattern.bind(identity.user)
            if bound is not None:
                where.append(bound)
        return Rule(self.who, int(self.may), int(self.may_not), where) if where else None

    def matches(self, address: str, node: str) -> bool:
        """Whether an address is meant; `node` is the same without a part."""
        return any(pattern.matches(address if pattern.parted else node) for pattern in self.where)


@final
class RuleVerdict:
    """What rules say of one address: what they give, and what they refuse in so many words."""

    __slots__ = ("given", "refused")

    def __init__(self, given: i64, refused: i64) -> None:
        self.given: i64 = given
        self.refused: i64 = refused


@final
class BoundRules:
    """The rules of a virtual host that are about one identity, in their order."""

    __slots__ = ("rules",)

    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules

    def gives_anything(self) -> bool:
        """Whether there is anything at all that is given."""
        return any(rule.may != 0 for rule in self.rules)

    def names_parts(self) -> bool:
        """Whether one of them is for parts of a node."""
        return any(pattern.parted for rule in self.rules for pattern in rule.where)

    def judge(self, address: str, named: str = "") -> RuleVerdict:
        """Every right on its own: the first rule that names it at this address decides, or at what
        the client calls the address, if that is `named`.

        A rule for a node is one for all its parts; of a rule for parts the node hears nothing.
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
    """Those of the rules that are about this identity."""
    bound: list[Rule] = []
    for rule in rules:
        mine = rule.bind(identity)
        if mine is not None:
            bound.append(mine)
    return BoundRules(bound)
