"""Between an event loop and the engine: bytes in, bytes out, and time.

The loop calls; the engine answers with events and output. Everything one read brings is handled
in one pass, and what it causes is written at once. Output that the application causes is
written when the loop next gets control, so that calls made together share a write.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import weakref
from collections.abc import Callable
from typing import Final, cast

from ferrymq.aio.trace import FrameTrace
from ferrymq.engine.connection import Connection as Engine
from ferrymq.engine.events import Event, TlsAgreed
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_types.transport import Error

# Bytes of output that are encoded at a time: a large message is not copied as a whole.
MAX_OUTPUT: Final = 262_144


class Wire(asyncio.Protocol):
    """What the loop calls, and what hands it on to an `EngineTransport`.

    The loop keeps the wire and the wire keeps nothing, unless `keep` says so: a connection that its
    user drops can be collected.
    """

    def __init__(self, target: EngineTransport) -> None:
        self._target = weakref.ref(target)
        self._kept: EngineTransport | None = None
        self._transport: asyncio.Transport | None = None

    def keep(self, target: EngineTransport) -> None:
        """Keep the target until the transport is gone."""
        self._target = weakref.ref(target)
        self._kept = target

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand on the transport."""
        # uvloop's transports are not asyncio's, but do the same.
        self._transport = cast(asyncio.Transport, transport)
        target = self._target()
        if target is not None:
            target.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Hand on what was read. Where nobody is left, the transport is dropped."""
        target = self._target()
        if target is not None:
            target.data_received(data)
        elif self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> None:
        """Hand on that the peer sends nothing more."""
        target = self._target()
        if target is not None:
            target.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on that the transport is gone."""
        target = self._target()
        self._kept = self._transport = None
        if target is not None:
            target.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hand on that the transport's buffer is full."""
        target = self._target()
        if target is not None:
            target.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that the transport's buffer has room again."""
        target = self._target()
        if target is not None:
            target.resume_writing()


