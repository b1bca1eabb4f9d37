"""The login of one connection of AMQP 1.0: SASL, and the open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker import audit
from ferrymq_broker.connections.authentication import Authenticator, Login
from ferrymq_broker.connections.client_limits import EXCEEDED
from ferrymq_broker.connections.client_login import ClientLogin
from ferrymq_broker.connections.memory_cost import count_elements
from ferrymq_broker.connections.redirects import keep_virtual_host
from ferrymq_types.security import SaslCode
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.events import ScramKeysRequested
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
class ConnectionLogin(ClientLogin):
    """The login of one connection of AMQP 1.0 (AMQP 1.0 §5.3, §2.4.1)."""

    __slots__ = ("_connection",)

    # Attribute of `ClientLogin` that the methods assign: its type for type checkers.
    pending: Login | None

    def __init__(
        self,
        broker: Broker,
        parts: ConnectionParts,
        connection: Connection,
        authenticator: Authenticator,
    ) -> None:
        super().__init__(broker, parts.client, parts.output, authenticator)
        self._connection = connection

    def provide_scram_keys(self, owner: ConnectionPort, event: ScramKeysRequested) -> None:
        """Find the keys that verify the client's proof, for the user that it names."""
        login = Login(owner, event, self._client.transport)
        authenticator = self.authenticator
        if authenticator.is_held_off(login.transport, login.username):
            self.pending = login
            login.decide(None, "too many failed logins", SaslCode.SYS_TEMP)
        else:
            keys = authenticator.scram_keys(event.mechanism, event.username)
            # The login is valid for the password as it is at this moment.
            self.pending = login
            self._connection.provide_scram_keys(keys)

    def accept(self) -> None:
        """Tell the client that its login has succeeded."""
        self._connection.accept_authentication()

    def refuse(self, code: SaslCode) -> None:
        """Tell the client that its login has failed."""
        self._connection.reject_authentication(code)

    def open(self, owner: ConnectionPort, links: LinkHolder, open: Open) -> None:
        """Open the connection to the virtual host that the client names, or close it at once.

        `owner` is told if the client loses its rights; the rights of `links` are checked then.
        """
        broker = self._broker
        client = self._client
        client.name(open.container_id)
        if count_elements([open.properties]) > MAX_PROPERTIES:
            # The properties are kept only for management.
            open.properties = None
        identity = self.identify()
        space = broker.space_for(open.hostname)
        if space is not None and space.elsewhere >= 0:
            owner.move(space.elsewhere)
            return
        opening = self._connection.settings.opening
        opening.properties = {
            **(opening.properties or {}),
            # This tells the client whether its password was checked.
            AUTHENTICATED: client.user is not None and identity.proven,
        }
        if space is not None and space.personality is not None:
            opening.properties.update(space.personality.open_properties())
        self._connection.open()
        if not self.enter(space, identity):
            # A client that may not use the virtual host must not learn whether it exists.
            self._refuse_host(open, "amqp:unauthorized-access", "is not allowed to you")
            return
        if space is None:
            self._refuse_host(open, "amqp:not-found", "does not exist")
            return
        if broker.refusal is not None:
            refused = keep_virtual_host(broker.refusal(), open, broker)
            self._connection.close(refused)
            return
        self.watch_rights(owner, links, identity)
        refusal = self.count_opened(owner, open.container_id)
        if refusal:
            self._connection.close(Error(condition=EXCEEDED, description=refusal))

    def _refuse_host(self, open: Open, condition: str, reason: str) -> None:
        client = self._client
        audit.host_refused(client.peer, client.user, open.hostname, condition)
        name = repr(open.hostname[:200]) if open.hostname else "for no hostname"
        description = f"the virtual host {name} {reason}"
        self._connection.close(Error(condition=condition, description=description))
