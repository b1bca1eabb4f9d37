"""What one connection may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.access.grants import Grants
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.rights import ALL, SEND, WIDTH, name_of
from ferrymq_broker.access.rules import BoundRules, Rule, bind_rules
from ferrymq_broker.errors import BrokerError

if TYPE_CHECKING:
    from ferrymq_broker.access.grants import Grant

# Addresses of dynamic nodes begin so; what is asked about when one is to be made.
DYNAMIC: Final = "dynamic."
NEW_DYNAMIC: Final = "dynamic.*"
# What belongs to the fences of a group is asked for at this and its name.
FENCE: Final = "$fence/"

UNAUTHORIZED: Final = "amqp:unauthorized-access"

# So many addresses are remembered, of no more characters than these: one that names ever new ones
# gets no faster, and no larger.
_MOST: Final = 1024
_MOST_CHARS: Final = 256
# Where there are rules nobody may do anything at a longer address.
_LONGEST: Final = 2048


@final
class ConnectionAccess:
    """What `identity` may do in one virtual host, by its rules and by tokens.

    `rules` are None where there are none in the whole broker and no tokens either: then whoever
    got in may do everything. Otherwise what nobody gives is refused, and what a rule refuses no
    token gives.

    Addresses are those of nodes and no aliases, perhaps with a part: ``NODE::PART``. `on_grant` is
    called when a token has come.
    """

    __slots__ = ("identity", "open", "grants", "on_grant", "_rules", "_lapsed", "_known")

    def __init__(self, identity: UserIdentity, rules: list[Rule] | None) -> None:
        self.identity = identity
        self.open = rules is None
        self.grants = Grants()
        self.on_grant: Callable[[], object] | None = None
        self._rules: BoundRules = bind_rules(rules or [], identity)
        self._lapsed = False
        # What may be done at an address; before that, in higher bits, what is refused by a rule.
        self._known: dict[str, int] = {}

    def gives_anything(self) -> bool:
        """Whether there is anything at all that may be done."""
        if self.open or len(self.grants) > 0:
            return True
        return not self._lapsed and self._rules.gives_anything()

    def rights(self, address: str) -> i64:
        """All rights at an address, as bits."""
        if self.open:
            return ALL
        return self._ask(address) & ALL

    def permits(self, right: i64, address: str) -> bool:
        """Whether one right, or any of several, is given at an address."""
        return self.open or (self._ask(address) & right) != 0

    def permits_part(self, right: i64, address: str, named: str) -> bool:
        """Whether one right is given at a part of a node that has another name for its client."""
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
        """Whether it takes more to know than what may be done at a node to know what may be done at
        its parts."""
        return not self.open and self._rules.names_parts()

    def require(self, right: i64, address: str, named: str = "") -> None:
        """Raise `BrokerError` (`amqp:unauthorized-access`) if the right is not given there.

        `named` is what the client called the address. The error is the same whether there is such
        a node or not.
        """
        if not self.open and (self._ask(address) & right) == 0:
            raise refusal(right, named or address)

    def may_lead(self, right: i64, name: str, address: str) -> bool:
        """Return whether who has the right at `name` may let that name lead to `address`.

        Who has it by a token alone may not lead out of what the token is for: signed tokens are
        good for what their address stands for.
        """
        if self.open or (not self._lapsed and (self._rules.judge(name).given & right) != 0):
            return True
        return self.grants.reaches(right, name, address)

    def require_send(self, address: str, named: str = "") -> None:
        """As `require`, of `SEND`: whoever knows the address of a dynamic node may send to it,
        unless a rule says no."""
        if self.open:
            return
        known = self._ask(address)
        if (known & SEND) != 0:
            return
        if not address.startswith(DYNAMIC) or (known & (SEND << WIDTH)) != 0:
            raise refusal(SEND, named or address)

    def permits_fence(self, group: str, target: str) -> bool:
        """Return whether fences of a group may be used for a target, an address with aliases
        followed: whoever may send there may, unless a rule refuses the group.

        Without a target, ``""``, it takes the right at the group.
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
        """A token has come: it counts from now on."""
        self.grants.put(grant)
        self._known.clear()
        if self.on_grant is not None:
            self.on_grant()

    def end_login(self) -> None:
        """What the identity was good for has come to its end: tokens give what there is. What was
        refused to it stays so."""
        self._lapsed = True
        self._known.clear()

    def expire_grants(self, epoch_seconds: float) -> list[Grant]:
        """Tokens whose time is over count no more; those are returned."""
        over = self.grants.expire(epoch_seconds)
        if over:
            self._known.clear()
        return over


def refusal(right: i64, named: str) -> BrokerError:
    """What somebody is told who may not do that at what he calls so."""
    return BrokerError(UNAUTHORIZED, f"{name_of(right)} at {named[:200]!r} is not allowed to you")


def fence_address(group: str) -> str:
    """Return the address at which a right to the fences of a group is given: `SEND` to use them."""
    return f"{FENCE}{group}"


def fence_refusal(group: str, target: str) -> BrokerError:
    """Return the error for somebody who may not use the fences of a group for a target."""
    if not target:
        return refusal(SEND, fence_address(group))
    return BrokerError(
        UNAUTHORIZED,
        f"send at {target[:200]!r}, or at {fence_address(group)[:200]!r}, is not allowed to you",
    )
