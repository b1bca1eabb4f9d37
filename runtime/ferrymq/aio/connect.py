"""Connecting: from a URL to an open connection."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from typing import Unpack

from ferrymq.aio.connection import LOGGER, Connection
from ferrymq.aio.opening import Opening
from ferrymq.aio.recovery import Recovery
from ferrymq.aio.termini import ANONYMOUS_RELAY
from ferrymq.aio.tokens import bearer, check_token
from ferrymq.aio.trace import FrameTrace
from ferrymq.aio.transport import EngineTransport
from ferrymq.aio.unreachable import refused, unanswered, unreachable
from ferrymq.aio.waiting import deadline
from ferrymq.aio.websocket import open_websocket
from ferrymq.arguments import make_options
from ferrymq.durations import seconds
from ferrymq.engine.sasl import Anonymous, Plain, SaslMechanism
from ferrymq.engine.scram import password_mechanisms
from ferrymq.engine.settings import ConnectionSettings
from ferrymq.errors import AuthenticationError, TransportError
from ferrymq.options import ConnectionArguments, ConnectionOptions
from ferrymq.reconnect import ReconnectPolicy
from ferrymq.url import Url, parse_url


def connect(
    url: str = "amqp://localhost", **options: Unpack[ConnectionArguments]
) -> Opening[Connection]:
    """Open a connection; `ConnectionOptions` explains the arguments.

        async with ferrymq.connect("amqp://localhost") as connection: ...
        connection = await ferrymq.connect("amqps://user:password@broker.example")

    Raises ValueError for a URL that says something impossible, at once; and when opened
    `TransportError` if no transport could be made, `AuthenticationError` if SASL did not succeed,
    `ConnectionClosed` if the peer refused, and `TimeoutError`.
    """
    parsed = parse_url(url)
    settings = _merge(parsed, options)
    _check_kinds(settings)
    if settings.upgrade_tls and parsed.scheme != "amqp":
        raise ValueError(
            f"upgrade_tls is for amqp://: {parsed.scheme}:// has TLS from the start or never"
        )
    if settings.ssl is not None and not (parsed.secure or settings.upgrade_tls):
        raise ValueError(
            "an SSL context is given, but the URL does not start with amqps:// or wss:// and "
            "upgrade_tls is not set"
        )

    check_token(parsed, settings, _is_private(parsed, settings))

    async def open() -> Connection:
        connection = Connection(parsed, settings)
        try:
            await open_transport(connection)
        except BaseException:
            connection.discard()
            raise
        if settings.reconnect is not False:
            policy = settings.reconnect
            connection.recovery = Recovery(
                connection,
                ReconnectPolicy() if policy is True else policy,
                open_transport,
            )
        return connection

    return Opening(open, f"ferrymq.connect({str(parsed)!r})")


def _merge(url: Url, arguments: ConnectionArguments) -> ConnectionOptions:
    """Merge the arguments with the URL's options; arguments win. Raises ValueError for a value of
    the wrong kind."""
    merged = ConnectionArguments(**arguments)
    for name, text in url.options.items():
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


def mechanisms(url: Url, options: ConnectionOptions) -> list[SaslMechanism]:
    """Return the SASL mechanisms to use, in order of preference; none for no SASL layer.

    A user name in the URL leads to SCRAM, which does not reveal the password to the server, then to
    PLAIN for a server without SCRAM. Logs a warning if others could read the password on the way.
    """
    chosen = options.sasl
    if chosen is None:
        return []
    if isinstance(chosen, SaslMechanism):
        return [chosen]
    if chosen != "auto":
        return list(chosen)
    if url.username is None:
        return [Anonymous()]
    if not _is_private(url, options):
        LOGGER.warning(
            "%s: a server without SCRAM gets the password unencrypted; amqps:// would protect it",
            url,
        )
    if not url.password:
        # An empty password cannot be proved.
        return [Plain(url.username, "")]
    return password_mechanisms(url.username, url.password)


def _is_private(url: Url, options: ConnectionOptions) -> bool:
    """Return whether no third party can read the data on the way."""
    return url.secure or options.upgrade_tls or _is_local(url.host)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _desired(capabilities: list[str] | None) -> list[str]:
    """Return the capabilities that the user desires, and those that the client uses where they are
    offered."""
    desired = list(capabilities or ())
    if ANONYMOUS_RELAY not in desired:
        desired.append(ANONYMOUS_RELAY)
    return desired


async def open_transport(connection: Connection) -> None:
    """Give the connection a transport and open it. Raises as `connect` does."""
    url, options = connection.url, connection.options
    if options.token is None:
        sasl = mechanisms(url, options)
    else:
        async with deadline(options.timeout, lambda within: f"no token for {url} came {within}"):
            sasl = [await bearer(options.token, url.username)]
    settings = ConnectionSettings(
        container_id=str(options.container_id),
        initiator=True,
        hostname=options.hostname or url.host,
        max_frame_size=options.max_frame_size,
        incoming_window=options.incoming_window,
        idle_time_out=seconds(options.idle_time_out),
        # The handshake must end within the caller's timeout.
        handshake_timeout=None,
        close_timeout=seconds(options.close_timeout),
        offered_capabilities=options.offered_capabilities,
        desired_capabilities=_desired(options.desired_capabilities),
        required_capabilities=options.required_capabilities,
        properties=options.properties,
        sasl=sasl,
        tls=options.upgrade_tls,
        sasl_hostname=_server_name(url, options),
        types=connection.types,
    )
    context = None
    if url.secure or options.upgrade_tls:
        context = options.ssl or ssl.create_default_context()
    transport = EngineTransport(
        settings,
        connection.on_event,
        connection.on_pass,
        FrameTrace.if_enabled(str(url)),
        (context, url.host) if context is not None and options.upgrade_tls else None,
    )
    opened = connection.start(transport)
    try:
        async with deadline(options.timeout, lambda within: unanswered(url, transport, within)):
            try:
                if url.over_web:
                    await open_websocket(url, transport.wire, context)
                else:
                    await asyncio.get_running_loop().create_connection(
                        lambda: transport.wire,
                        url.host,
                        url.port,
                        ssl=context if url.secure else None,
                        server_hostname=url.host if url.secure else None,
                    )
            except OSError as error:
                # This includes certificates that do not verify: ssl.SSLError is an OSError.
                raise unreachable(url, error) from error
            try:
                await opened
            except (AuthenticationError, TransportError) as error:
                raise refused(url, options, error) from (error.__cause__ or error)
            # The peer may have closed directly after its open.
            connection.check()
    except BaseException:
        if not opened.cancel() and not opened.cancelled():
            # The exception is retrieved, so that asyncio does not report it.
            opened.exception()
        if not transport.engine.finished:
            # A transport that is finished ends by itself (AMQP 1.0 §5.1).
            transport.give_up("the client has given up waiting for the open")
        raise


def _server_name(url: Url, options: ConnectionOptions) -> str | None:
    """Return the hostname of sasl-init: the name that TLS tells the server, if any (AMQP 1.0
    §5.3.3.2).

    TLS sends a name and never an address (RFC 6066 §3). Without TLS it is the hostname of the open.
    """
    if not (url.secure or options.upgrade_tls):
        return options.hostname or url.host
    try:
        ipaddress.ip_address(url.host)
    except ValueError:
        return url.host
    return None
