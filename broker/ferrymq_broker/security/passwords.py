"""Logins with passwords from the configuration."""

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

# The text for the log is the same in both cases.
WRONG = "unknown user or wrong password"


def may_say_passwords(transport: ClientTransport, in_the_clear: bool) -> bool:
    """Return whether a client may send its password: on this machine, over TLS, or if
    `in_the_clear` allows it."""
    return transport.loopback or transport.encrypted or in_the_clear


class ConfiguredPasswords:
    """A login method with the passwords of the `users` of a configuration, which decides at once.

    With `in_the_clear`, passwords may come from other machines without TLS.
    """

    def __init__(self, users: Mapping[str, SecretStr], in_the_clear: bool = False) -> None:
        self._in_the_clear = in_the_clear
        self._digest = PasswordDigest()
        self._digests: dict[str, bytes] = {}
        self._keys: dict[str, dict[str, ScramKeys]] = {}
        # Derived in advance: at a login the time would show whether a name is known.
        for name, secret in users.items():
            password = secret.get_secret_value()
            self._digests[name] = self._digest.of(name, password)
            self._keys[name] = derive_keys(password)

    @property
    def iterations(self) -> int:
        """The number of SCRAM iterations."""
        return DEFAULT_ITERATIONS

    def users(self) -> dict[str, frozenset[str]]:
        """Return the names of all users; none has groups here."""
        return dict.fromkeys(self._digests, frozenset())

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Return the SCRAM mechanisms, and PLAIN if the client may send its password."""
        if may_say_passwords(transport, self._in_the_clear):
            return (*SCRAM_MECHANISMS, "PLAIN")
        return SCRAM_MECHANISMS

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return the SCRAM keys of a user; None if there is no such user."""
        keys = self._keys.get(username)
        return None if keys is None else keys.get(mechanism)

    async def identify(self, login: Login) -> UserIdentity:
        """Return the user with a valid password or SCRAM proof. An unknown user takes the same
        time."""
        username = login.username or ""
        known = self._digests.get(username)
        good = known is not None
        # With SCRAM the engine has checked the proof before it calls this.
        if login.mechanism == "PLAIN":
            said = self._digest.of(username, login.password or "")
            good = hmac.compare_digest(said, said if known is None else known) and good
        if not good:
            raise LoginRefusedError(WRONG)
        return UserIdentity(username, mechanism=login.mechanism)


class AnyPassword:
    """A login method that accepts every name and password, only on this machine."""

    @property
    def iterations(self) -> int:
        """The number of SCRAM iterations, which is not used."""
        return DEFAULT_ITERATIONS

    def users(self) -> dict[str, frozenset[str]]:
        """Return no users: every name is accepted."""
        return {}

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Return PLAIN for clients on this machine."""
        return ("PLAIN",) if transport.loopback else ()

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return None, because there are no users."""
        return None

    async def identify(self, login: Login) -> UserIdentity:
        """Return an identity with the given name, which is not proved."""
        return UserIdentity(login.username, mechanism=login.mechanism, proven=False)
