"""The server of a broker for tests: its time is a clock that stands still until it is advanced, and
its connections have faults.

Imported by `local_broker`, which runs it in a thread; nothing else imports it, because it needs the
broker's packages.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq.testing.faults import Faults, Side
from ferrymq.testing.frame_splitter import FrameSplitter
from ferrymq_broker.clock import Clock
from ferrymq_broker.config.model import Config
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.security.tls_reload import TlsFiles
from ferrymq_broker.server.protocol import AmqpProtocol
from ferrymq_broker.server.server import BrokerServer

if TYPE_CHECKING:
    from ferrymq_broker.server.websocket_limits import WebSocketLimits

# The seconds of `now` at the start: in the middle of a millisecond, so that rounding never
# makes a timer late by one.
_BEGIN: Final = 1000.0005
_HALF_MS: Final = 0.0005
# The most wake-ups of one call of `advance`.
_MOST_STEPS: Final = 1_000_000
# The least seconds of real time between two empty frames to a client with a time-out.
_LEAST_BEAT: Final = 0.05


class StillClock(Clock):
    """A clock that stands still at `seconds` until they are set. The machine is never suspended."""

    def __init__(self) -> None:
        self.seconds: float = _BEGIN
        self._epoch = float(int(time.time() - _BEGIN))

    def now(self) -> float:
        """Return the seconds."""
        return self.seconds

    def epoch(self) -> float:
        """Return the difference between the time since the Unix epoch and `now`."""
        return self._epoch

    def suspended(self) -> float:
        """Return 0."""
        return 0.0


class LocalProtocol(AmqpProtocol):
    """A connection whose frames pass the faults, and whose deadlines come by the still clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        server = self._server
        assert isinstance(server, LocalServer)
        self._faults = server.faults
        self._incoming = FrameSplitter()
        self._outgoing = FrameSplitter()
        # Frames that are written when the clock has reached their time.
        self._late: deque[tuple[float, bytes]] = deque()
        # Whether a fault has dropped the connection.
        self._cut = False
        super().connection_made(transport)
        # The client's time-out runs by real time: `beat` writes the empty frames.
        if isinstance(self.handler, ConnectionHandler):
            self.handler.connection.settings.keepalives = False

    def _reader(self) -> Callable[[bytes], None]:
        return self._receive

    def _writer(self) -> Callable[[bytes], None]:
        return self._write

    def _receive(self, data: bytes) -> None:
        """Handle a read: the frames up to the one at which the connection drops."""
        split = self._incoming.feed(data)
        # Both directions have the same protocol.
        self._outgoing.foreign = self._incoming.foreign
        frames, drop, deliver = self._judge(split, "client")
        if drop is None:
            if frames:
                self.driver.receive(b"".join(frames))
            return
        if frames:
            self.driver.receive(b"".join(frames))
        self._cut = True
        if deliver:
            self.driver.receive(drop)
        self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._cut:
            return
        frames, drop, deliver = self._judge(self._outgoing.feed(data), "broker")
        if drop is not None and deliver:
            frames.append(drop)
        if frames:
            self.driver.write(b"".join(frames))
        if drop is not None:
            self._cut = True
            # What was written before is sent.
            self._transport.close()

    def _judge(self, frames: list[bytes], sent_by: Side) -> tuple[list[bytes], bytes | None, bool]:
        """Return the frames that pass; the frame at which the connection drops, or None; and
        whether that frame is delivered."""
        passed: list[bytes] = []
        late = self._late
        for frame in frames:
            fault = self._faults.match(frame, sent_by)
            if fault is not None and fault.delay is None:
                return passed, frame, fault.deliver
            if sent_by == "broker" and (fault is not None or late):
                due = self._clock.now() + (fault.delay or 0.0 if fault is not None else 0.0)
                late.append((max(due, late[-1][0]) if late else due, frame))
            else:
                passed.append(frame)
        return passed, None, False

    def follow_clock(self) -> None:
        """Do what is due, because the clock has advanced."""
        late = self._late
        now = self._clock.now()
        due: list[bytes] = []
        while late and late[0][0] <= now and not self._cut:
            due.append(late.popleft()[1])
        if due:
            self.driver.write(b"".join(due))
        if not self._cut:
            self._on_timer()

    def beat(self) -> float:
        """Write an empty frame if the client has an idle time-out, which runs by real time. Return
        after how many seconds the next one is needed."""
        handler = self.handler
        opened = handler.connection.remote_open if isinstance(handler, ConnectionHandler) else None
        idle = None if opened is None else opened.idle_time_out
        if not idle or not handler.is_opened():
            return 1.0
        if not self._cut:
            self.driver.write(EMPTY_FRAME)
        return max(_LEAST_BEAT, idle / 4000)

    def _arm(self) -> None:
        """Note no deadline: `follow_clock` looks at it. One that is due already is handled soon."""
        due = self.handler.next_deadline()
        if due is None or self.handler.output.over or self._timer is not None:
            return
        if due <= self._clock.now():
            self._timer = self._loop.call_later(0, self._on_timer)


class LocalServer(BrokerServer):
    """A broker with a `StillClock`. After `start`, time passes only in `advance`."""

    def __init__(self, config: Config, faults: Faults) -> None:
        self.still: StillClock = StillClock()
        super().__init__(config, self.still)
        self.faults: Faults = faults
        # When the broker's next timer is due; None if there is none.
        self._due: float | None = None
        self._beating: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start the broker, and let its messages pass the faults."""
        await super().start()
        self.broker.shared.screen = self._screen
        self._beat()

    async def close(self) -> None:
        """Drop all connections, and stop."""
        if self._beating is not None:
            self._beating.cancel()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)
        await super().close()

    def new_protocol(
        self, loopback: bool, tls: TlsFiles | None = None, began: float | None = None
    ) -> AmqpProtocol:
        """Return a protocol for a new connection."""
        return LocalProtocol(self, loopback, tls, began)

    def new_web_protocol(self, loopback: bool, websocket_limits: WebSocketLimits) -> AmqpProtocol:
        """Return a protocol for a new connection inside a WebSocket."""
        from ferrymq.testing.local_web_protocol import LocalWebProtocol

        return LocalWebProtocol(self, loopback, websocket_limits)

    async def advance(self, seconds: float) -> None:
        """Advance the clock. Each timer of the broker runs at its own time, in order; connections
        look at their deadlines in the end."""
        still = self.still
        target = still.seconds + seconds
        for _ in range(_MOST_STEPS):
            due = self._due
            if due is None or due > target:
                break
            self._due = None
            still.seconds = min(max(due + _HALF_MS, still.seconds), target)
            self._on_timer()
            # Work in slices goes on in turns of the event loop.
            await asyncio.sleep(0)
        still.seconds = target
        self._on_timer()
        for connection in list(self.connections):
            if isinstance(connection, LocalProtocol):
                connection.follow_clock()
        self.broker.begin_pass(still.seconds)
        self.broker.tidy()
        await asyncio.sleep(0)

    def _wake_at(self, due: float) -> None:
        self._due = due
        if due <= self.still.seconds:
            asyncio.get_running_loop().call_soon(self._on_timer)

    def _screen(self, address: str) -> BrokerError | None:
        found = self.faults.rejection_of(address)
        return None if found is None else BrokerError(found.condition, found.description)

    def _beat(self) -> None:
        pauses = [
            connection.beat()
            for connection in list(self.connections)
            if isinstance(connection, LocalProtocol)
        ]
        self._beating = asyncio.get_running_loop().call_later(min([0.25, *pauses]), self._beat)
