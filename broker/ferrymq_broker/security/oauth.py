"""Logins with a token: by SASL OAUTHBEARER, and as a password if that is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ferrymq.engine.oauth import OAUTHBEARER
from ferrymq.engine.scram import DEFAULT_ITERATIONS, ScramKeys
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import ClientTransport, Login
from ferrymq_broker.security.authenticators import LoginRefusedError, PasswordMethod
from ferrymq_broker.security.passwords import WRONG, may_say_passwords
from ferrymq_broker.security.tokens import TokenVerifier

# Three parts in base64url, the first of which is a JSON object.
_JWT: Final = re.compile(r"eyJ[A-Za-z0-9_\-]*\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*")


class TokenMethod:
    """The login method OAUTHBEARER (RFC 7628), offered only on protected connections by default."""

    def __init__(self, verifier: TokenVerifier, in_the_clear: bool = False) -> None:
        self._verifier = verifier
        self._in_the_clear = in_the_clear

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Return OAUTHBEARER if the client may send a token."""
        return (OAUTHBEARER,) if may_say_passwords(transport, self._in_the_clear) else ()

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return None, because this method has no passwords."""
        return None

    async def identify(self, login: Login) -> UserIdentity:
        """Return the user of the token. Refuse a login as another user."""
        if not login.token:
            raise LoginRefusedError("the client sent no token")
        asked = login.username
        identity = await self._verifier.identify_token(login.token, login.mechanism)
        if asked is not None and asked != identity.user:
            raise LoginRefusedError(
                "the token belongs to another user than the one named in the login"
            )
        return identity


class TokenPasswords:
    """A login method that accepts tokens as passwords, and leaves other passwords to `passwords`.

    The user name that is sent with a token is ignored: the token names the user.
    """

    def __init__(
        self, verifier: TokenVerifier, passwords: PasswordMethod | None, in_the_clear: bool = False
    ) -> None:
        self._verifier = verifier
        self._passwords = passwords
        self._in_the_clear = in_the_clear

    @property
    def iterations(self) -> int:
        """The usual number of SCRAM iterations."""
        return DEFAULT_ITERATIONS if self._passwords is None else self._passwords.iterations

    def users(self) -> dict[str, frozenset[str]]:
        """Return the users with a password."""
        return {} if self._passwords is None else self._passwords.users()

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Return the mechanisms for passwords, and PLAIN if the client may send a token."""
        offered = [] if self._passwords is None else list(self._passwords.mechanisms(transport))
        if "PLAIN" not in offered and may_say_passwords(transport, self._in_the_clear):
            offered.append("PLAIN")
        return offered

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return the SCRAM keys of a user with a password."""
        return None if self._passwords is None else self._passwords.scram_keys(mechanism, username)

    async def identify(self, login: Login) -> UserIdentity:
        """Return the user of the token or of the password."""
        password = login.password
        if login.mechanism == "PLAIN" and password and _JWT.fullmatch(password) is not None:
            return await self._verifier.identify_token(password, login.mechanism, as_password=True)
        if self._passwords is None:
            raise LoginRefusedError(WRONG)
        return await self._passwords.identify(login)
