"""How much of its time and memory an HTTP client may have.

A client that says nothing, or one byte a second, is let go after a while; so is one that does not
read its answer, or sends without listening. Where there are as many as there may be, the one that
has been idle longest makes room.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ferrymq_broker.delegating_protocol import DelegatingProtocol

# Seconds: to the end of the first request; to the answer; from one answer to the next request.
FIRST: Final = 10.0
WORK: Final = 60.0
IDLE: Final = 75.0
# Bytes of requests that a client may send before one of them is looked at.
MOST_BYTES: Final = 64 * 1024


class HttpLimits:
    """The connections of one listener, `most` at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._all: dict[asyncio.Protocol, BoundedConnection] = {}
        # Those without a request, in the order in which they became idle.
        self._idle: dict[BoundedConnection, None] = {}

    def wrap(self, inner: asyncio.Protocol) -> BoundedConnection:
        """A connection that the protocol `inner` is to serve."""
        return BoundedConnection(self, inner)

    def begin(self, inner: object) -> None:
        """A request is whole."""
        connection = self._all.get(inner)  # type: ignore[call-overload]
        if connection is not None:
            self._idle.pop(connection, None)
            connection.expect(WORK)

    def end(self, inner: object) -> None:
        """The request has its answer, which is to be written yet."""
        connection = self._all.get(inner)  # type: ignore[call-overload]
        if connection is not None:
            self._idle[connection] = None
            connection.expect(IDLE)

    def admit(self, connection: BoundedConnection) -> bool:
        """Whether there is room for one more."""
        while len(self._all) >= self.most:
            if not self._idle:
                return False
            next(iter(self._idle)).drop()
        self._all[connection.inner] = connection
        self._idle[connection] = None
        return True

    def forget(self, connection: BoundedConnection) -> None:
        """It is gone."""
        self._all.pop(connection.inner, None)
        self._idle.pop(connection, None)


class BoundedConnection(DelegatingProtocol):
    """Hands everything on to `inner`, as long as it keeps within the bounds."""

    def __init__(self, bounds: HttpLimits, inner: asyncio.Protocol) -> None:
        super().__init__(inner)
        self._bounds = bounds
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = transport
        if not self._bounds.admit(self):
            self.drop()
            return
        self.expect(FIRST)
        self.serve(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self.drop()
        else:
            self.receive(data)

    def expect(self, seconds: float) -> None:
        """The next thing is to have happened by then, and takes bytes of its own."""
        self._bytes = 0
        super().expect(seconds)

    def drop(self) -> None:
        """Let the client go; somebody else may have its place at once."""
        self._bounds.forget(self)
        super().drop()

    def gone(self) -> None:
        """Its place is free."""
        self._bounds.forget(self)
