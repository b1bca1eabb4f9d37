"""Users with passwords: those of the configuration, and those of a file."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from ferrymq.engine.scram import DEFAULT_ITERATIONS, SCRAM_MECHANISMS, ScramKeys
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import ClientTransport, Login
from ferrymq_broker.security.authenticators import LoginRefusedError
from ferrymq_broker.security.password_cache import PasswordDigest
from ferrymq_broker.security.users import derive_keys

# What the log says, of the one as of the other.
WRONG = "unknown user or wrong password"


def may_say_passwords(transport: ClientTransport, in_the_clear: bool) -> bool:
    """Whether a client may send its password: where nobody else reads it, or where that was
    allowed."""
    return transport.loopback or transport.encrypted or in_the_clear


class ConfiguredPasswords:
    """Checks the passwords of the `users` of a configuration, at once.

    With `in_the_clear` passwords may come from other machines without TLS.
    """

    def __init__(self, users: Mapping[str, SecretStr], in_the_clear: bool = False) -> None:
        self._in_the_clear = in_the_clear
        self._digest = PasswordDigest()
        self._digests: dict[str, bytes] = {}
        self._keys: dict[str, dict[str, ScramKeys]] = {}
        # Before anybody connects: done at a login the time would tell whether a name is known.
        for name, secret in users.items():
            password = secret.get_secret_value()
            self._digests[name] = self._digest.of(name, password)
            self._keys[name] = derive_keys(password)

    @property
    def iterations(self) -> int:
        """How often SCRAM hashes a password."""
        return DEFAULT_ITERATIONS

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """SCRAM everywhere, PLAIN where nobody else can read it."""
        if may_say_passwords(transport, self._in_the_clear):
            return (*SCRAM_MECHANISMS, "PLAIN")
        return SCRAM_MECHANISMS

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """What a proof of the user's password is checked with, or None if there is no such user."""
        keys = self._keys.get(username)
        return None if keys is None else keys.get(mechanism)

    async def identify(self, login: Login) -> UserIdentity:
        """Who says a good password, or has proved to know it. Unknown users take the time of
        known ones."""
        username = login.username or ""
        known = self._digests.get(username)
        good = known is not None
        # With SCRAM, the engine asks when the password has been proved.
        if login.mechanism == "PLAIN":
            said = self._digest.of(username, login.password or "")
            good = hmac.compare_digest(said, said if known is None else known) and good
        if not good:
            raise LoginRefusedError(WRONG)
        return UserIdentity(username, mechanism=login.mechanism)


class AnyPassword:
    """On this machine every name is good, with every password: the friendly local broker."""

    @property
    def iterations(self) -> int:
        """Nothing is hashed here."""
        return DEFAULT_ITERATIONS

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """What says a name, to whoever is on this machine."""
        return ("PLAIN",) if transport.loopback else ()

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """There are no users."""
        return None

    async def identify(self, login: Login) -> UserIdentity:
        """Take the name that is given; nothing proves it."""
        return UserIdentity(login.username, mechanism=login.mechanism, proven=False)
