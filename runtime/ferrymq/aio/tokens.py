"""Bearer tokens of a connection: a text, or a function that is called for each connect."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import cast

from ferrymq.engine.oauth import OAuthBearer
from ferrymq.errors import TransportError
from ferrymq.options import ConnectionOptions, Token
from ferrymq.url import Url


def check_token(url: Url, options: ConnectionOptions, is_private: bool) -> None:
    """Raise ValueError if the options combine a token with settings that exclude one.

    `is_private` is whether no third party can read the data on the way.
    """
    if options.token is None:
        return
    if options.sasl != "auto":
        raise ValueError("give either token or sasl, not both: each says how to authenticate")
    if url.password is not None:
        raise ValueError("the URL has a password, but a token is to be used")
    if isinstance(options.token, str):
        # An invalid token is reported at once.
        OAuthBearer(options.token, url.username)
    if not is_private:
        raise ValueError(
            f"{url}: anyone who reads a token can use it; it is sent by amqps:// only, or with "
            "upgrade_tls, or on this machine"
        )


async def bearer(token: Token, username: str | None) -> OAuthBearer:
    """Return the mechanism for a connection that is about to be made.

    Raises `TransportError` if no token is available, so that a connection with `reconnect` tries
    again later.
    """
    if isinstance(token, str):
        return OAuthBearer(token, username)
    try:
        text = await _asked(token)
    except Exception as error:
        # The text of the error may contain the token or the credentials used to get it.
        raise TransportError(f"no token to connect with: {type(error).__name__}") from error
    if not isinstance(text, str):
        raise TransportError(f"no token to connect with: it is text, not {type(text).__name__}")
    try:
        return OAuthBearer(text, username)
    except ValueError as error:
        raise TransportError(f"no token to connect with: {error}") from None


async def _asked(source: Callable[[], str | Awaitable[str]]) -> str:
    """Return the result of a token function; a function that is not a coroutine function is called
    in a thread, because it may block."""
    if inspect.iscoroutinefunction(source):
        return cast(str, await source())
    made = await asyncio.to_thread(source)
    return await made if inspect.isawaitable(made) else made
