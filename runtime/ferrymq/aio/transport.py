"""Connection of the engine to an event loop: input, output, and time.

The loop calls; the engine answers with events and output. All data of one read is handled in one
pass, and the resulting output is written at once. Output that the application causes is written
when the loop next gets control, so that calls made together share a write.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import weakref
from collections.abc import Callable
from typing import Final, cast

from ferrymq.aio.output_turn import OutputTurn
from ferrymq.aio.trace import FrameTrace
from ferrymq.engine.connection import Connection as Engine
from ferrymq.engine.events import BareEvent, TlsAgreed
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_types.transport import Error

# Bytes of output that are encoded at a time: a large message is not copied as a whole.
MAX_OUTPUT: Final = 262_144
# asyncio allocates 256 KiB for each read, and keeps as much of it as was read. Until a larger block
# has been freed, glibc makes a mapping of its own for each, and removes it: a read then costs 20 µs
# more. So a larger block is freed here, once.
bytes(2 * MAX_OUTPUT)


class Wire(asyncio.Protocol):
    """Protocol object of the loop, which forwards its calls to an `EngineTransport`.

    The loop refers to the wire, and the wire has only a weak reference to its target, unless `keep`
    is called: a connection that its user drops can be collected.
    """

    def __init__(self, target: EngineTransport) -> None:
        self._target = weakref.ref(target)
        self._kept: EngineTransport | None = None
        self._transport: asyncio.Transport | None = None

    def keep(self, target: EngineTransport) -> None:
        """Keep a strong reference to the target until the transport is gone."""
        self._target = weakref.ref(target)
        self._kept = target

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Forward the new transport."""
        # uvloop's transports do not derive from asyncio's, but behave the same.
        self._transport = cast(asyncio.Transport, transport)
        target = self._target()
        if target is not None:
            target.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Forward received data. If the target was collected, close the transport."""
        target = self._target()
        if target is not None:
            target.data_received(data)
        elif self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> None:
        """Forward that the peer sends no more data."""
        target = self._target()
        if target is not None:
            target.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward that the transport is gone."""
        target = self._target()
        self._kept = self._transport = None
        if target is not None:
            target.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward that the transport's buffer is full."""
        target = self._target()
        if target is not None:
            target.pause_writing()

    def resume_writing(self) -> None:
        """Forward that the transport's buffer has room again."""
        target = self._target()
        if target is not None:
            target.resume_writing()


