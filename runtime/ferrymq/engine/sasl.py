"""SASL mechanisms (AMQP 1.0 §5.3; RFC 4505 ANONYMOUS, RFC 4616 PLAIN).

The client's side of a mechanism is a `SaslMechanism`: what it says first, and
what it answers to a challenge. The server's side parses what a client said into
`Credentials`; whether they are good is not the engine's to decide.
"""

from __future__ import annotations

from ferrymq.errors import AuthenticationError, RemoteProtocolError


class SaslMechanism:
    """The client's side of one SASL mechanism. `name` is its registered name."""

    __slots__ = ("name", "username")

    def __init__(self, name: str, username: str | None) -> None:
        self.name = name
        self.username = username

    def initial_response(self) -> bytes | None:
        """What goes into the sasl-init, or None for nothing."""
        return None

    def respond(self, challenge: bytes) -> bytes:
        """The answer to a challenge. Raises `AuthenticationError` if none is expected."""
        raise AuthenticationError(f"SASL {self.name} knows no challenge, but the server sent one")


class Anonymous(SaslMechanism):
    """ANONYMOUS: no credentials, only a trace for the server's log."""

    __slots__ = ("trace",)

    def __init__(self, trace: str = "anonymous") -> None:
        super().__init__("ANONYMOUS", None)
        self.trace = trace

    def initial_response(self) -> bytes | None:
        """The trace."""
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
        """User name and password, each after a NUL."""
        return f"\0{self.username}\0{self._password}".encode()


class Credentials:
    """What a client said about itself. Both are None for ANONYMOUS."""

    __slots__ = ("username", "password")

    def __init__(self, username: str | None, password: str | None) -> None:
        self.username = username
        self.password = password


def parse_initial_response(mechanism: str, response: bytes | None) -> Credentials:
    """What the sasl-init of a client means. Raises `RemoteProtocolError` if it is malformed."""
    if mechanism == "ANONYMOUS":
        return Credentials(None, None)
    parts = (response or b"").split(b"\0")
    if len(parts) != 3 or not parts[1]:
        raise RemoteProtocolError(
            "amqp:decode-error",
            "malformed SASL PLAIN response: not authzid NUL authcid NUL password",
        )
    try:
        authzid, username, password = [part.decode() for part in parts]
    except UnicodeDecodeError:
        raise RemoteProtocolError(
            "amqp:decode-error", "malformed SASL PLAIN response: not UTF-8"
        ) from None
    if authzid and authzid != username:
        raise RemoteProtocolError(
            "amqp:not-allowed", "SASL PLAIN: acting for another identity is not supported"
        )
    return Credentials(username, password)