class EngineTransport:
    """One transport and the engine that speaks over it. The loop speaks with its `wire`.

    `on_event` gets every event of the engine in order. `on_pass` is called after each batch of
    them, and when writing becomes possible again. `ended` is done when the transport is gone;
    `cause` is what the loop said about it, if anything. `tls` is for settings that begin TLS
    inside AMQP: the context, and the name that the server's certificate has to bear.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        on_event: Callable[[EngineTransport, Event], None],
        on_pass: Callable[[], None],
        trace: FrameTrace | None = None,
        tls: tuple[ssl.SSLContext, str] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.wire = Wire(self)
        self._transport: asyncio.Transport | None = None
        self._on_event = on_event
        self._on_pass = on_pass
        self._trace = trace
        self._close_timeout = settings.close_timeout
        self._tls = tls
        self._securing: asyncio.Task[None] | None = None
        self._flush_wanted = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._abort: asyncio.TimerHandle | None = None
        settings.max_output = MAX_OUTPUT
        self.engine = Engine(settings, self._loop.time())
        # True while the transport's buffer is full: the application is to wait.
        self.paused = False
        self.cause: BaseException | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # ── What the wire calls ────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with our header."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
            # A message that waits for the next one to fill a packet arrives late.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # In addition to AMQP's own idle time-out (AMQP 1.0 §2.4.5).
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.engine.open()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Give the bytes to the engine, handle its events and write its answers."""
        if self._trace is not None:
            self._trace.received(data)
        self.engine.receive_data(data, self._loop.time())
        self.process()

    def eof_received(self) -> None:
        """The peer sends nothing more; the loop then closes the transport."""
        self.engine.receive_eof(self._loop.time())
        self.process()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
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
        """The transport's buffer is full."""
        self.paused = True

    def resume_writing(self) -> None:
        """The transport's buffer has room again."""
        self.paused = False
        self._on_pass()
        if self.engine.holds_back:
            self.flush()

    # ── What the client calls ──────────────────────────────────────────────────────────────────

    @property
    def has_output(self) -> bool:
        """Whether there is output that can be written now."""
        if self._transport is None or self._transport.is_closing():
            return False
        return self.engine.has_output and not (self.paused and self.engine.holds_back)

    def process(self) -> None:
        """Tell the engine's events and write its output."""
        events = self.engine.take_events()
        while events:
            for event in events:
                if isinstance(event, TlsAgreed):
                    self._securing = self._loop.create_task(self._secure())
                self._on_event(self, event)
            events = self.engine.take_events()
        self._on_pass()
        self.flush()

    def soon(self) -> None:
        """Write what the application has caused when the loop gets control."""
        if not self._flush_wanted:
            self._flush_wanted = True
            self._loop.call_soon(self._process_wanted)

    def close(self, error: Error | None = None) -> None:
        """Close the connection: our close now, the transport when the peer's has come."""
        if self._transport is None:
            self.abort()
            return
        self.engine.close(error, self._loop.time())
        self.process()

    def give_up(self, reason: str) -> None:
        """Say a close if the connection has come so far, and drop the transport."""
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
                # A peer that reads nothing must not keep us.
                self.wire.keep(self)
                self._abort = self._loop.call_later(self._close_timeout or 0.0, transport.abort)
                return
        self.abort()

    def rescue(self) -> None:
        """Go on without anybody who keeps it, until the transport is gone."""
        self.wire.keep(self)
        if self._timer is not None:
            # It knows this object no longer.
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """Drop the transport without another word."""
        if self._transport is not None:
            self._transport.abort()
        elif not self.ended.done():
            # It never began.
            self.ended.set_result(None)

    def flush(self) -> None:
        """Write the engine's output, watch its next deadline, and end when it has ended.

        Of a large message only as much is encoded as the transport takes.
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
            # Those may go on that waited for it.
            self._on_pass()
        if not self.engine.finished:
            self._watch()
        elif self._abort is None:
            if self.engine.lingering and transport.can_write_eof():
                # The peer is to read our last word: what it still sends is read and dropped.
                transport.write_eof()
            else:
                transport.close()
            # A peer that reads nothing must not keep us.
            self.wire.keep(self)
            self._abort = self._loop.call_later(self._close_timeout or 0.0, transport.abort)

    # ── Own ────────────────────────────────────────────────────────────────────────────────────

    def _process_wanted(self) -> None:
        self._flush_wanted = False
        self.process()

    async def _secure(self) -> None:
        """Do the TLS handshake that both headers have agreed on (AMQP 1.0 §5.2)."""
        plain = self._transport
        assert plain is not None and self._tls is not None
        context, hostname = self._tls
        failure: Exception | None = None
        secured: asyncio.Transport | None = None
        if self.engine.take_tls_data():
            # Nobody speaks TLS before its client, which we are.
            failure = ssl.SSLError("the server spoke before the TLS handshake")
        else:
            try:
                secured = await self._loop.start_tls(
                    plain, self.wire, context, server_hostname=hostname
                )
            except OSError as error:
                # Certificates that do not verify are among them: ssl.SSLError is an OSError.
                failure = error
        self._securing = None
        if self._transport is not plain:
            return
        if secured is None:
            # The loop has forgotten whose transport it was.
            plain.abort()
            self.connection_lost(failure)
            return
        self._transport = secured
        self.engine.tls_established(self._loop.time())
        self.process()

    def _watch(self) -> None:
        """Have the timer fire at the deadline or before: an early one only looks again."""
        due = self.engine.next_deadline()
        if due is None or (self._timer is not None and self._due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        # The loop must not keep what nobody else does.
        self._timer = self._loop.call_at(due, _on_timer, weakref.ref(self))

    def _on_timer(self) -> None:
        self._timer = None
        self.engine.handle_timeout(self._loop.time())
        self.process()


def _on_timer(reference: weakref.ref[EngineTransport]) -> None:
    transport = reference()
    if transport is not None:
        transport._on_timer()
