"""The rights that tokens give one connection (claims-based security)."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.rules import BoundRules, Rule, bind_rules
from ferrymq_broker.values.names import PART


def is_within(scope: str, address: str) -> bool:
    """Return whether an address is `scope`, below it, or a part of it. ``""`` contains everything.

    ``q1`` contains ``q1/x`` and ``q1::x``, but not ``q10``.
    """
    if not scope or address == scope:
        return True
    if address.startswith(f"{scope}/"):
        return True
    # With more than two colons the first ones belong to the node's name, which is then another
    # node.
    return address.startswith(f"{scope}{PART}") and not address.startswith(f"{scope}{PART}:")


@final
class Grant:
    """A token. Its bearer has the rights that the rules give `identity`, at the address `scope` and
    at addresses below it. An empty scope contains all addresses.

    `meaning` is the address that `scope` was an alias of when the token came; the token covers it
    in the same way. It is None if the scope was no alias, or an alias of an address for which the
    token was not signed.
    """

    __slots__ = ("scope", "meaning", "identity", "rules")

    def __init__(
        self, scope: str, identity: UserIdentity, rules: BoundRules, meaning: str | None = None
    ) -> None:
        self.scope: str = scope
        self.meaning: str | None = meaning
        self.identity: UserIdentity = identity
        self.rules: BoundRules = rules

    def covers(self, address: str) -> bool:
        """Return whether the token is for this address."""
        return is_within(self.scope, address) or (
            self.meaning is not None and is_within(self.meaning, address)
        )


@final
class Grants:
    """The tokens of one connection, by scope. A new token replaces one of the same scope."""

    __slots__ = ("_grants",)

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def has(self, scope: str) -> bool:
        """Return whether there is a token for this scope."""
        return scope in self._grants

    def has_user(self, user: str) -> bool:
        """Return whether there is a token of this user."""
        return any(grant.identity.user == user for grant in self._grants.values())

    def put(self, grant: Grant) -> None:
        """Add a token."""
        self._grants[grant.scope] = grant

    def next_expiry(self) -> float:
        """Return when the first token expires, in seconds since the Unix epoch; 0 for never."""
        first = 0.0
        for grant in self._grants.values():
            expires = grant.identity.expires
            if expires != 0.0 and (first == 0.0 or expires < first):
                first = expires
        return first

    def expire(self, epoch_seconds: float) -> list[Grant]:
        """Remove the tokens that have expired, and return them."""
        over = [
            grant
            for grant in self._grants.values()
            if 0.0 < grant.identity.expires <= epoch_seconds
        ]
        for grant in over:
            del self._grants[grant.scope]
        return over

    def follow(self, rules_for: Callable[[UserIdentity], list[Rule]]) -> None:
        """Take the present rules of the virtual host for the bearers of all tokens."""
        for grant in self._grants.values():
            grant.rules = bind_rules(rules_for(grant.identity), grant.identity)

    def are_subject_of(self, rule: Rule) -> bool:
        """Return whether a rule is about the bearer of any token."""
        return any(rule.is_about(grant.identity) for grant in self._grants.values())

    def reaches(self, right: i64, name: str, address: str) -> bool:
        """Return whether a token that gives the right at `name` is for `address` as well."""
        return any(
            grant.covers(name)
            and grant.covers(address)
            and (grant.rules.judge(name).given & right) != 0
            for grant in self._grants.values()
        )

    def given(self, address: str) -> i64:
        """Return the rights that all tokens together give at an address."""
        rights: i64 = 0
        for grant in self._grants.values():
            if grant.covers(address):
                rights |= grant.rules.judge(address).given
        return rights
