"""Rights of single requests that bring their own token, such as those over HTTP.

Over AMQP a token is for a connection (`cbs.py`); here it is for one request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.grants import Grant
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.rules import BoundRules, bind_rules
from ferrymq_broker.security.shared_access import host_of, scope_of
from ferrymq_broker.security.token_refusal import TokenRefusedError

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.security.tokens import TokenVerifier


class SignedAccess:
    """The rights that a shared access signature gives. `scope` is the path for which it was signed;
    empty for the whole virtual host."""

    def __init__(self, scope: str, identity: UserIdentity, rules: BoundRules) -> None:
        self.scope = scope
        self._identity = identity
        self._rules = rules

    def at(self, address: str) -> ConnectionAccess:
        """Return the rights at an address and below it; ``""`` is for all addresses. The caller has
        compared the address with the scope."""
        access = ConnectionAccess(self._identity, [])
        self.add_to(access, address)
        return access

    def add_to(self, access: ConnectionAccess, address: str) -> None:
        """Add the rights at an address to those of another token of the request."""
        access.put_grant(Grant(address, self._identity, self._rules))


class RequestTokens:
    """The judge of tokens for one virtual host."""

    def __init__(self, broker: Broker, space: AddressSpace, verifier: TokenVerifier) -> None:
        self._broker = broker
        self._space = space
        self._verifier = verifier

    def check_signature(self, token: str) -> SignedAccess:
        """Return what a shared access signature gives. Raises `TokenRefusedError`."""
        signed = self._verifier.check_signature(token)
        host = host_of(signed.resource)
        space = None if host is None else self._broker.hosts.get(host)
        if space is not None and space is not self._space:
            # A token of one virtual host gives no rights at another one.
            raise TokenRefusedError("the token is for another virtual host")
        identity = signed.identity
        rules = bind_rules(self._space.rules_for(identity), identity)
        # Some clients sign the URL of the request, as it is, with its query.
        scope = scope_of(unquote(signed.resource.partition("?")[0], errors="replace"))
        return SignedAccess(scope, identity, rules)