class EngineTransport:
    """One transport and the engine that speaks over it. The loop speaks with its `wire`.

    `on_events` gets the engine's bare events in order. `on_pass` is called after each batch of
    them, and when writing becomes possible again. `ended` is done when the transport is gone;
    `cause` is what the loop said about it, if anything. `tls` is for settings that begin TLS
    inside AMQP: the context, and the name that the server's certificate has to bear.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        on_events: Callable[[EngineTransport, list[BareEvent]], None],
        on_pass: Callable[[], None],
        trace: FrameTrace | None = None,
        tls: tuple[ssl.SSLContext, str] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.wire: Wire = Wire(self)
        self._transport: asyncio.Transport | None = None
        self._on_events = on_events
        self._on_pass = on_pass
        self._trace = trace
        self._close_timeout = settings.close_timeout
        self._tls = tls
        self._securing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        # Whether the timer was set when the connection was open already.
        self._steady = False
        self._abort: asyncio.TimerHandle | None = None
        settings.max_output = MAX_OUTPUT
        self.engine: Engine = Engine(settings, self._loop.time())
        self.turn: OutputTurn = OutputTurn(
            self.engine, self._loop, self.flush, self._process_wanted
        )
        self.cause: BaseException | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # ── What the wire calls ────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with our protocol header."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
            # A message that waits to fill a packet would arrive late.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # This comes in addition to AMQP's own idle time-out (AMQP 1.0 §2.4.5).
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.engine.open()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Pass data to the engine, dispatch its events and write its output."""
        if self._trace is not None:
            self._trace.received(data)
        self.engine.receive_data(data, self._loop.time())
        self.process()

    def eof_received(self) -> None:
        """Tell the engine that the peer sends no more data; the loop then closes the transport."""
        self.engine.receive_eof(self._loop.time())
        self.process()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the loss of the transport."""
        self.cause = exc
        self._transport = None
        for timer in (self._timer, self._abort):
            if timer is not None:
                timer.cancel()
        self._timer = None
        if self._securing is not None:
            self._securing.cancel()
        self.engine.receive_eof(self._loop.time())
        self.process()
        if not self.ended.done():
            self.ended.set_result(None)

    def pause_writing(self) -> None:
        """Pause writing: the transport's buffer is full."""
        self.turn.paused = True

    def resume_writing(self) -> None:
        """Resume writing: the transport's buffer has room again."""
        self.turn.paused = False
        self._on_pass()
        if self.engine.holds_back:
            self.flush()

    # ── What the client calls ──────────────────────────────────────────────────────────────────

    @property
    def connected(self) -> bool:
        """Whether there is a transport: TCP, with TLS or WebSocket where the URL says so."""
        return self._transport is not None

    @property
    def paused(self) -> bool:
        """Whether the transport's buffer is full: the application must wait."""
        return self.turn.paused

    @property
    def has_output(self) -> bool:
        """Whether there is output that can be written now."""
        if self._transport is None or self._transport.is_closing():
            return False
        return self.engine.has_output and not (self.paused and self.engine.holds_back)

    def process(self) -> None:
        """Dispatch the engine's events and write its output."""
        events = self.engine.take_bare_events()
        while events:
            if self._tls is not None and any(isinstance(event, TlsAgreed) for event in events):
                self._securing = self._loop.create_task(self._secure())
            self._on_events(self, events)
            events = self.engine.take_bare_events()
        self._on_pass()
        self.flush()

    def soon(self) -> None:
        """Schedule a write of the application's output at the next turn of the loop."""
        self.turn.soon()

    def write_soon(self, alone: bool = False) -> None:
        """Write the application's output soon: see `OutputTurn.write_soon`."""
        self.turn.write_soon(alone)

    def close(self, error: Error | None = None) -> None:
        """Close the connection: send our close now, close the transport when the peer's has
        come."""
        if self._transport is None:
            self.abort()
            return
        self.engine.close(error, self._loop.time())
        self.process()

    def give_up(self, reason: str) -> None:
        """Send a close if the connection has been opened, and close the transport."""
        transport = self._transport
        if transport is not None and self._securing is None and not transport.is_closing():
            error = Error(condition="amqp:resource-limit-exceeded", description=reason)
            self.engine.close(error, self._loop.time())
            data = self.engine.data_to_send(False)
            if data:
                if self._trace is not None:
                    self._trace.sent(data)
                transport.write(data)
                transport.close()
                # A peer that does not read must not keep this object alive.
                self.wire.keep(self)
                self._abort = self._loop.call_later(self._close_timeout or 0.0, transport.abort)
                return
        self.abort()

    def rescue(self) -> None:
        """Keep this object alive until the transport is gone, when no user refers to it."""
        self.wire.keep(self)
        if self._timer is not None:
            # The timer no longer refers to this object.
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """Close the transport without sending more."""
        if self._transport is not None:
            self._transport.abort()
        elif not self.ended.done():
            # The transport never began.
            self.ended.set_result(None)

    def flush(self) -> None:
        """Write the engine's output, set the timer for its next deadline, and end when the engine
        has ended.

        Of a large message, only the part that the transport accepts is encoded.
        """
        transport = self._transport
        if transport is None:
            return
        held_back = self.engine.holds_back
        data = self.engine.data_to_send(not self.paused)
        while data and not transport.is_closing():
            if self._trace is not None:
                self._trace.sent(data)
            transport.write(data)
            if self.paused or not self.engine.holds_back:
                break
            held_back = True
            data = self.engine.data_to_send()
        if held_back:
            # Calls that waited for the transport may go on.
            self.turn.resuming = True
            try:
                self._on_pass()
            finally:
                self.turn.resuming = False
        engine = self.engine
        if not engine.finished:
            # While the connection is open its deadlines only move away, and an early call of the
            # timer only checks again: there is nothing to do for each read and each write.
            if not self._steady or self._timer is None or not engine.opened or engine.unread:
                self._watch()
        elif self._abort is None:
            if engine.lingering and transport.can_write_eof():
                # The peer should read our last frame: its further data is read and dropped.
                transport.write_eof()
            else:
                transport.close()
            # A peer that does not read must not keep this object alive.
            self.wire.keep(self)
            self._abort = self._loop.call_later(self._close_timeout or 0.0, transport.abort)

    # ── Own ────────────────────────────────────────────────────────────────────────────────────

    def _process_wanted(self) -> None:
        self.turn.wanted = False
        self.process()

    async def _secure(self) -> None:
        """Perform the TLS handshake that both headers have agreed on (AMQP 1.0 §5.2)."""
        plain = self._transport
        assert plain is not None and self._tls is not None
        context, hostname = self._tls
        failure: Exception | None = None
        secured: asyncio.Transport | None = None
        if self.engine.take_tls_data():
            # A server must not speak TLS before the client, which is this side.
            failure = ssl.SSLError("the server spoke before the TLS handshake")
        else:
            try:
                secured = await self._loop.start_tls(
                    plain, self.wire, context, server_hostname=hostname
                )
            except OSError as error:
                # This includes certificates that do not verify: ssl.SSLError is an OSError.
                failure = error
        self._securing = None
        if self._transport is not plain:
            return
        if secured is None:
            # The loop no longer knows the protocol of the transport.
            plain.abort()
            self.connection_lost(failure)
            return
        self._transport = secured
        self.engine.tls_established(self._loop.time())
        self.process()

    def _watch(self) -> None:
        """Set the timer for the deadline or earlier: an early call only checks again."""
        self._steady = self.engine.opened
        due = self.engine.next_deadline()
        if due is None or (self._timer is not None and self._due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        # The loop must not keep alive an object that no one else uses.
        self._timer = self._loop.call_at(due, _on_timer, weakref.ref(self))

    def _on_timer(self) -> None:
        self._timer = None
        self.engine.handle_timeout(self._loop.time())
        self.process()


def _on_timer(reference: weakref.ref[EngineTransport]) -> None:
    transport = reference()
    if transport is not None:
        transport._on_timer()
