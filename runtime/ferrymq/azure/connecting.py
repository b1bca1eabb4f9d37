"""Connecting to Azure Service Bus and Event Hubs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

from ferrymq.aio.connect import connect as connect_amqp
from ferrymq.azure.authorizer import Authorizer
from ferrymq.azure.connection_string import ConnectionString, wrong
from ferrymq.azure.credentials import Credential, entra, shared_access
from ferrymq.durations import Duration, check_duration
from ferrymq.options import ConnectionArguments

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.opening import Opening

TOKEN_LIFETIME: Final = 3600.0
"""Seconds that a token made from a key is valid."""

_NAME: Final = "the connection string"
_WEBSOCKET: Final = "/$servicebus/websocket"
_WEB: Final = {"amqp": "ws", "amqps": "wss"}


def connect(
    where: str,
    *,
    credential: Credential | None = None,
    websocket: bool = False,
    token_lifetime: Duration = TOKEN_LIFETIME,
    **options: Unpack[ConnectionArguments],
) -> Opening[Connection]:
    """Open a connection to Azure Service Bus or Event Hubs.

        async with azure.connect(os.environ["SERVICE_BUS"], reconnect=True) as connection: ...

    `where` is a connection string, or with a `credential` the host, such as
    ``NAME.servicebus.windows.net``. Before the first link to a queue, topic or hub is attached, and
    again when the connection has been restored, a token for it is put at the node ``$cbs``: one
    made from the key, valid for `token_lifetime`, or one that `credential` returns. It is put again
    before it expires, as long as there are links.

    `websocket` connects with WebSocket, on port 443. `options` are those of `ferrymq.connect`.

    Raises ValueError, which never quotes a secret, for a `where` that is neither, and when opened
    as `ferrymq.connect`. Attaching a link raises `TokenRefused` if the service refuses the token,
    and `TransportError` if the credential fails.
    """
    url, settings = connection_arguments(where, credential, websocket, token_lifetime, options)
    return connect_amqp(url, **settings)


def connection_arguments(
    where: str,
    credential: Credential | None,
    websocket: bool,
    token_lifetime: Duration,
    options: ConnectionArguments,
) -> tuple[str, ConnectionArguments]:
    """Return URL and arguments for `ferrymq.connect`. Raises ValueError."""
    if options.get("authorize") is not None or options.get("token") is not None:
        raise ValueError(
            "azure.connect puts tokens itself: give credential=, not token= or authorize="
        )
    lifetime = check_duration(token_lifetime, "token_lifetime")
    parts = _parse(where)
    if credential is not None:
        provider = entra(credential)
    elif parts.key is None and parts.signature is None:
        raise ValueError(f"{_NAME}: {wrong('it has no key')}; or give a credential")
    else:
        provider = shared_access(parts, lifetime)
    url = parts.url
    if websocket:
        scheme, _, rest = url.partition("://")
        host, _, port = rest.rpartition(":")
        # The endpoint may name a port; otherwise it is that of WebSocket.
        place = rest if parts.host.endswith(f":{port}") else host
        url = f"{_WEB[scheme]}://{place}{_WEBSOCKET}"
    settings = ConnectionArguments(**options)
    settings["authorize"] = Authorizer(provider, parts.host, parts.entity)
    return url, settings


def _parse(where: str) -> ConnectionString:
    """Return the parts of a connection string, or of a host alone."""
    if not isinstance(where, str):
        raise TypeError(f"a connection string is a str, not {type(where).__name__}")
    text = where.strip()
    if text and not {"=", ";", "/"} & set(text):
        text = f"Endpoint=sb://{text}/"
    try:
        return ConnectionString.parse(text)
    except ValueError as error:
        raise ValueError(f"{_NAME}: {error}") from None
