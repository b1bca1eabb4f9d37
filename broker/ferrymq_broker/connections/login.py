"""The login of one connection: the identity of the client, its virtual host, and how long its
rights last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq.errors import AmqpError, AuthenticationError
from ferrymq_broker import audit
from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.connections.authentication import Authenticator, Login
from ferrymq_broker.connections.client_limits import EXCEEDED
from ferrymq_broker.connections.memory_cost import count_elements
from ferrymq_broker.connections.token_expiry import TokenExpiry
from ferrymq_broker.event_log import log
from ferrymq_types.security import SaslCode
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.events import AuthenticationRequested, ScramKeysRequested
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.connections.connection_port import ConnectionPort
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_types.transport import Open

# How many values of the properties of an open are kept, with the values inside them.
MAX_PROPERTIES: Final = 500
AUTHENTICATED: Final = "ferrymq:authenticated"
"""The property of the broker's open that says whether the client is authenticated as a user."""


@final
class ConnectionLogin:
    """The login of one connection, on which `authenticator` decides.

    `pending` has the client's credentials until the decision.
    """

    __slots__ = (
        "authenticator",
        "pending",
        "_broker",
        "_parts",
        "_connection",
        "_decision",
        "_token_expiry",
    )

    def __init__(
        self,
        broker: Broker,
        parts: ConnectionParts,
        connection: Connection,
        authenticator: Authenticator,
    ) -> None:
        self.authenticator: Authenticator = authenticator
        self.pending: Login | None = None
        self._broker = broker
        self._parts = parts
        self._connection = connection
        self._decision: tuple[Login, UserIdentity | None, str] | None = None
        # None if no rights of the client end at a time.
        self._token_expiry: TokenExpiry | None = None

    # -- authentication (AMQP 1.0 §5.3) --------------------------------------------------

    def authenticate(self, owner: ConnectionPort, event: AuthenticationRequested) -> None:
        """Have the credentials of the client checked; `owner` is told the result, now or later."""
        login = Login(owner, event, self._parts.client.transport)
        self.pending = login
        self.authenticator.authenticate(login)
        login.wait()

    def provide_scram_keys(self, owner: ConnectionPort, event: ScramKeysRequested) -> None:
        """Find the keys that verify the client's proof, for the user that it names."""
        login = Login(owner, event, self._parts.client.transport)
        authenticator = self.authenticator
        if authenticator.is_held_off(login.transport, login.username):
            self.pending = login
            login.decide(None, "too many failed logins", SaslCode.SYS_TEMP)
        else:
            keys = authenticator.scram_keys(event.mechanism, event.username)
            # The login is valid for the password as it is at this moment.
            self.pending = login
            self._connection.provide_scram_keys(keys)

    def settle(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Tell the client the result."""
        if identity is None:
            self._count_refused(login.mechanism, login.username, reason)
            self._connection.reject_authentication(login.code)
        else:
            self.pending = None
            client = self._parts.client
            client.log_in(identity)
            audit.logged_in(
                client.peer, identity.user, identity.mechanism, client.transport.encrypted
            )
            self._connection.accept_authentication()

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

    def _count_refused(self, mechanism: str, username: str | None, reason: str) -> None:
        """Count a refused login and write it to the audit log."""
        counters = self._parts.shared.counters
        client = self._parts.client
        counters.logins_refused += 1
        if self.pending is not None and self.pending.code is SaslCode.SYS_TEMP:
            counters.logins_put_off += 1
        audit.login_refused(client.peer, username, mechanism, client.transport.encrypted, reason)

    # -- open (AMQP 1.0 §2.4.1) ----------------------------------------------------------

    def open(self, owner: ConnectionPort, links: LinkHolder, open: Open) -> None:
        """Open the connection to the virtual host that the client names, or close it at once.

        `owner` is told if the client loses its rights; the rights of `links` are checked then.
        """
        broker = self._broker
        client = self._parts.client
        client.name(open.container_id)
        if count_elements([open.properties]) > MAX_PROPERTIES:
            # The properties are kept only for management.
            open.properties = None
        identity = client.identity
        if identity is None:
            identity = self.authenticator.silent(client.transport)
            client.log_in(identity)
        space = broker.space_for(open.hostname)
        opening = self._connection.settings.opening
        opening.properties = {
            **(opening.properties or {}),
            # This tells the client whether its password was checked.
            AUTHENTICATED: client.user is not None and identity.proven,
        }
        if space is not None and space.personality is not None:
            opening.properties.update(space.personality.open_properties())
        self._connection.open()
        if space is not None:
            rules = space.rules_for(identity) if broker.guarded else None
            client.enter(space, ConnectionAccess(identity, rules))
            space.publishers[int(client.id)] = client.access
            space.strangers = None if broker.guarded else client.access
        if broker.guarded and not broker.takes_tokens:
            if space is None or not client.access.gives_anything():
                # A client that may not use the virtual host must not learn whether it exists.
                self._refuse_host(open, "amqp:unauthorized-access", "is not allowed to you")
                return
        if space is None:
            self._refuse_host(open, "amqp:not-found", "does not exist")
            return
        if broker.takes_tokens or identity.expires != 0.0:
            token_expiry = TokenExpiry(owner, links, self._parts, broker.token_deadline)
            self._token_expiry = token_expiry
            client.access.on_grant = token_expiry.on_grant
            token_expiry.arm()
        if not broker.users.enter(client):
            broker.counters.connections_refused_user += 1
            self._refuse_user()
            return
        broker.counters.connections_opened += 1
        log.info(
            "connection opened",
            peer=client.peer,
            container=open.container_id,
            user=client.user,
            host=space.name,
        )

    def _refuse_user(self) -> None:
        client = self._parts.client
        limit = self._broker.users.limit
        log.warning(
            "too many connections of a user", peer=client.peer, user=client.user, limit=limit
        )
        description = (
            f"the user has {limit} connections already, which is the limit; close some first"
        )
        self._connection.close(Error(condition=EXCEEDED, description=description))

    def _refuse_host(self, open: Open, condition: str, reason: str) -> None:
        client = self._parts.client
        audit.host_refused(client.peer, client.user, open.hostname, condition)
        name = repr(open.hostname[:200]) if open.hostname else "for no hostname"
        description = f"the virtual host {name} {reason}"
        self._connection.close(Error(condition=condition, description=description))

    # -- the end -------------------------------------------------------------------------

    def end(self, error: AmqpError | None) -> None:
        """Note that the connection is over; if it ended before its login, the login has failed."""
        login = self.pending
        client = self._parts.client
        self.pending = None
        audit.end_of(client.peer)
        if isinstance(error, AuthenticationError) and (login is None or not login.decided):
            mechanism = "" if login is None else login.mechanism
            username = None if login is None else login.username
            self._count_refused(mechanism, username, str(error))
            self.authenticator.login_failed(client.transport, username)
        client.space.publishers.pop(int(client.id), None)
        self._broker.users.leave(client)
        if self._token_expiry is not None:
            self._token_expiry.cancel()
            self._token_expiry = None
