"""The driver of a connection: bytes go from the transport to the handler, and back.

For a message that comes alone, the calls between the event loop and the handler are a large part of
the work. So the driver is compiled, and the event loop calls it without Python code in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Protocol, final

from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.management.traces import RECEIVED, SENT
from ferrymq_broker.server.read_fairness import MOST, ReadTurns, Round

# The most pieces of one write to a socket: systems allow at least as many.
_MOST_PIECES: Final = 1024
# The modules of the transports whose bytes are those of their socket.
_SOCKET_TRANSPORTS: Final = frozenset({"asyncio.selector_events", "uvloop.loop"})


class ByteTap(Protocol):
    """A receiver of copies of the bytes of a connection."""

    def add(self, arrow: str, data: bytes) -> object:
        """Take bytes that the client sent (`RECEIVED`), or that are sent to it (`SENT`)."""
        ...


def _ignore(*_: object) -> None:
    """Do nothing, because there is no protocol or no transport."""


def _is_closing() -> bool:
    """Return true, because there is no transport."""
    return True


@final
class ConnectionDriver:
    """Driver of the `handler` of one connection, over its `transport`.

    `now` returns the time for the handler. While the protocol is unknown, `begin` gets the first
    bytes, and returns those for the handler; empty, to wait for more. The driver calls `arm` when
    the handler has another deadline, `limit` when the client does not read, `settled` when a
    connection that ends has settled all messages, and `failed` in an `except` clause.

    `taps` get a copy of all bytes. `then` is called once, after the turn that has set it.
    """

    __slots__ = (
        "handler",
        "transport",
        "turns",
        "taps",
        "begin",
        "then",
        "_arm",
        "_limit",
        "_settled",
        "_failed",
        "_is_closing",
        "_send",
        "_descriptor",
    )

    def __init__(
        self,
        now: Callable[[], float],
        round: Round,
        begin: Callable[[bytes], bytes] | None,
        arm: Callable[[], object],
        limit: Callable[[], object],
        settled: Callable[[], object],
        failed: Callable[[], object],
    ) -> None:
        # Both are set when there is a transport.
        self.handler: ClientHandler | None = None
        # A transport of any event loop: they have no common class.
        self.transport: Any = None
        # Methods of the transport, which would have to be looked up for each write.
        self._is_closing: Callable[[], bool] = _is_closing
        self._send: Callable[[bytes], object] = _ignore
        # The descriptor of the socket, if the bytes for the transport are written to it unchanged.
        self._descriptor: int = -1
        self.turns: ReadTurns = ReadTurns(
            self._take, self._stop, self._start, round, clock=now, read=self._read
        )
        self.taps: tuple[ByteTap, ...] = ()
        self.begin: Callable[[bytes], bytes] | None = begin
        self.then: Callable[[], object] | None = None
        self._arm = arm
        self._limit = limit
        self._settled = settled
        self._failed = failed

    def use(self, transport: Any) -> None:
        """Read from this transport, and write to it, from now on."""
        self.transport = transport
        self._is_closing = transport.is_closing
        self._send = transport.write
        self._descriptor = _descriptor_of(transport)

    def receive(self, data: bytes) -> None:
        """Handle a read: in one turn, or in several with turns of other connections in between."""
        self.turns.receive(data)

    def write(self, data: bytes) -> None:
        """Write, unless the transport is closing. Output that waited for the store can come after
        the transport began to close and before its end is reported."""
        if self.taps:
            self._copy(SENT, data)
        if not self._is_closing():
            self._send(data)

    def write_pieces(self, pieces: list[bytes | memoryview]) -> None:
        """Write pieces in order, as `write` does, without a copy of what the socket takes at once.

        The rest is copied: pieces refer to payloads, which must not stay in memory until the client
        reads.
        """
        if self._is_closing():
            return
        if self.taps or self._descriptor < 0 or len(pieces) > _MOST_PIECES:
            self.write(b"".join(pieces))
            return
        written = 0
        if self.transport.get_write_buffer_size() == 0:
            try:
                written = os.writev(self._descriptor, pieces)
            except OSError:
                # The socket takes nothing, or is broken: then the transport finds the same.
                written = 0
        rest: list[bytes | memoryview] = []
        for piece in pieces:
            size = len(piece)
            if written < size:
                rest.append(memoryview(piece)[written:] if written > 0 else piece)
            written = max(0, written - size)
        if rest:
            self._send(b"".join(rest))

    def close(self) -> None:
        """Drop all callbacks, because the transport has ended."""
        self._descriptor = -1
        self.turns.close()
        self.begin = None
        self.then = None
        self._arm = self._limit = self._settled = self._failed = _ignore

    # -- inside --------------------------------------------------------------------------

    def _take(self, data: bytes, now: float) -> None:
        """Handle the bytes of one turn, in one pass of the broker, which begins `now`."""
        if self.begin is not None:
            data = self.begin(data)
            if not data:
                return
        if self.taps:
            self._copy(RECEIVED, data)
        handler = self.handler
        assert handler is not None
        try:
            handler.receive_data(data, now)
        except Exception:
            self._failed()
            return
        output = handler.output
        if handler.deadline_moved:
            self._arm()
        if output.paused:
            self._limit()
        if handler.is_behind():
            # The protocol goes on when the handler has caught up.
            self.turns.hold()
        if output.quiet and not handler.holds_messages():
            self._settled()
        if self.then is not None:
            then = self.then
            self.then = None
            then()

    def _copy(self, arrow: str, data: bytes) -> None:
        for tap in self.taps:
            tap.add(arrow, data)

    def _read(self) -> bytes:
        """Read from the socket, if the bytes of the transport are those of its socket. Return
        nothing if there is nothing now, and at the end: then the transport finds the same."""
        if self._descriptor < 0 or self._is_closing():
            return b""
        try:
            handler = self.handler
            size = MOST if handler is None else int(handler.read_size(MOST))
            return os.read(self._descriptor, size)
        except OSError:
            return b""

    def _stop(self) -> None:
        if not self._is_closing():
            self.transport.pause_reading()

    def _start(self) -> None:
        if not self._is_closing():
            self.transport.resume_reading()


def _descriptor_of(transport: Any) -> int:
    """Return the descriptor of the socket behind a transport, if that adds nothing to the bytes,
    such as encryption; else -1."""
    if type(transport).__module__ not in _SOCKET_TRANSPORTS or not hasattr(os, "writev"):
        return -1
    connected = transport.get_extra_info("socket")
    return -1 if connected is None else int(connected.fileno())
