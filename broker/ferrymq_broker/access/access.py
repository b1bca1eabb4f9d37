"""What one connection may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.access.grants import Grants
from ferrymq_broker.access.identity import Identity
from ferrymq_broker.access.rights import ALL, name_of
from ferrymq_broker.access.rules import BoundRules, Rule, bind_rules
from ferrymq_broker.errors import BrokerError

if TYPE_CHECKING:
    from ferrymq_broker.access.grants import Grant

# So many addresses are remembered; one that names ever new ones gets no faster, and no larger.
_MOST: Final = 4096


@final
class Access:
    """What `identity` may do in one virtual host, by its rules and by tokens.

    `rules` are None where there are none in the whole broker and no tokens either: then whoever
    got in may do everything. Otherwise what nobody gives is refused, and what a rule refuses no
    token gives.
    """

    __slots__ = ("identity", "open", "grants", "_rules", "_rights")

    def __init__(self, identity: Identity, rules: list[Rule] | None) -> None:
        self.identity = identity
        self.open = rules is None
        self.grants = Grants()
        self._rules: BoundRules = bind_rules(rules or [], identity)
        # What may be done at an address.
        self._rights: dict[str, int] = {}

    def gives_anything(self) -> bool:
        """Whether there is anything at all that may be done."""
        return self.open or len(self.grants) > 0 or self._rules.gives_anything()

    def rights(self, address: str) -> i64:
        """All rights at an address, which is that of a node and no alias, as bits."""
        if self.open:
            return ALL
        known = self._rights.get(address)
        if known is not None:
            return known
        verdict = self._rules.judge(address)
        rights: i64 = verdict.given
        if len(self.grants) > 0:
            rights |= self.grants.given(address) & ~verdict.refused
        if len(self._rights) >= _MOST:
            self._rights.clear()
        self._rights[address] = int(rights)
        return rights

    def permits(self, right: i64, address: str) -> bool:
        """Whether one right, or any of several, is given at an address."""
        return self.open or (self.rights(address) & right) != 0

    def require(self, right: i64, address: str, named: str = "") -> None:
        """Raise `BrokerError` (`amqp:unauthorized-access`) if the right is not given there.

        `named` is what the client called the address. The error is the same whether there is such
        a node or not.
        """
        if not self.open and not self.permits(right, address):
            raise BrokerError(
                "amqp:unauthorized-access",
                f"{name_of(right)} at {(named or address)[:200]!r} is not allowed to you",
            )

    def put_grant(self, grant: Grant) -> None:
        """A token has come: it counts from now on."""
        self.grants.put(grant)
        self._rights.clear()

    def expire_grants(self, epoch_seconds: float) -> list[Grant]:
        """Tokens whose time is over count no more; those are returned."""
        over = self.grants.expire(epoch_seconds)
        if over:
            self._rights.clear()
        return over
