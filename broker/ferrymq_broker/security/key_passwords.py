"""Logins with the name and the secret of a shared access key, by SASL PLAIN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrymq.engine.scram import ScramKeys
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import ClientTransport, Login
from ferrymq_broker.security.authenticators import LoginRefusedError
from ferrymq_broker.security.passwords import WRONG, may_say_passwords

if TYPE_CHECKING:
    from ferrymq_broker.security.tokens import TokenVerifier


class KeyPasswords:
    """A login method with the shared access keys that `verifier` knows, which decides at once.

    The client has the rights of the key, and no user name. With `in_the_clear`, secrets may come
    from other machines without TLS.
    """

    def __init__(self, verifier: TokenVerifier, in_the_clear: bool = False) -> None:
        self._verifier = verifier
        self._in_the_clear = in_the_clear

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Return PLAIN if the client may send its secret."""
        return ("PLAIN",) if may_say_passwords(transport, self._in_the_clear) else ()

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return None: keys are for PLAIN alone."""
        return None

    async def identify(self, login: Login) -> UserIdentity:
        """Return the identity of a key. Raises `LoginRefusedError`."""
        key = self._verifier.key_with(login.username or "", login.password or "")
        if not key:
            raise LoginRefusedError(WRONG)
        return UserIdentity(None, key=key, mechanism=login.mechanism)
