"""The token of a connection: a text, or whoever is asked for one each time it connects."""

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
    """Raise ValueError if the options ask for a token and for something that does not go with it.

    `is_private` is whether nobody else can read what is sent.
    """
    if options.token is None:
        return
    if options.sasl != "auto":
        raise ValueError("token says how to authenticate, and sasl does: one of them is enough")
    if url.password is not None:
        raise ValueError("the URL has a password, but a token is to be used")
    if isinstance(options.token, str):
        # Whether it can be one at all is known now.
        OAuthBearer(options.token, url.username)
    if not is_private:
        raise ValueError(
            f"{url}: whoever reads a token can use it; it is sent by amqps:// only, or with "
            "upgrade_tls, or on this machine"
        )


async def bearer(token: Token, username: str | None) -> OAuthBearer:
    """The mechanism for a connection that is about to be made.

    Raises `TransportError` if no token can be had, so that a connection that reconnects tries
    again later.
    """
    if isinstance(token, str):
        return OAuthBearer(token, username)
    try:
        text = await _asked(token)
    except Exception as error:
        # What it says may have the token in it, or what that was asked for with.
        raise TransportError(f"no token to connect with: {type(error).__name__}") from error
    if not isinstance(text, str):
        raise TransportError(f"no token to connect with: it is text, not {type(text).__name__}")
    try:
        return OAuthBearer(text, username)
    except ValueError as error:
        raise TransportError(f"no token to connect with: {error}") from None


async def _asked(source: Callable[[], str | Awaitable[str]]) -> str:
    """Return what a token function gives. A function that awaits nothing is called in a thread,
    because it may take long."""
    if inspect.iscoroutinefunction(source):
        return cast(str, await source())
    made = await asyncio.to_thread(source)
    return await made if inspect.isawaitable(made) else made
