"""Users with passwords that are known as they are, for brokers without an event loop."""

from __future__ import annotations

import hmac
from typing import final

from ferrymq.engine.scram import SCRAM_MECHANISMS, ScramKeys
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport, Login


@final
class KnownUsers(Authenticator):
    """Checks names and passwords.

    `users` maps names to passwords. With `anyone`, every name and password is good. `anonymous`
    lets in clients that say nothing. `keys` are those of `derive_keys`, if they have been derived
    before.
    """

    def __init__(
        self,
        users: dict[str, str],
        anyone: bool,
        anonymous: bool,
        keys: dict[tuple[str, str], ScramKeys] | None = None,
    ) -> None:
        self.users = users
        self.anyone = anyone
        self.anonymous = anonymous
        self._keys = derive_keys(users) if keys is None else keys

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        """The SASL mechanisms to offer, those that lead somewhere."""
        offered = []
        if self.anonymous:
            offered.append("ANONYMOUS")
        if self.users and not self.anyone:
            offered.extend(SCRAM_MECHANISMS)
        if self.anyone or self.users:
            offered.append("PLAIN")
        return offered

    def is_required(self, transport: ClientTransport) -> bool:
        """Whether a client has to say who it is."""
        return not self.anonymous

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """What a proof of the user's password is checked with, or None if there is no such user."""
        return self._keys.get((mechanism, username))

    def authenticate(self, login: Login) -> None:
        """Decide at once."""
        if login.mechanism == "ANONYMOUS" and self.anonymous:
            login.decide(UserIdentity(None, mechanism=login.mechanism))
        elif self._is_good(login):
            login.decide(UserIdentity(login.username, mechanism=login.mechanism))
        else:
            login.decide(None, "unknown user or wrong password")

    def _is_good(self, login: Login) -> bool:
        """Whether the password is. Unknown users and wrong passwords take the same time."""
        username = login.username
        if login.mechanism in SCRAM_MECHANISMS:
            # The engine asks when the password has been proved.
            return username in self.users
        if login.mechanism != "PLAIN" or username is None or login.password is None:
            return False
        if self.anyone:
            return True
        expected = self.users.get(username)
        given = login.password.encode()
        if expected is None:
            hmac.compare_digest(given, given)
            return False
        return hmac.compare_digest(given, expected.encode())


def derive_keys(users: dict[str, str]) -> dict[tuple[str, str], ScramKeys]:
    """The SCRAM keys of all users, by mechanism and name: some milliseconds for each user.

    Done before anybody connects, for done at a login the time would tell whether a name is known.
    Passwords that SASLprep (RFC 4013) does not allow, with control characters, have none.
    """
    keys: dict[tuple[str, str], ScramKeys] = {}
    for name, password in users.items():
        for mechanism in SCRAM_MECHANISMS:
            try:
                keys[mechanism, name] = ScramKeys.derive(mechanism, password)
            except ValueError:
                break
    return keys
