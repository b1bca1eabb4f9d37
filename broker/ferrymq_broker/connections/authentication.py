"""Authentication: what a client says about itself, and who decides on it (AMQP 1.0 §5.3).

The decision may take a while, as a slow hash is computed or a key is fetched. Meanwhile the
connection waits, and nothing else does: an `Authenticator` decides on a `Login` now, before its
`authenticate` returns, or later, from the event loop.
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

# Called with the identity of a client, or with None and the reason of the refusal.
Decided = Callable[[UserIdentity | None, str], object]


@final
class ClientTransport:
    """The transport of a client: what is known before the client has said anything.

    `peer` names it in the log, `host` is its IP address, empty for none. `loopback` is whether it
    is on this machine, `encrypted` whether nobody else can read what it sends. `certificate` is the
    one it has shown, as `ssl.SSLSocket.getpeercert` has it, verified; None without.
    """

    __slots__ = ("peer", "host", "loopback", "encrypted", "certificate")

    def __init__(
        self,
        peer: str,
        host: str = "",
        loopback: bool = True,
        encrypted: bool = False,
        certificate: dict[str, object] | None = None,
    ) -> None:
        self.peer = peer
        self.host = host
        self.loopback = loopback
        self.encrypted = encrypted
        self.certificate = certificate


@final
class Login:
    """A login: what a client has said about itself, to be decided on once, by `decide`.

    `username` is the one of PLAIN and SCRAM, or the identity that EXTERNAL or OAUTHBEARER asks to
    act as; `password` that of PLAIN; `token` that of OAUTHBEARER. With SCRAM the password has been
    proved already. `hostname` is the virtual host the client means, if it says so. `code` is what a
    client is told that is refused.
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
        self.mechanism = event.mechanism
        self.username: str | None = event.username
        self.password: str | None = None
        self.token: str | None = None
        if isinstance(event, AuthenticationRequested):
            self.password = event.password
            self.token = event.token
        self.hostname = event.hostname
        self.transport = transport
        self.decided = False
        self.code = SaslCode.AUTH
        # Called with the decision if the login is for another protocol.
        self._on_decision = on_decision
        self._connection = connection
        # Whether the pass in which the client logged in is still under way.
        self._at_once = True

    @property
    def abandoned(self) -> bool:
        """Return whether the client has gone without waiting for the decision."""
        connection = self._connection
        return connection is not None and connection.is_finished()

    def wait(self) -> None:
        """Take note that the pass in which the client logged in is over."""
        self._at_once = False

    def decide(
        self, identity: UserIdentity | None, reason: str = "", code: SaslCode = SaslCode.AUTH
    ) -> None:
        """Accept the client as `identity`, or refuse it with None.

        The log says for what `reason`; the client only hears the `code`: whether it may try again.
        To be called in the event loop. The first call counts.
        """
        if self.decided:
            return
        self.decided = True
        self.code = code
        # The secrets are not needed any more.
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
    """The policy that decides which clients are let in, and by which mechanisms.

    This one lets none in.
    """

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        """Return the SASL mechanisms to offer to a client: those that can lead somewhere.

        Without any, clients get in without SASL.
        """
        return []

    def is_required(self, transport: ClientTransport) -> bool:
        """Return whether a client has to say who it is: not where it may come in anonymously."""
        return True

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return what a proof of the user's password is checked with; None if there is no such
        user."""
        return None

    def authenticate(self, login: Login) -> None:
        """Decide on what the client has said, now or later."""
        login.decide(None)

    def is_held_off(self, transport: ClientTransport, username: str | None) -> bool:
        """Return whether there were so many failures that nobody looks at what this client says."""
        return False

    def login_failed(self, transport: ClientTransport, username: str | None) -> None:
        """Count a failed login that `authenticate` was not asked about.

        The client's proof was wrong, or what it said made no sense.
        """

    def silent(self, transport: ClientTransport) -> UserIdentity:
        """Return the identity of a client that came in without SASL."""
        return UserIdentity(None)


def ask(
    authenticator: Authenticator,
    event: AuthenticationRequested,
    transport: ClientTransport,
    on_decision: Decided,
) -> None:
    """Have it decided who somebody is that speaks no AMQP: he is told by `on_decision`, before
    this returns or later, from the event loop."""
    authenticator.authenticate(Login(None, event, transport, on_decision))
