"""The login of one connection, whatever its protocol: the identity of the client, its virtual host,
and how long its rights last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker import audit
from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.connections.authentication import Authenticator, Login
from ferrymq_broker.connections.token_expiry import TokenExpiry
from ferrymq_broker.event_log import log
from ferrymq_types.security import SaslCode

if TYPE_CHECKING:
    from ferrymq.engine.events import AuthenticationRequested
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.connections.connection_port import ConnectionPort
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.output import ClientOutput


class ClientLogin:
    """The login of one connection, on which `authenticator` decides.

    `pending` has the client's credentials until the decision.
    """

    __slots__ = (
        "authenticator",
        "pending",
        "_broker",
        "_client",
        "_output",
        "_decision",
        "_token_expiry",
    )

    def __init__(
        self,
        broker: Broker,
        client: ConnectedClient,
        output: ClientOutput,
        authenticator: Authenticator,
    ) -> None:
        self.authenticator: Authenticator = authenticator
        self.pending: Login | None = None
        self._broker = broker
        self._client = client
        self._output = output
        self._decision: tuple[Login, UserIdentity | None, str] | None = None
        # None if no rights of the client end at a time.
        self._token_expiry: TokenExpiry | None = None

    # -- for the protocol ----------------------------------------------------------------

    def accept(self) -> None:
        """Tell the client that its login has succeeded."""

    def refuse(self, code: SaslCode) -> None:
        """Tell the client that its login has failed; `code` says whether it may try again."""

    # -- authentication ------------------------------------------------------------------

    def authenticate(self, owner: ConnectionPort, event: AuthenticationRequested) -> None:
        """Have the credentials of the client checked; `owner` is told the result, now or later."""
        login = Login(owner, event, self._client.transport)
        self.pending = login
        self.authenticator.authenticate(login)
        login.wait()

    def settle(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Tell the client the result."""
        if identity is None:
            self.count_refused(login.mechanism, login.username, reason)
            self.refuse(login.code)
        else:
            self.pending = None
            client = self._client
            client.log_in(identity)
            if not login.repeated:
                audit.logged_in(
                    client.peer, identity.user, identity.mechanism, client.transport.encrypted
                )
            self.accept()

    def settle_later(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Keep the result for `settle_decided`, in another pass."""
        self._decision = (login, identity, reason)

    def settle_decided(self) -> bool:
        """Tell the client the result, and return whether there was one."""
        decision = self._decision
        if decision is None:
            return False
        self._decision = None
        self.settle(*decision)
        return True

    def count_refused(self, mechanism: str, username: str | None, reason: str) -> None:
        """Count a refused login and write it to the audit log."""
        counters = self._broker.counters
        client = self._client
        counters.logins_refused += 1
        if self.pending is not None and self.pending.code is SaslCode.SYS_TEMP:
            counters.logins_put_off += 1
        audit.login_refused(client.peer, username, mechanism, client.transport.encrypted, reason)

    def identify(self) -> UserIdentity:
        """Return who the client is; one that has sent no credentials is whoever the authenticator
        takes it for."""
        client = self._client
        identity = client.identity
        if identity is None:
            identity = self.authenticator.silent(client.transport)
            client.log_in(identity)
        return identity

    # -- the virtual host ----------------------------------------------------------------

    def enter(self, space: AddressSpace | None, identity: UserIdentity) -> bool:
        """Give the client its rights in a virtual host, None for one that does not exist. Return
        whether the client may know whether the virtual host exists."""
        broker = self._broker
        client = self._client
        if space is not None:
            rules = space.rules_for(identity) if broker.guarded else None
            client.enter(space, ConnectionAccess(identity, rules))
            space.publishers[int(client.id)] = client.access
            space.strangers = None if broker.guarded else client.access
        if not broker.guarded or broker.takes_tokens:
            return True
        return space is not None and client.access.gives_anything()

    def watch_rights(
        self, owner: ConnectionPort, holder: LinkHolder, identity: UserIdentity
    ) -> None:
        """Tell `owner` when the client loses its rights; the rights of `holder` are checked
        then."""
        broker = self._broker
        if broker.takes_tokens or identity.expires != 0.0:
            token_expiry = TokenExpiry(
                owner, holder, self._output, broker.shared, broker.token_deadline
            )
            self._token_expiry = token_expiry
            self._client.access.on_grant = token_expiry.on_grant
            token_expiry.arm()

    def renew(self, identity: UserIdentity) -> None:
        """Give the client the rights of another login in its virtual host."""
        client = self._client
        self.enter(client.space, identity)
        if self._token_expiry is not None:
            self._token_expiry.renew_login()

    def count_opened(self, owner: ConnectionPort, container: str) -> str:
        """Count the connection as open, and return an empty text; if its user has too many, return
        what to tell the client."""
        broker = self._broker
        client = self._client
        if broker.users.enter(client):
            broker.rate_limits.enter(owner, client)
            broker.counters.connections_opened += 1
            log.info(
                "connection opened",
                peer=client.peer,
                container=container,
                user=client.user,
                host=client.space.name,
            )
            return ""
        broker.counters.connections_refused_user += 1
        limit = broker.users.limit
        log.warning(
            "too many connections of a user", peer=client.peer, user=client.user, limit=limit
        )
        return f"the user has {limit} connections already, which is the limit; close some first"

    # -- the end -------------------------------------------------------------------------

    def end(self, failure: str) -> None:
        """Note that the connection is over. `failure` says why it ended before its login; empty if
        it did not."""
        login = self.pending
        client = self._client
        self.pending = None
        audit.end_of(client.peer)
        if failure and (login is None or not login.decided):
            mechanism = "" if login is None else login.mechanism
            username = None if login is None else login.username
            self.count_refused(mechanism, username, failure)
            self.authenticator.login_failed(client.transport, username)
        client.space.publishers.pop(int(client.id), None)
        self._broker.users.leave(client)
        self._broker.rate_limits.leave(client)
        if self._token_expiry is not None:
            self._token_expiry.cancel()
            self._token_expiry = None
