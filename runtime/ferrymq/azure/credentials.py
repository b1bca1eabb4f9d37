"""Tokens for audiences: made from a shared access key, given, or asked for at Microsoft Entra."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from ferrymq.azure.connection_string import ConnectionString, expiry_of
from ferrymq.errors import TransportError


class Token(Protocol):
    """A token for Service Bus or Event Hubs, such as azure-identity's ``AccessToken``."""

    @property
    def token(self) -> str:
        """The text of the token."""

    @property
    def expires_on(self) -> int:
        """Time at which the token expires, in seconds since 1970."""


class AccessToken(NamedTuple):
    """A `Token`."""

    token: str
    expires_on: int


Credential: TypeAlias = Callable[[], Token | Awaitable[Token]]
"""A function or coroutine function that returns a token of Microsoft Entra for the scope
``https://servicebus.azure.net/.default``."""


class IssuedToken(NamedTuple):
    """A token as it is put. `made` says whether another one would last longer."""

    text: str
    kind: str
    expires: float | None
    made: bool


TokenProvider: TypeAlias = Callable[[str, float], Awaitable[IssuedToken]]
"""A coroutine function of an audience and the time, which returns a token for it."""

_SHARED_ACCESS: Final = "servicebus.windows.net:sastoken"
_ENTRA: Final = "jwt"


def shared_access(parts: ConnectionString, lifetime: float) -> TokenProvider:
    """Return the tokens of a connection string. `lifetime` is how long each is valid, in seconds.

    Raises ValueError if it has neither a key nor a signature.
    """
    key, signature = parts.key, parts.signature
    if key is None and signature is None:
        raise ValueError("SharedAccessKey is missing, and no credential is given")

    async def issue(audience: str, now: float) -> IssuedToken:
        if key is None:
            assert signature is not None
            return IssuedToken(signature, _SHARED_ACCESS, expiry_of(signature), False)
        expiry = int(now + lifetime)
        return IssuedToken(key.token(audience, expiry), _SHARED_ACCESS, expiry, True)

    return issue


def entra(credential: Credential) -> TokenProvider:
    """Return the tokens that a function returns.

    They raise `TransportError` if the function fails, so that a connection with `reconnect` tries
    again later.
    """

    async def issue(audience: str, now: float) -> IssuedToken:
        try:
            token = await _asked(credential)
            return IssuedToken(token.token, _ENTRA, float(token.expires_on), True)
        except Exception as error:
            # The text of the error may contain the token or the credentials used to get it.
            name = type(error).__name__
            raise TransportError(
                f"no token for {audience}: the credential raised {name}"
            ) from error

    return issue


async def _asked(credential: Credential) -> Token:
    """Return the token of a credential; a function that is not a coroutine function is called in a
    thread, because it may block."""
    if inspect.iscoroutinefunction(credential):
        return cast(Token, await credential())
    made = await asyncio.to_thread(credential)
    return await made if inspect.isawaitable(made) else made
