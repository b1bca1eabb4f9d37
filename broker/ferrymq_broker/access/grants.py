"""What tokens have given one connection (claims-based security)."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.patterns import PART
from ferrymq_broker.access.rules import BoundRules


def is_within(scope: str, address: str) -> bool:
    """Return whether an address is `scope`, below it, or a part of it. Everything is within ``""``.

    ``q1`` contains ``q1/x`` and ``q1::x``, and not ``q10``.
    """
    if not scope or address == scope:
        return True
    if address.startswith(f"{scope}/"):
        return True
    # Of more than two colons the first belong to the node's name, which is another one then.
    return address.startswith(f"{scope}{PART}") and not address.startswith(f"{scope}{PART}:")


@final
class Grant:
    """One token: at the address `scope`, and at those below it, its bearer may do what the rules
    say of `identity`. An empty scope is everything.

    `meaning` is what the scope was an alias of when the token came, and covered in the same way;
    None if it was no alias, or one that leads out of what the token was signed for.
    """

    __slots__ = ("scope", "meaning", "identity", "rules")

    def __init__(
        self, scope: str, identity: UserIdentity, rules: BoundRules, meaning: str | None = None
    ) -> None:
        self.scope = scope
        self.meaning = meaning
        self.identity = identity
        self.rules = rules

    def covers(self, address: str) -> bool:
        """Return whether the token is for this address: its scope, or something below that."""
        return is_within(self.scope, address) or (
            self.meaning is not None and is_within(self.meaning, address)
        )


@final
class Grants:
    """The tokens of one connection, by scope: a newer one for the same scope takes its place."""

    __slots__ = ("_grants",)

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def has(self, scope: str) -> bool:
        """Whether there is one for this scope."""
        return scope in self._grants

    def has_user(self, user: str) -> bool:
        """Whether there is one of this user's."""
        return any(grant.identity.user == user for grant in self._grants.values())

    def put(self, grant: Grant) -> None:
        """A token has come."""
        self._grants[grant.scope] = grant

    def next_expiry(self) -> float:
        """When the first of them expires, in seconds since the Unix epoch; 0 for never."""
        first = 0.0
        for grant in self._grants.values():
            expires = grant.identity.expires
            if expires != 0.0 and (first == 0.0 or expires < first):
                first = expires
        return first

    def expire(self, epoch_seconds: float) -> list[Grant]:
        """Take out those whose time is over."""
        over = [
            grant
            for grant in self._grants.values()
            if 0.0 < grant.identity.expires <= epoch_seconds
        ]
        for grant in over:
            del self._grants[grant.scope]
        return over

    def reaches(self, right: i64, name: str, address: str) -> bool:
        """Return whether a token that gives the right at `name` is for `address` as well."""
        return any(
            grant.covers(name)
            and grant.covers(address)
            and (grant.rules.judge(name).given & right) != 0
            for grant in self._grants.values()
        )

    def given(self, address: str) -> i64:
        """The rights that all tokens together give at an address."""
        rights: i64 = 0
        for grant in self._grants.values():
            if grant.covers(address):
                rights |= grant.rules.judge(address).given
        return rights
