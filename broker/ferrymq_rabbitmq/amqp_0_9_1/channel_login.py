"""The login of a connection of AMQP 0-9-1: its mechanisms, and the virtual host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq.engine.events import AuthenticationRequested
from ferrymq.engine.sasl_exchange import make_server_mechanism
from ferrymq.errors import RemoteProtocolError
from ferrymq_broker import audit
from ferrymq_broker.connections.authentication import Authenticator, Login
from ferrymq_broker.connections.client_login import ClientLogin
from ferrymq_broker.values.names import VHOST
from ferrymq_codec.errors import DecodeError
from ferrymq_codec_0_9_1.reader import FieldReader
from ferrymq_codec_0_9_1.tables import read_table
from ferrymq_types.security import SaslCode
from ferrymq_types_0_9_1.connection import ConnectionOpen
from ferrymq_types_0_9_1.constants import CONNECTION_FORCED, NOT_ALLOWED

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.connections.connection_port import ConnectionPort
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.output import ClientOutput
    from ferrymq_rabbitmq.amqp_0_9_1.engine.server_connection import ServerConnection

PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
_SUPPORTED: Final = (PLAIN, AMQPLAIN, "EXTERNAL", "ANONYMOUS")


def offered_mechanisms(mechanisms: list[str]) -> list[str]:
    """Return what is offered to clients of AMQP 0-9-1, of the SASL mechanisms of the broker.

    AMQPLAIN is PLAIN in another form, so it is offered with PLAIN.
    """
    found = [name for name in mechanisms if name in _SUPPORTED]
    if PLAIN in found:
        found.insert(found.index(PLAIN) + 1, AMQPLAIN)
    return found


@final
class ChannelLogin(ClientLogin):
    """The login of one connection of AMQP 0-9-1."""

    __slots__ = ("_engine", "_renews")

    # Attribute of `ClientLogin` that the methods assign: its type for type checkers.
    pending: Login | None

    def __init__(
        self,
        broker: Broker,
        client: ConnectedClient,
        output: ClientOutput,
        authenticator: Authenticator,
        engine: ServerConnection,
    ) -> None:
        super().__init__(broker, client, output, authenticator)
        self._engine = engine
        # Whether the pending login renews the secret of an open connection.
        self._renews = False

    def begin(self, owner: ConnectionPort, mechanism: str, response: bytes) -> None:
        """Have the credentials of ``connection.start-ok`` checked."""
        offered = offered_mechanisms(self.authenticator.mechanisms(self._client.transport))
        if mechanism not in offered:
            self._refuse(owner, mechanism, f"the mechanism {mechanism[:40]!r} is not offered")
            return
        try:
            event = credentials(mechanism, response)
        except ValueError as error:
            self._refuse(owner, mechanism, str(error))
            return
        self.authenticate(owner, event)

    def check_secret(self, owner: ConnectionPort, secret: bytes) -> None:
        """Check the new secret of an open connection (``connection.update-secret``)."""
        client = self._client
        self._renews = True
        password = secret.decode("utf-8", "replace")
        self.authenticate(owner, AuthenticationRequested(PLAIN, client.user, password, None))

    def accept(self) -> None:
        """Tell the client that its login has succeeded."""
        if self._renews:
            self._renews = False
            client = self._client
            identity = client.identity
            assert identity is not None
            if identity.user != client.access.identity.user:
                self._engine.close(NOT_ALLOWED, "the new secret is that of another user")
                return
            self.renew(identity)
            self._engine.accept_secret()
        else:
            self._engine.accept_login()

    def refuse(self, code: SaslCode) -> None:
        """Tell the client that its login has failed."""
        if self._renews:
            self._renews = False
            self._engine.close(NOT_ALLOWED, "the new secret was refused")
        else:
            self._engine.refuse_login("the login was refused")

    def _refuse(self, owner: ConnectionPort, mechanism: str, reason: str) -> None:
        """Refuse a login that nobody can decide on; it is counted at the end of the connection."""
        event = AuthenticationRequested(mechanism, None, None, None)
        self.pending = Login(owner, event, self._client.transport)
        self._engine.refuse_login(reason)

    def open(self, owner: ConnectionPort, holder: LinkHolder, name: str) -> None:
        """Enter the virtual host that the client names, or close the connection.

        `owner` is told if the client loses its rights; the rights of `holder` are checked then.
        """
        client = self._client
        identity = self.identify()
        space = self._broker.space_for(VHOST + name)
        if space is not None and space.elsewhere >= 0:
            owner.move(space.elsewhere)
            return
        if not self.enter(space, identity):
            self._refuse_host(name, "amqp:unauthorized-access")
            return
        if space is None:
            self._refuse_host(name, "amqp:not-found")
            return
        if self._broker.refusal is not None:
            text = self._broker.refusal().description or ""
            self._engine.close(CONNECTION_FORCED, text, ConnectionOpen(virtual_host=name))
            return
        self.watch_rights(owner, holder, identity)
        refusal = self.count_opened(owner, client.container_id)
        if refusal:
            self._engine.close(NOT_ALLOWED, refusal, ConnectionOpen(virtual_host=name))
        else:
            self._engine.open_ok()

    def _refuse_host(self, name: str, condition: str) -> None:
        client = self._client
        audit.host_refused(client.peer, client.user, name, condition)
        # A client that may not use a virtual host must not learn whether it exists.
        reason = "not found" if condition == "amqp:not-found" else "is not allowed to you"
        method = ConnectionOpen(virtual_host=name)
        self._engine.close(NOT_ALLOWED, f"vhost {name[:200]} {reason}", method)


def credentials(mechanism: str, response: bytes) -> AuthenticationRequested:
    """Return the credentials in a client's response. Raises `ValueError` if it is malformed."""
    if mechanism == AMQPLAIN:
        try:
            # The response is a field table without its size.
            size = len(response).to_bytes(4, "big")
            fields = read_table(FieldReader(size + response), "response")
        except DecodeError as error:
            raise ValueError(f"the response of AMQPLAIN is malformed: {error}") from None
        user, password = fields.get("LOGIN"), fields.get("PASSWORD")
        if not isinstance(user, str) or not isinstance(password, str):
            raise ValueError("the response of AMQPLAIN needs the strings LOGIN and PASSWORD")
        return AuthenticationRequested(PLAIN, user, password, None)
    sasl = make_server_mechanism(mechanism)
    try:
        sasl.start(response)
    except RemoteProtocolError as error:
        raise ValueError(str(error)) from None
    return AuthenticationRequested(mechanism, sasl.username, sasl.password, None)
