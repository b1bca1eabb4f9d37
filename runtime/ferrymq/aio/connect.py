"""Connecting: from a URL to an open connection."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Unpack

from ferrymq.aio.connection import Connection
from ferrymq.aio.failover import Failover
from ferrymq.aio.handshake import is_private, open_transport
from ferrymq.aio.link_redirects import LinkRedirects
from ferrymq.aio.opening import Opening
from ferrymq.aio.recovery import Recovery
from ferrymq.aio.tokens import check_token
from ferrymq.arguments import make_options
from ferrymq.durations import seconds
from ferrymq.engine.sasl import SaslMechanism
from ferrymq.options import ConnectionArguments, ConnectionOptions
from ferrymq.reconnect import ReconnectPolicy
from ferrymq.url import Url, parse_urls, shown_urls


def connect(
    url: str | Sequence[str] = "amqp://localhost", **options: Unpack[ConnectionArguments]
) -> Opening[Connection]:
    """Open a connection; `ConnectionOptions` explains the arguments.

        async with ferrymq.connect("amqp://localhost") as connection: ...
        connection = await ferrymq.connect("amqps://user:password@broker.example")

    `url` may be a list of URLs of one broker, or a text with commas between them. They are tried in
    order, and share the `timeout`.

    Raises ValueError for a URL that says something impossible, at once; and when opened
    `TransportError` if no transport could be made, `AuthenticationError` if SASL did not succeed,
    `ConnectionClosed` if the peer refused, and `TimeoutError`.
    """
    urls = parse_urls(url)
    settings = _merge(urls, options)
    _check_kinds(settings)
    for one in urls:
        _check_url(one, settings)

    async def open() -> Connection:
        connection = await _open(urls, settings)
        if settings.follow_redirects:
            connection.link_redirects = LinkRedirects(connection, _open)
        return connection

    return Opening(open, f"ferrymq.connect({shown_urls(urls)!r})")


async def _open(urls: Sequence[Url], settings: ConnectionOptions) -> Connection:
    """Open a connection to one of the URLs of a broker. Raises ValueError for a URL that the
    options do not allow, and as `connect`."""

    def check(one: Url) -> None:
        _check_url(one, settings)

    async def attempt(url: Url, timeout: float | None) -> Connection:
        connection = Connection(url, settings)
        try:
            await open_transport(connection, failover, url, timeout)
        except BaseException:
            connection.discard()
            raise
        return connection

    for one in urls:
        check(one)
    failover = Failover(urls, seconds(settings.timeout), settings.follow_redirects, check)
    connection = await failover.connect(attempt)
    if settings.reconnect is not False:
        policy = settings.reconnect
        connection.recovery = Recovery(
            connection,
            ReconnectPolicy() if policy is True else policy,
            failover,
            open_transport,
        )
    return connection


def _check_url(url: Url, settings: ConnectionOptions) -> None:
    """Raise ValueError for a URL that the options do not allow."""
    if settings.upgrade_tls and url.scheme != "amqp":
        raise ValueError(
            f"upgrade_tls is for amqp://: {url.scheme}:// has TLS from the start or never"
        )
    if settings.ssl is not None and not (url.secure or settings.upgrade_tls):
        raise ValueError(
            "an SSL context is given, but the URL does not start with amqps:// or wss:// and "
            "upgrade_tls is not set"
        )
    check_token(url, settings, is_private(url, settings))


def _merge(urls: list[Url], arguments: ConnectionArguments) -> ConnectionOptions:
    """Merge the arguments with the options of the URLs; arguments win. Raises ValueError for a
    value of the wrong kind, and for an option with different values."""
    merged = ConnectionArguments(**arguments)
    if len(urls) > 1:
        merged.setdefault("reconnect", True)
    given: dict[str, str] = {}
    for url in urls:
        for name, text in url.options.items():
            if given.setdefault(name, text) != text:
                raise ValueError(f"option {name!r} has different values in the URLs")
    for name, text in given.items():
        if name in arguments:
            continue
        try:
            if name == "container_id":
                merged["container_id"] = text
            elif name == "hostname":
                merged["hostname"] = text
            elif name == "max_frame_size":
                merged["max_frame_size"] = int(text)
            elif name == "idle_time_out":
                merged["idle_time_out"] = float(text)
            else:
                merged["timeout"] = float(text)
        except ValueError:
            raise ValueError(f"option {name!r} in the URL is not a number: {text!r}") from None
    return make_options(ConnectionOptions, "connect", merged)


def _check_kinds(options: ConnectionOptions) -> None:
    """Raise TypeError for an option of another kind than those that it may have."""
    if options.ssl is not None and not isinstance(options.ssl, ssl.SSLContext):
        raise TypeError(
            f"ssl takes an ssl.SSLContext, not {options.ssl!r}; amqps:// in the URL means TLS"
        )
    if not isinstance(options.reconnect, bool | ReconnectPolicy):
        raise TypeError(
            f"reconnect takes True, False or ReconnectPolicy, not {options.reconnect!r}"
        )
    chosen = options.sasl
    several = chosen if isinstance(chosen, list | tuple) else [chosen]
    if chosen is not None and chosen != "auto":
        for one in several:
            if not isinstance(one, SaslMechanism):
                raise TypeError(
                    "sasl takes None, 'auto' or mechanisms of ferrymq.engine, such as "
                    f"Plain(user, password), not {one!r}"
                )
