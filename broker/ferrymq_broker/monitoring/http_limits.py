"""Limits of time, memory and connections for HTTP clients.

A client is disconnected if it is idle or sends too slowly, does not read its answer, or sends many
requests without reading. At the limit of connections, the one that has been idle longest is closed
for a new one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ferrymq_broker.delegating_protocol import DelegatingProtocol

# Seconds for the first request, for an answer, and from an answer to the next request.
FIRST: Final = 10.0
WORK: Final = 60.0
IDLE: Final = 75.0
# Bytes that a client may send before one of its requests is handled.
MOST_BYTES: Final = 64 * 1024


class HttpLimits:
    """The connections of one listener, `most` at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._all: dict[asyncio.Protocol, BoundedConnection] = {}
        # The connections without a request, in the order in which they became idle.
        self._idle: dict[BoundedConnection, None] = {}

    def wrap(self, inner: asyncio.Protocol) -> BoundedConnection:
        """Return a connection for the protocol `inner`."""
        return BoundedConnection(self, inner)

    def begin(self, inner: object) -> None:
        """Handle that a request is complete."""
        connection = self._all.get(inner)  # type: ignore[call-overload]
        if connection is not None:
            self._idle.pop(connection, None)
            connection.expect(WORK)

    def end(self, inner: object) -> None:
        """Handle that the answer to a request is ready to be written."""
        connection = self._all.get(inner)  # type: ignore[call-overload]
        if connection is not None:
            self._idle[connection] = None
            connection.expect(IDLE)

    def admit(self, connection: BoundedConnection) -> bool:
        """Add a connection, closing idle ones if needed. Return False if there is no room for
        it."""
        while len(self._all) >= self.most:
            if not self._idle:
                return False
            next(iter(self._idle)).drop()
        self._all[connection.inner] = connection
        self._idle[connection] = None
        return True

    def forget(self, connection: BoundedConnection) -> None:
        """Remove a connection that has ended."""
        self._all.pop(connection.inner, None)
        self._idle.pop(connection, None)


class BoundedConnection(DelegatingProtocol):
    """A connection that hands everything on to `inner`, within the limits."""

    def __init__(self, limits: HttpLimits, inner: asyncio.Protocol) -> None:
        super().__init__(inner)
        self._limits = limits
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        self.transport = transport
        if not self._limits.admit(self):
            self.drop()
            return
        self.expect(FIRST)
        self.serve(transport)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of requests."""
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self.drop()
        else:
            self.receive(data)

    def expect(self, seconds: float) -> None:
        """Set the deadline of the next step, and count bytes from 0 again."""
        self._bytes = 0
        super().expect(seconds)

    def drop(self) -> None:
        """Disconnect the client, and free its place at once."""
        self._limits.forget(self)
        super().drop()

    def gone(self) -> None:
        """Free the connection's place."""
        self._limits.forget(self)
