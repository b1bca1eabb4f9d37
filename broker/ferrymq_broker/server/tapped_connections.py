"""The connections of a server, whose bytes a trace may copy."""

from __future__ import annotations

from collections.abc import Iterable

from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.management.traces import FrameTap
from ferrymq_broker.server.protocol import AmqpProtocol


class TappedConnections:
    """The connections with their taps."""

    def __init__(self, connections: Iterable[AmqpProtocol]) -> None:
        self._connections = connections

    def tap(self, connection: int, tap: FrameTap) -> bool:
        """Give the bytes of a connection to `tap` from now on. Return False if it has another
        protocol than AMQP 1.0."""
        protocol = self._find(connection)
        if protocol is None or not isinstance(protocol.handler, ConnectionHandler):
            return False
        protocol.driver.taps += (tap,)
        return True

    def untap(self, connection: int, tap: FrameTap) -> None:
        """Give no more bytes of a connection to `tap`."""
        protocol = self._find(connection)
        if protocol is not None:
            driver = protocol.driver
            driver.taps = tuple(each for each in driver.taps if each is not tap)

    def _find(self, connection: int) -> AmqpProtocol | None:
        for protocol in self._connections:
            if protocol.handler.client.id == connection:
                return protocol
        return None
