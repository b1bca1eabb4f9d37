"""SCRAM: the client proves that it knows the password and does not send it (RFC 5802, RFC 7677).

The exchange uses the library scramp. The server stores `ScramKeys` and no password; each side
proves to the other that it knows the keys. Channel binding is not offered.
"""

from __future__ import annotations

import os
from typing import Any, Final

from ferrymq.engine.sasl import Plain, SaslMechanism, SaslServerMechanism, malformed
from ferrymq.errors import AuthenticationError

# The strongest first.
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")

# A secret for the invented keys of unknown users, and the parameters of real ones.
_SECRET: Final = os.urandom(32)
_SALT_SIZE: Final = 32
_KEY_SIZES: Final = {"SCRAM-SHA-512": 64, "SCRAM-SHA-256": 32, "SCRAM-SHA-1": 20}
DEFAULT_ITERATIONS: Final = 4096

# Characters of a name, at most: preparing one (RFC 4013) takes a microsecond for each.
MAX_NAME: Final = 255

# The highest count that a client accepts: with a higher one a server could keep it busy for
# minutes.
MAX_ITERATIONS: Final = 1_000_000


def load_scramp() -> Any:
    """Import scramp: when it is first used, since that takes as long as importing the client.

    Servers call this when they start, so that the first login does not wait.
    """
    import scramp

    return scramp


def _faults() -> tuple[type[Exception], ...]:
    """Return the exceptions of scramp for malformed input of the peer."""
    return (load_scramp().ScramException, ValueError)


class ScramKeys:
    """Stored keys of a user for one mechanism, in place of the password.

    `salt` in bytes, `iterations` at least 4096 (RFC 7677), and the two keys derived from the
    password. `ScramKeys.derive` makes them.
    """

    __slots__ = ("salt", "stored_key", "server_key", "iterations")

    def __init__(self, salt: bytes, stored_key: bytes, server_key: bytes, iterations: int) -> None:
        self.salt: bytes = salt
        self.stored_key: bytes = stored_key
        self.server_key: bytes = server_key
        self.iterations: int = iterations

    @classmethod
    def derive(
        cls, mechanism: str, password: str, iterations: int | None = None, salt: bytes | None = None
    ) -> ScramKeys:
        """Derive keys from a password, by default with a random salt of 32 bytes and 4096
        iterations.

        Raises ValueError for an unknown mechanism, too few iterations or too short a salt.
        """
        try:
            salt, stored_key, server_key, rounds = (
                load_scramp()
                .ScramMechanism(mechanism)
                .make_auth_info(
                    password,
                    iteration_count=DEFAULT_ITERATIONS if iterations is None else iterations,
                    salt=os.urandom(_SALT_SIZE) if salt is None else salt,
                )
            )
        except load_scramp().ScramException as error:
            raise ValueError(str(error)) from None
        return cls(salt, stored_key, server_key, rounds)

    @classmethod
    def made_up(
        cls, mechanism: str, username: str, iterations: int = DEFAULT_ITERATIONS
    ) -> ScramKeys:
        """Return keys that match no password, for an unknown user name.

        `iterations` should be that of real users. The salt stays the same for a name as long as the
        process lives, like that of a real user. No key is derived, as for real users, so that the
        response time does not reveal which names exist.
        """
        # Clients do not need it.
        import hmac

        size = _KEY_SIZES[mechanism]
        salt = hmac.digest(_SECRET, f"{mechanism} {username}".encode(), "sha256")[:_SALT_SIZE]
        return cls(salt, os.urandom(size), os.urandom(size), iterations)


def prepare_name(name: str) -> str:
    """Return a user name prepared for comparison, by SASLprep (RFC 4013).

    Raises ValueError for a name that is empty or too long, or has characters that are not allowed.
    """
    if len(name) > MAX_NAME:
        raise ValueError(f"a user name has at most {MAX_NAME} characters")
    try:
        prepared: str = load_scramp().utils.saslprep(name)
    except load_scramp().ScramException as error:
        raise ValueError(str(error)) from None
    if not prepared:
        raise ValueError("a user name is not empty")
    return prepared


