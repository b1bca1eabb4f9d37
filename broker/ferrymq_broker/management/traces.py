"""Traces of connections: TRACE returns the frames that pass between two requests, as text.

Bytes are kept as they pass, and become text when a client asks for them, so that the connection is
hardly slower. A trace keeps a bounded number of bytes between two requests; bytes beyond that are
only counted. It ends some seconds after the last request.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ferrymq_broker.management.errors import CONFLICT, NOT_FOUND, TOO_MANY, ManagementError
from ferrymq_broker.management.operation import Call, Result
from ferrymq_broker.management.sliced_query import Steps

TRACE: Final = "TRACE"
ARGUMENTS: Final = ("trace",)

# Traces at a time.
MOST_TRACES: Final = 4
# Bytes that a trace keeps between two requests.
MOST_HELD: Final = 1024 * 1024
# Seconds after a request in which the next one must come.
PATIENCE: Final = 30.0
# Lines of an answer after which the rest is left for the next one.
_MOST_LINES: Final = 500
# Bytes that become text together, and lines that are made in one step.
_PIECE: Final = 16 * 1024
_STEP: Final = 10

RECEIVED: Final = "->"
SENT: Final = "<-"


class FrameTap:
    """The bytes of a connection since the last request. `clock` returns the seconds since the Unix
    epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.id: str = secrets.token_urlsafe(9)
        self.due: float = clock() + PATIENCE
        # Bytes that were not kept.
        self.dropped: int = 0
        # Whether a request is making text.
        self.busy: bool = False
        self._clock = clock
        # Only a broker with traces needs what turns bytes into text.
        from ferrymq.tracing.trace import Trace

        self._trace = Trace(joined=True)
        self._pieces: deque[tuple[str, float, bytes]] = deque()
        self._held = 0

    def add(self, arrow: str, data: bytes) -> None:
        """Keep bytes that the client sent (`RECEIVED`), or that are sent to it (`SENT`)."""
        if self._held + len(data) > MOST_HELD or self.lapsed():
            self.dropped += len(data)
            return
        self._held += len(data)
        now = self._clock()
        for start in range(0, len(data), _PIECE):
            self._pieces.append((arrow, now, bytes(data[start : start + _PIECE])))

    def lapsed(self) -> bool:
        """Return whether no request came for too long."""
        return self._clock() > self.due

    def lines(self) -> Steps[list[str]]:
        """Return the lines of the frames that are complete, some at a time."""
        self.due = self._clock() + PATIENCE
        found: list[str] = []
        while self._pieces and len(found) < _MOST_LINES:
            arrow, time, data = self._pieces.popleft()
            self._held -= len(data)
            for line in self._trace.feed(arrow, data, time):
                found.append(line)
                if len(found) % _STEP == 0:
                    yield None
        return found


class Tapped(Protocol):
    """An object with the connections of the broker."""

    def tap(self, connection: int, tap: FrameTap) -> bool:
        """Give the bytes of a connection to `tap` from now on. Return False if the connection has
        no frames that a trace can show."""
        ...

    def untap(self, connection: int, tap: FrameTap) -> None:
        """Give no more bytes of a connection to `tap`."""
        ...


class ConnectionTraces:
    """The traces of all connections of a broker."""

    def __init__(self, connections: Tapped, clock: Callable[[], float]) -> None:
        self._connections = connections
        self._clock = clock
        self._taps: dict[str, tuple[int, FrameTap]] = {}

    def trace(self, call: Call, connection: int) -> Steps[Result]:
        """Handle TRACE: return the frames of the connection that passed since the last request with
        this `trace`. A request without one begins a trace."""
        call.expect_only(*ARGUMENTS)
        id = call.text("trace", "")
        tap = self._resumed(id, connection) if id else self._begun(connection)
        if tap.busy:
            raise ManagementError(CONFLICT, "trace: another request is reading this trace")
        tap.busy = True
        try:
            lines = yield from tap.lines()
        finally:
            tap.busy = False
        dropped, tap.dropped = tap.dropped, 0
        return Result({"trace": tap.id, "lines": lines, "dropped": dropped})

    def _resumed(self, id: str, connection: int) -> FrameTap:
        of, tap = self._taps.get(id, (0, None))
        if tap is None or of != connection or tap.lapsed():
            raise ManagementError(NOT_FOUND, "trace: it has ended; begin another one")
        return tap

    def _begun(self, connection: int) -> FrameTap:
        for id, (of, tap) in list(self._taps.items()):
            if tap.lapsed():
                del self._taps[id]
                self._connections.untap(of, tap)
        if len(self._taps) >= MOST_TRACES:
            raise ManagementError(TOO_MANY, f"there are {MOST_TRACES} traces already")
        tap = FrameTap(self._clock)
        if not self._connections.tap(connection, tap):
            raise ManagementError(CONFLICT, "only connections of AMQP 1.0 can be traced")
        self._taps[tap.id] = (connection, tap)
        return tap
