"""Opening a connection at one URL: transport, TLS, login and the exchange of opens."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from typing import TYPE_CHECKING

from ferrymq.aio.connection import LOGGER
from ferrymq.aio.termini import ANONYMOUS_RELAY
from ferrymq.aio.tokens import bearer
from ferrymq.aio.trace import FrameTrace
from ferrymq.aio.transport import EngineTransport
from ferrymq.aio.unreachable import refused, unanswered, unreachable
from ferrymq.aio.waiting import deadline
from ferrymq.aio.websocket import open_websocket
from ferrymq.durations import seconds
from ferrymq.engine.sasl import Anonymous, Plain, SaslMechanism
from ferrymq.engine.scram import password_mechanisms
from ferrymq.engine.settings import ConnectionSettings
from ferrymq.errors import AuthenticationError, TransportError

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.failover import Failover
    from ferrymq.options import ConnectionOptions
    from ferrymq.url import Url


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
    if not is_private(url, options):
        LOGGER.warning(
            "%s: a server without SCRAM gets the password unencrypted; amqps:// would protect it",
            url,
        )
    if not url.password:
        # An empty password cannot be proved.
        return [Plain(url.username, "")]
    return password_mechanisms(url.username, url.password)


def is_private(url: Url, options: ConnectionOptions) -> bool:
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


async def open_transport(
    connection: Connection, failover: Failover, url: Url, timeout: float | None
) -> None:
    """Give the connection a transport to a URL and open it, within seconds. Raises as `connect`
    does, and `OtherCluster`."""
    connection.url = url
    options = connection.options
    if options.token is None:
        sasl = mechanisms(url, options)
    else:
        async with deadline(timeout, lambda within: f"no token for {url} came {within}"):
            sasl = [await bearer(options.token, url.username)]
    settings = ConnectionSettings(
        container_id=str(options.container_id),
        initiator=True,
        hostname=_hostname(url, options),
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
        connection.on_events,
        connection.on_pass,
        FrameTrace.if_enabled(str(url)),
        (context, url.server_name) if context is not None and options.upgrade_tls else None,
    )
    opened = connection.start(transport)
    try:
        async with deadline(timeout, lambda within: unanswered(url, transport, within)):
            try:
                if url.over_web:
                    await open_websocket(url, transport.wire, context)
                else:
                    await asyncio.get_running_loop().create_connection(
                        lambda: transport.wire,
                        url.host,
                        url.port,
                        ssl=context if url.secure else None,
                        server_hostname=url.server_name if url.secure else None,
                    )
            except OSError as error:
                # This includes certificates that do not verify: ssl.SSLError is an OSError.
                raise unreachable(url, error) from error
            try:
                await opened
            except (AuthenticationError, TransportError) as error:
                raise refused(url, options, error) from (error.__cause__ or error)
            failover.check_cluster(url, connection.remote_properties)
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
        return _hostname(url, options)
    try:
        ipaddress.ip_address(url.server_name)
    except ValueError:
        return url.server_name
    return None


def _hostname(url: Url, options: ConnectionOptions) -> str:
    """Return the hostname of the open: the user's own choice, which may be a virtual host, is kept
    after a redirect."""
    return options.hostname or url.hostname or url.host
