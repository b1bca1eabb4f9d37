"""SASL mechanisms (AMQP 1.0 §5.3; RFC 4505 ANONYMOUS, RFC 4616 PLAIN, RFC 4422 EXTERNAL).

A `SaslMechanism` is the client's side: the initial response and the answers to challenges. A
`SaslServerMechanism` is the server's side: it reads the client's responses; the user of the engine
decides whether the credentials are good. `scram` has the mechanisms with challenges.
"""

from __future__ import annotations

from ferrymq.errors import AuthenticationError, RemoteProtocolError


class SaslMechanism:
    """The client's side of one SASL mechanism. `name` is its registered name."""

    __slots__ = ("name", "username")

    def __init__(self, name: str, username: str | None) -> None:
        self.name: str = name
        self.username: str | None = username

    def initial_response(self) -> bytes | None:
        """Begin a new exchange, and return the initial response for the sasl-init; None for no
        response.

        Raises `AuthenticationError` if the mechanism cannot be used with its credentials.
        """
        return None

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge. Raises `AuthenticationError` if no challenge is
        expected."""
        raise AuthenticationError(f"SASL {self.name} has no challenges, but the server sent one")

    def finish(self, additional_data: bytes | None) -> None:
        """Finish a successful exchange. Raises `AuthenticationError` if the server's proof is
        missing."""

    def refusal(self) -> str:
        """Return the reason that the server gave for a refusal; empty if it gave none."""
        return ""


class Anonymous(SaslMechanism):
    """ANONYMOUS: no credentials, only a trace for the server's log."""

    __slots__ = ("trace",)

    def __init__(self, trace: str = "anonymous") -> None:
        super().__init__("ANONYMOUS", None)
        self.trace: str = trace

    def initial_response(self) -> bytes | None:
        """Return the trace."""
        return self.trace.encode()


class Plain(SaslMechanism):
    """PLAIN: user name and password in the clear, for encrypted or local transports."""

    __slots__ = ("_password",)

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise ValueError("SASL PLAIN cannot carry a NUL in a user name or password")
        super().__init__("PLAIN", username)
        self._password = password

    def initial_response(self) -> bytes | None:
        """Return user name and password, each after a NUL."""
        return f"\0{self.username}\0{self._password}".encode()


class External(SaslMechanism):
    """EXTERNAL: TLS has proved the client's identity already (RFC 4422, Appendix A)."""

    __slots__ = ()

    def __init__(self, username: str | None = None) -> None:
        super().__init__("EXTERNAL", username)

    def initial_response(self) -> bytes | None:
        """Return the identity to act as; empty for the identity of the certificate."""
        return (self.username or "").encode()


class SaslServerMechanism:
    """The server's side of one mechanism, for one exchange.

    `username`, `password` and `token` are what the client has sent so far. `wants_keys` marks a
    mechanism that needs the stored keys of the user to continue (SCRAM). `client_first` marks one
    in which the client begins: without an initial response it is asked for one (RFC 4422 §3.3).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.username: str | None = None
        self.password: str | None = None
        self.token: str | None = None
        self.wants_keys = False
        self.client_first = False

    def start(self, response: bytes | None) -> None:
        """Read the initial response. Raises `RemoteProtocolError` if it is malformed."""

    def refusal(self) -> bytes | None:
        """Return a challenge that tells the client the reason of the refusal before the outcome;
        None for mechanisms without one."""
        return None


class AnonymousServer(SaslServerMechanism):
    """ANONYMOUS: the client sends a trace, which is not a user name."""


class PlainServer(SaslServerMechanism):
    """PLAIN (RFC 4616)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.client_first = True

    def start(self, response: bytes | None) -> None:
        """Read ``authzid NUL authcid NUL password``."""
        parts = (response or b"").split(b"\0")
        if len(parts) != 3 or not parts[1]:
            raise malformed(self.name, "not authzid NUL authcid NUL password")
        try:
            authzid, username, password = [part.decode() for part in parts]
        except UnicodeDecodeError:
            raise malformed(self.name, "not UTF-8") from None
        if authzid and authzid != username:
            raise RemoteProtocolError(
                "amqp:not-allowed", "SASL PLAIN: acting for another identity is not supported"
            )
        self.username = username
        self.password = password


class ExternalServer(SaslServerMechanism):
    """EXTERNAL: `username` is the identity the client asks to act as, None for its own."""

    def start(self, response: bytes | None) -> None:
        """Read the identity, which may be empty."""
        try:
            self.username: str | None = (response or b"").decode() or None
        except UnicodeDecodeError:
            raise malformed(self.name, "not UTF-8") from None
        if self.username is not None and "\0" in self.username:
            raise malformed(self.name, "an identity with a NUL")


def malformed(mechanism: str, what: str) -> RemoteProtocolError:
    """Return the error for a response that does not follow the mechanism."""
    return RemoteProtocolError("amqp:decode-error", f"malformed SASL {mechanism} response: {what}")
