"""The rights of one connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.access.grants import Grants
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.rules import BoundRules, Rule, bind_rules
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.values.names import DYNAMIC
from ferrymq_broker.values.rights import ALL, SEND, WIDTH, name_of

if TYPE_CHECKING:
    from ferrymq_broker.access.grants import Grant

# The address at which `create` is needed for a dynamic node.
NEW_DYNAMIC: Final = "dynamic.*"
# Rights for the fences of a group are checked at this prefix and the group's name.
FENCE: Final = "$fence/"

UNAUTHORIZED: Final = "amqp:unauthorized-access"

# The most addresses in the cache, and the most characters of each. A client that names new
# addresses all the time gets no benefit from the cache, and cannot make it larger.
_MOST: Final = 1024
_MOST_CHARS: Final = 256
# With rules, a longer address gets no rights.
_LONGEST: Final = 2048


@final
class ConnectionAccess:
    """The rights of `identity` in one virtual host, by its rules and by tokens.

    `rules` is None if the whole broker has no rules and no tokens: then every client has all
    rights. Otherwise a right has to be given by a rule or a token, and a token cannot give a right
    that a rule refuses.

    Addresses are addresses of nodes, with aliases resolved, possibly with a part: ``NODE::PART``.
    `on_grant` is called for each new token.
    """

    __slots__ = ("identity", "open", "grants", "on_grant", "_rules", "_lapsed", "_known")

    def __init__(self, identity: UserIdentity, rules: list[Rule] | None) -> None:
        self.identity: UserIdentity = identity
        self.open: bool = rules is None
        self.grants: Grants = Grants()
        self.on_grant: Callable[[], object] | None = None
        self._rules: BoundRules = bind_rules(rules or [], identity)
        self._lapsed = False
        # The rights at an address, and in higher bits the rights that a rule refuses there.
        self._known: dict[str, int] = {}

    def gives_anything(self) -> bool:
        """Return whether there is any right at any address."""
        if self.open or len(self.grants) > 0:
            return True
        return not self._lapsed and self._rules.gives_anything()

    def rights(self, address: str) -> i64:
        """Return all rights at an address, as bits."""
        if self.open:
            return ALL
        return self._ask(address) & ALL

    def permits(self, right: i64, address: str) -> bool:
        """Return whether one right, or any of several, is given at an address."""
        return self.open or (self._ask(address) & right) != 0

    def permits_part(self, right: i64, address: str, named: str) -> bool:
        """Return whether a right is given at a part of a node, which the client knows as
        `named`."""
        if self.open:
            return True
        if len(address) > _LONGEST or len(named) > _LONGEST:
            return False
        verdict = self._rules.judge(address, named)
        rights: i64 = 0 if self._lapsed else verdict.given
        if len(self.grants) > 0:
            rights |= self.grants.given(address) & ~verdict.refused
        return (rights & right) != 0

    def asks_for_parts(self) -> bool:
        """Return whether parts of a node can have other rights than the node."""
        return not self.open and self._rules.names_parts()

    def require(self, right: i64, address: str, named: str = "") -> None:
        """Raise `BrokerError` (`amqp:unauthorized-access`) if the right is not given.

        `named` is the client's name for the address. The error is the same whether the node exists
        or not.
        """
        if not self.open and (self._ask(address) & right) == 0:
            raise refusal(right, named or address)

    def may_lead(self, right: i64, name: str, address: str) -> bool:
        """Return whether a client with the right at `name` may make that name an alias of
        `address`.

        A client that has the right only by a token may not choose an address outside the token's
        scope, because signed tokens are valid for the node that their scope names.
        """
        if self.open or (not self._lapsed and (self._rules.judge(name).given & right) != 0):
            return True
        return self.grants.reaches(right, name, address)

    def require_send(self, address: str, named: str = "") -> None:
        """Raise as `require` does for `SEND`. A client that knows the address of a dynamic node may
        send to it, unless a rule refuses that."""
        if self.open:
            return
        known = self._ask(address)
        if (known & SEND) != 0:
            return
        if not address.startswith(DYNAMIC) or (known & (SEND << WIDTH)) != 0:
            raise refusal(SEND, named or address)

    def permits_fence(self, group: str, target: str) -> bool:
        """Return whether the fences of a group may be used for a target (an address with aliases
        resolved): with the right to send there, unless a rule refuses the group.

        Without a target, ``""``, the right to send at the group is needed.
        """
        if self.open:
            return True
        known = self._ask(fence_address(group))
        if (known & SEND) != 0:
            return True
        if not target or (known & (SEND << WIDTH)) != 0:
            return False
        return (self._ask(target) & SEND) != 0

    def _ask(self, address: str) -> i64:
        known = self._known.get(address)
        if known is not None:
            return known
        length: i64 = len(address)
        if length > _LONGEST:
            return ALL << WIDTH
        verdict = self._rules.judge(address)
        rights: i64 = 0 if self._lapsed else verdict.given
        if len(self.grants) > 0:
            rights |= self.grants.given(address) & ~verdict.refused
        rights |= verdict.refused << WIDTH
        if length <= _MOST_CHARS:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[address] = int(rights)
        return rights

    def put_grant(self, grant: Grant) -> None:
        """Add the rights of a new token."""
        self.grants.put(grant)
        self._known.clear()
        if self.on_grant is not None:
            self.on_grant()

    def follow(self, rules_for: Callable[[UserIdentity], list[Rule]] | None) -> None:
        """Take the present rules of the virtual host; None if the broker has none any more. The
        rights of tokens follow too. The caller checks the links of the connection again."""
        self.open = rules_for is None
        self._rules = bind_rules(
            [] if rules_for is None else rules_for(self.identity), self.identity
        )
        if rules_for is not None:
            self.grants.follow(rules_for)
        self._known.clear()

    def is_subject_of(self, rules: Sequence[Rule]) -> bool:
        """Return whether any of the rules is about the client, or about the bearer of a token."""
        return any(
            rule.is_about(self.identity) or self.grants.are_subject_of(rule) for rule in rules
        )

    def end_login(self) -> None:
        """End the rights of the login. Only tokens give rights from now on; refusals by rules
        stay."""
        self._lapsed = True
        self._known.clear()

    def expire_grants(self, epoch_seconds: float) -> list[Grant]:
        """Remove the tokens that have expired, and return them."""
        over = self.grants.expire(epoch_seconds)
        if over:
            self._known.clear()
        return over


def refusal(right: i64, named: str) -> BrokerError:
    """Return the error for a client without a right at the address that it calls `named`."""
    return BrokerError(UNAUTHORIZED, f"{name_of(right)} at {named[:200]!r} is not allowed to you")


def fence_address(group: str) -> str:
    """Return the address at which `SEND` is the right to use the fences of a group."""
    return f"{FENCE}{group}"


def fence_refusal(group: str, target: str) -> BrokerError:
    """Return the error for a client that may not use the fences of a group for a target."""
    if not target:
        return refusal(SEND, fence_address(group))
    return BrokerError(
        UNAUTHORIZED,
        f"send at {target[:200]!r}, or at {fence_address(group)[:200]!r}, is not allowed to you",
    )
