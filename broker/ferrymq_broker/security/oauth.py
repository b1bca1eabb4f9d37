"""Logging in with a token: by SASL OAUTHBEARER, and as a password where that was allowed."""

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

# Three parts in base64url, of which the first is a JSON object.
_JWT: Final = re.compile(r"eyJ[A-Za-z0-9_\-]*\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*")


class TokenMethod:
    """OAUTHBEARER (RFC 7628), offered where nobody else can read the token."""

    def __init__(self, verifier: TokenVerifier, in_the_clear: bool = False) -> None:
        self._verifier = verifier
        self._in_the_clear = in_the_clear

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """OAUTHBEARER, or nothing."""
        return (OAUTHBEARER,) if may_say_passwords(transport, self._in_the_clear) else ()

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """There are no passwords."""
        return None

    async def identify(self, login: Login) -> UserIdentity:
        """Whom the token is about, as long as it says so. He may act as himself only."""
        if not login.token:
            raise LoginRefusedError("no token")
        asked = login.username
        identity = await self._verifier.identify_token(login.token, login.mechanism)
        if asked is not None and asked != identity.user:
            raise LoginRefusedError("the token is not that of the user it was to act as")
        return identity


class TokenPasswords:
    """Takes tokens in the place of passwords, and leaves what looks otherwise to `passwords`.

    The name that comes with a token says nothing: the token does.
    """

    def __init__(
        self, verifier: TokenVerifier, passwords: PasswordMethod | None, in_the_clear: bool = False
    ) -> None:
        self._verifier = verifier
        self._passwords = passwords
        self._in_the_clear = in_the_clear

    @property
    def iterations(self) -> int:
        """How often SCRAM hashes the passwords of most users."""
        return DEFAULT_ITERATIONS if self._passwords is None else self._passwords.iterations

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Those for passwords, and PLAIN where nobody else can read the token."""
        offered = [] if self._passwords is None else list(self._passwords.mechanisms(transport))
        if "PLAIN" not in offered and may_say_passwords(transport, self._in_the_clear):
            offered.append("PLAIN")
        return offered

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Those of a user with a password."""
        return None if self._passwords is None else self._passwords.scram_keys(mechanism, username)

    async def identify(self, login: Login) -> UserIdentity:
        """Whom the token is about, or whose password it is."""
        password = login.password
        if login.mechanism == "PLAIN" and password and _JWT.fullmatch(password) is not None:
            return await self._verifier.identify_token(password, login.mechanism, as_password=True)
        if self._passwords is None:
            raise LoginRefusedError(WRONG)
        return await self._passwords.identify(login)
