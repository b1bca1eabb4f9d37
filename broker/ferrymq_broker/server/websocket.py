"""AMQP over WebSocket."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.errors import ConfigError

if TYPE_CHECKING:
    from ferrymq_broker.server.listening import Running
    from ferrymq_broker.server.server import BrokerServer


async def start_websocket(
    server: BrokerServer, listener: Listener, context: ssl.SSLContext | None
) -> Running:
    """Listen for WebSocket, inside TLS if there is a `context`, which hands every handshake to the
    certificate that is current. Raises `OSError` if the address cannot be had."""
    raise ConfigError(f"{listener.url}: this build has no WebSocket")