class Scram(SaslMechanism):
    """The client's side of a SCRAM mechanism. The server has to prove that it knows the keys."""

    def __init__(self, name: str, username: str, password: str) -> None:
        if name not in SCRAM_MECHANISMS:
            raise ValueError(f"SASL {name}: the mechanisms are {', '.join(SCRAM_MECHANISMS)}")
        super().__init__(name, username)
        self._password = password
        self._client: Any = None
        self._steps = 0
        self._verified = False

    def initial_response(self) -> bytes | None:
        """Return the client-first message. Begins an exchange: one object may serve several in
        turn."""
        try:
            self._client = load_scramp().ScramClient([self.name], self.username, self._password)
            first: str = self._client.get_client_first()
        except load_scramp().ScramException as error:
            # SASLprep (RFC 4013) does not allow every character in a name or a password.
            raise AuthenticationError(f"SASL {self.name}: {error}") from None
        self._steps = 0
        self._verified = False
        return first.encode()

    def respond(self, challenge: bytes) -> bytes:
        """Return the client-final message, or an empty answer to a server-final message."""
        self._steps += 1
        try:
            if self._steps == 1:
                self._client.set_server_first(challenge.decode())
                if int(self._client.iterations) > MAX_ITERATIONS:
                    raise AuthenticationError(
                        f"the server asks for {self._client.iterations} SCRAM iterations; "
                        f"more than {MAX_ITERATIONS} are refused"
                    )
                final: str = self._client.get_client_final()
                return final.encode()
            self._verify(challenge)
            return b""
        except _faults() as error:
            raise AuthenticationError(f"SASL {self.name}: {error}") from None

    def finish(self, additional_data: bytes | None) -> None:
        """Check the server's proof, which arrives with the outcome unless it arrived in a
        challenge."""
        if not self._verified:
            try:
                self._verify(additional_data or b"")
            except _faults() as error:
                raise AuthenticationError(
                    f"SASL {self.name}: the server has not proved that it knows the user: {error}"
                ) from None

    def _verify(self, message: bytes) -> None:
        self._client.set_server_final(message.decode())
        self._verified = True


class ScramServerMechanism(SaslServerMechanism):
    """The server's side of a SCRAM mechanism; it asks its user for the keys of a name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.wants_keys = True
        self.client_first = True
        self._client_first = ""
        self._server: Any = None
        self._known = False

    def start(self, response: bytes | None) -> None:
        """Read the client-first message."""
        try:
            self._client_first = (response or b"").decode()
            fields = self._client_first.split(",")
            name = next(f[2:] for f in fields[2:] if f.startswith("n="))
        except (UnicodeDecodeError, StopIteration):
            raise malformed(self.name, "not a client-first message with a user name") from None
        try:
            self.username: str | None = prepare_name(name.replace("=2C", ",").replace("=3D", "="))
        except ValueError as error:
            raise malformed(self.name, str(error)) from None

    def challenge(self, keys: ScramKeys | None) -> bytes:
        """Return the server-first message.

        Without keys the exchange continues with keys that match no password, so that an unknown
        user cannot be distinguished from a wrong password.
        """
        self._known = keys is not None
        if keys is None:
            keys = ScramKeys.made_up(self.name, self.username or "")
        given = (keys.salt, keys.stored_key, keys.server_key, keys.iterations)
        try:
            self._server = load_scramp().ScramMechanism(self.name).make_server(lambda _: given)
            self._server.set_client_first(self._client_first)
            first: str = self._server.get_server_first()
        except _faults() as error:
            raise malformed(self.name, str(error)) from None
        return first.encode()

    def finish(self, response: bytes) -> bytes:
        """Return the server-final message. Raises `AuthenticationError` if the proof is wrong."""
        server = self._server
        if server is None:
            raise malformed(self.name, "a response before the challenge")
        try:
            server.set_client_final(response.decode())
            final: str = server.get_server_final()
        except _faults() as error:
            raise AuthenticationError(f"SASL {self.name}: {error}") from None
        if not self._known:
            raise AuthenticationError(f"SASL {self.name}: authentication failed")
        return final.encode()


def password_mechanisms(username: str, password: str, plain: bool = True) -> list[SaslMechanism]:
    """Return the mechanisms that can prove a password, the strongest first (AMQP 1.0 §5.3.3.2).

    `plain` says whether PLAIN, which tells the server the password itself, may come last.
    """
    mechanisms: list[SaslMechanism] = [Scram(name, username, password) for name in SCRAM_MECHANISMS]
    if plain:
        mechanisms.append(Plain(username, password))
    return mechanisms
