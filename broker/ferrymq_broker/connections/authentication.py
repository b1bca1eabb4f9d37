"""Authentication: the credentials of a client, and the interface that decides on them (AMQP 1.0
§5.3).

The decision may take a while, because a slow hash is computed or a key is fetched. Meanwhile only
this connection waits: an `Authenticator` decides on a `Login` either before its `authenticate`
returns, or later, from the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import mypyc_attr

from ferrymq.engine.events import AuthenticationRequested, ScramKeysRequested
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_types.security import SaslCode

if TYPE_CHECKING:
    from ferrymq.engine.scram import ScramKeys
    from ferrymq_broker.connections.connection_port import ConnectionPort

# The callback gets the identity of a client, or None and the reason of the refusal.
Decided = Callable[[UserIdentity | None, str], object]


@final
class ClientTransport:
    """The transport of a client: what is known before the client has sent anything.

    `peer` names the client in the log, `host` is its IP address, empty for none. `loopback` is
    whether it is on this machine, `encrypted` whether nobody else can read what it sends.
    `certificate` is the verified client certificate as `ssl.SSLSocket.getpeercert` returns it; None
    without one. `tls_version` is that of TLS, such as ``TLSv1.3``; empty without TLS.
    """

    __slots__ = ("peer", "host", "loopback", "encrypted", "certificate", "tls_version")

    def __init__(
        self,
        peer: str,
        host: str = "",
        loopback: bool = True,
        encrypted: bool = False,
        certificate: dict[str, object] | None = None,
    ) -> None:
        self.peer: str = peer
        self.host: str = host
        self.loopback: bool = loopback
        self.encrypted: bool = encrypted
        self.certificate: dict[str, object] | None = certificate
        self.tls_version: str = ""


@final
class Login:
    """A login: the credentials of a client, on which `decide` decides once.

    `username` is that of PLAIN and SCRAM, or the identity as which a client of EXTERNAL or
    OAUTHBEARER asks to act; `password` is that of PLAIN; `token` is that of OAUTHBEARER. With SCRAM
    the password has been proved already. `hostname` is the virtual host that the client names, if
    it does. `code` is what a refused client is told. `repeated` says that another worker process
    has accepted the same login before, and has told the audit log.
    """

    __slots__ = (
        "mechanism",
        "username",
        "password",
        "token",
        "hostname",
        "transport",
        "decided",
        "code",
        "repeated",
        "_connection",
        "_on_decision",
        "_at_once",
    )

    def __init__(
        self,
        connection: ConnectionPort | None,
        event: AuthenticationRequested | ScramKeysRequested,
        transport: ClientTransport,
        on_decision: Decided | None = None,
    ) -> None:
        self.mechanism: str = event.mechanism
        self.username: str | None = event.username
        self.password: str | None = None
        self.token: str | None = None
        if isinstance(event, AuthenticationRequested):
            self.password = event.password
            self.token = event.token
        self.hostname: str | None = event.hostname
        self.transport: ClientTransport = transport
        self.decided: bool = False
        self.code: SaslCode = SaslCode.AUTH
        self.repeated: bool = False
        # The callback for the decision, if the login is not for AMQP.
        self._on_decision = on_decision
        self._connection = connection
        # Whether the pass in which the client logged in has not ended.
        self._at_once = True

    @property
    def abandoned(self) -> bool:
        """Return whether the client has disconnected before the decision."""
        connection = self._connection
        return connection is not None and connection.is_finished()

    def wait(self) -> None:
        """Note that the pass in which the client logged in has ended."""
        self._at_once = False

    def decide(
        self, identity: UserIdentity | None, reason: str = "", code: SaslCode = SaslCode.AUTH
    ) -> None:
        """Accept the client as `identity`, or refuse it with None.

        The log has the `reason`; the client gets only the `code`, which says whether it may try
        again. Call this in the event loop. Only the first call counts.
        """
        if self.decided:
            return
        self.decided = True
        self.code = code
        # The secrets are no longer needed.
        self.password = None
        self.token = None
        if self._on_decision is not None:
            self._on_decision(identity, reason)
        connection = self._connection
        if connection is None:
            return
        if self._at_once:
            connection.settle_login(self, identity, reason)
        else:
            connection.settle_login_later(self, identity, reason)


@mypyc_attr(allow_interpreted_subclasses=True)
class Authenticator:
    """The interface that decides which clients are accepted, and by which mechanisms.

    This base class accepts none.
    """

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        """Return the SASL mechanisms that are offered to a client: those that can succeed.

        If there are none, clients are accepted without SASL.
        """
        return []

    def is_required(self, transport: ClientTransport) -> bool:
        """Return whether a client must authenticate: false if it may be anonymous."""
        return True

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return the keys that verify a proof of the user's password; None if there is no such
        user."""
        return None

    def authenticate(self, login: Login) -> None:
        """Decide on the credentials of the client, now or later."""
        login.decide(None)

    def is_held_off(self, transport: ClientTransport, username: str | None) -> bool:
        """Return whether there were so many failed logins that this client's credentials are not
        checked."""
        return False

    def login_failed(self, transport: ClientTransport, username: str | None) -> None:
        """Count a failed login that did not reach `authenticate`.

        The client's proof was wrong, or its messages were malformed.
        """

    def silent(self, transport: ClientTransport) -> UserIdentity:
        """Return the identity of a client that connected without SASL."""
        return UserIdentity(None)


def ask(
    authenticator: Authenticator,
    event: AuthenticationRequested,
    transport: ClientTransport,
    on_decision: Decided,
) -> None:
    """Have the credentials of a client that does not use AMQP checked; call `on_decision` before
    this returns or later, from the event loop."""
    authenticator.authenticate(Login(None, event, transport, on_decision))
