"""The asyncio protocol of a connection, which drives a connection handler."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, Literal

from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.event_log import log
from ferrymq_broker.management.traces import RECEIVED, SENT, FrameTap
from ferrymq_broker.server.peer_address import host_of, name_of
from ferrymq_broker.server.read_fairness import ReadTurns
from ferrymq_broker.server.tls_stream import TlsStream, mark_secured
from ferrymq_broker.server.workers.passed_connection import HandshakeRecord, PassedConnection
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.security.tls_reload import TlsFiles
    from ferrymq_broker.server.server import BrokerServer

# Bytes in the write buffer above which the connection's consumers wait for the client to read.
WRITE_HIGH_WATER: Final = 64 * 1024
# Bytes in the write buffer above which nothing more is read from the client.
WRITE_LIMIT: Final = 8 * 1024 * 1024
# Seconds for a client to read the last bytes of a connection that has ended.
LINGER: Final = 5.0
# Bytes of a protocol header (AMQP 1.0 §2.2).
HEADER_SIZE: Final = 8
# Seconds until a connection looks again whether its last bytes are written.
FLUSH: Final = 0.005


class AmqpProtocol(asyncio.Protocol):
    """A connection in the event loop.

    With `tls` it begins with TLS. `loopback` says whether the listener is only for this machine.
    `began` is the time at which the connection was accepted, if that is not now.
    """

    def __init__(
        self,
        server: BrokerServer,
        loopback: bool,
        tls: TlsFiles | None = None,
        began: float | None = None,
    ) -> None:
        self._server = server
        self._began = began
        self._loopback = loopback
        self._tls = tls
        self._clock = server.clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._lingering: asyncio.TimerHandle | None = None
        # The first bytes, until the protocol is known; None if it is, or if there is one only.
        self._beginning: bytes | None = b"" if server.tables.protocols else None
        # What wants a copy of the bytes.
        self.taps: tuple[FrameTap, ...] = ()
        self._turns = ReadTurns(self._take, self._stop_reading, self._start_reading, server.round)
        # The bytes of the handshake, as long as the connection may have to go to another worker.
        self._record: HandshakeRecord | None = None
        if server.worker is not None:
            self._record = HandshakeRecord()
        # Whether the connection goes, or has gone, to another worker.
        self._moving = False
        self._passed = False

    # -- from the event loop -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            # In addition to AMQP's own idle time-out (AMQP 1.0 §2.4.5).
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client = self._client_transport(transport)
        self.handler: ClientHandler = self._server.new_handler(
            client, self._write, self._hang_up, self._began, self._authenticator(client)
        )
        self.handler.rearm = self._rearm
        self._server.connections.add(self)
        if self._server.failure is not None:
            # The store failed while the connection was being accepted.
            self.abort()
            return
        self._arm()
        if self._tls is not None:
            self._begin_tls(self._tls)

    def _client_transport(self, transport: asyncio.BaseTransport) -> ClientTransport:
        peername = transport.get_extra_info("peername")
        return ClientTransport(name_of(peername), host_of(peername), self._loopback)

    def _authenticator(self, client: ClientTransport) -> Authenticator:
        return self._server.admission.authenticator_for(client)

    def data_received(self, data: bytes) -> None:
        """Handle a read: in one turn, or in several with turns of other connections in between."""
        self._turns.receive(data)

    def _take(self, data: bytes) -> None:
        """Handle the bytes of one turn, in one pass of the broker."""
        if self._beginning is not None:
            data = self._find_protocol(self._beginning + data)
            if self._beginning is not None:
                return
        if self.taps:
            self._copy(RECEIVED, data)
        handler = self.handler
        if self._record is not None:
            if handler.is_opened():
                self._record = None
            else:
                self._record.received += data
        try:
            handler.receive_data(data, self._clock.now())
        except Exception:
            self._failed()
            return
        if handler.deadline_moved:
            self._arm()
        if handler.output.paused:
            self._limit_input()
        if handler.is_behind():
            # `_rearm` goes on when the handler has caught up.
            self._turns.hold()
        if handler.output.quiet and not handler.holds_messages():
            self._server.connection_settled(self)

    def _find_protocol(self, data: bytes) -> bytes:
        """Choose the handler by the first bytes, and return the bytes for it. Wait for more while
        they could be those of another protocol than AMQP 1.0."""
        protocols = self._server.tables.protocols
        if len(data) < HEADER_SIZE and any(each.startswith(data) for each in protocols):
            self._beginning = data
            return data
        self._beginning = None
        make = protocols.get(data[:HEADER_SIZE])
        if make is not None:
            before = self.handler
            client = before.client
            handler = self._server.admission.other_handler(
                make,
                client,
                self._write,
                self._hang_up,
                self._clock.now(),
                self._authenticator(client.transport),
            )
            before.abandon()
            self.handler = handler
            handler.rearm = self._rearm
        return data

    def eof_received(self) -> bool:
        """Handle that the client sends no more: answer with a close at most."""
        if not self.handler.is_behind() and not self._moving:
            self._turns.finish()
            self._receive_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle that the transport has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._lingering is not None:
            # The timer would keep all objects of the connection in memory.
            self._lingering.cancel()
        if self._passed:
            # Another worker has it.
            self._turns.close()
            return
        self._turns.finish()
        self._receive_eof()
        self._server.connection_gone(self)
        # Break the reference cycles, so that the connection is freed now.
        self._turns.close()
        self.handler.forget_transport()

    def _receive_eof(self) -> None:
        try:
            self.handler.receive_eof(self._clock.now())
        except Exception:
            log.exception("internal error", peer=self.handler.client.peer)

    def pause_writing(self) -> None:
        """Handle that the client does not read as fast as the broker writes."""
        self.handler.output.pause()

    def resume_writing(self) -> None:
        """Handle that the client has read most of what was written."""
        if self._moving:
            return
        if not self.handler.is_behind():
            # Otherwise `_rearm` goes on.
            self._turns.go_on()
        try:
            self.handler.output.resume()
        except Exception:
            self._failed()

    # -- TLS -----------------------------------------------------------------------------

    def _begin_tls(self, tls: TlsFiles, data: bytes = b"") -> None:
        """Begin TLS. `data` are bytes of TLS that were read already."""
        if self._record is not None:
            self._record = HandshakeRecord()
        stream = TlsStream(
            tls.context, self._transport, self, self._on_secured, self._on_tls_failed
        )
        self._transport = stream
        stream.begin(data)

    def _on_secured(self) -> None:
        transport = self._transport
        assert isinstance(transport, TlsStream)
        mark_secured(self.handler, transport)

    def _on_tls_failed(self, reason: str) -> None:
        log.warning("TLS failed", peer=self.handler.client.peer, reason=reason)

    # -- from the server -----------------------------------------------------------------

    def quiesce(self) -> bool:
        """Stop sending messages and giving credit. Return whether the client has settled all
        messages."""
        self.handler.output.quiesce()
        return not self.handler.holds_messages()

    def close(self, error: Error) -> None:
        """Close the connection with an error."""
        try:
            self.handler.close(error, self._clock.now())
        except Exception:
            self._failed()
        else:
            self._arm()

    def hold(self) -> None:
        """Read nothing more from the client."""
        self._turns.hold()

    def dismiss(self, error: Error) -> None:
        """Close the connection with an error. Output that was not written is thrown away."""
        try:
            words = self.handler.last_words(error)
        except Exception:
            log.exception("internal error", peer=self.handler.client.peer)
            self.abort()
            return
        if words:
            self._write(words)
        self._hang_up()

    def abort(self) -> None:
        """Drop the connection without a close."""
        self._transport.abort()

    # -- inside --------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        """Write, unless the transport is closing. Output that waited for the store can come after
        the transport began to close and before `connection_lost`."""
        if self.taps:
            self._copy(SENT, data)
        if self._record is not None:
            self._record.sent += data
        if not self._transport.is_closing():
            self._transport.write(data)

    def _copy(self, arrow: str, data: bytes) -> None:
        for tap in self.taps:
            tap.add(arrow, data)

    def _limit_input(self) -> None:
        if self._transport.get_write_buffer_size() > WRITE_LIMIT:
            self._turns.hold()

    def _stop_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def _start_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _failed(self) -> None:
        """Close this connection after an unexpected exception in the broker."""
        log.exception("internal error", peer=self.handler.client.peer)
        try:
            self.handler.close(
                Error(condition="amqp:internal-error", description="the broker made a mistake"),
                self._clock.now(),
            )
        except Exception:
            log.exception("internal error", peer=self.handler.client.peer)
        self._hang_up()

    def _hang_up(self) -> None:
        """End the transport: let the client read the last bytes for a while, then drop it."""
        transport = self._transport
        if transport.is_closing():
            return
        if self.handler.is_lingering() and transport.can_write_eof():
            # The client must be able to read the close frame, so its input is read and dropped.
            transport.write_eof()
        else:
            transport.close()
        self._lingering = self._loop.call_later(LINGER, transport.abort)

    def _rearm(self) -> None:
        """Set the timer again after the handler worked in another pass, and read on if it caught
        up."""
        self._arm()
        if self._moving:
            return
        if not self.handler.is_behind() and not self.handler.output.paused:
            self._turns.go_on()

    def _arm(self) -> None:
        """Set the timer for the handler's next deadline."""
        if self.handler.moves_to >= 0:
            self._move()
            return
        due = self.handler.next_deadline()
        if due is None or self.handler.output.over:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        delay = max(0.0, due - self._clock.now())
        self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.now()
        due = self.handler.next_deadline()
        if due is not None and due <= now:
            try:
                self.handler.handle_timeout(now)
            except Exception:
                self._failed()
                return
        self._arm()

    # -- to another worker ---------------------------------------------------------------

    def _move(self) -> None:
        """Pass the connection to another worker, as soon as everything is written."""
        if self._moving:
            return
        self._moving = True
        self._turns.hold()
        if self._timer is not None:
            self._timer.cancel()
        self._until = self._clock.now() + self._server.config.limits.handshake_timeout
        self._loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        transport = self._transport
        worker, record, identity = self._server.worker, self._record, self.handler.client.identity
        if transport.is_closing():
            return
        assert worker is not None and record is not None and identity is not None
        if transport.get_write_buffer_size():
            if self._clock.now() > self._until:
                self.abort()
            else:
                self._loop.call_later(FLUSH, self._pass_on)
            return
        record.received += self._turns.take_rest()
        received, sent = record.from_amqp()
        client = self.handler.client
        relayed = not self.can_pass_socket()
        passed = PassedConnection.of(received, sent, relayed, client.transport, identity)
        number = int(self.handler.moves_to)
        try:
            if relayed:
                ours, theirs = socket.socketpair()
                with theirs:
                    worker.peers.pass_connection(number, passed, theirs)
            else:
                worker.peers.pass_connection(number, passed, transport.get_extra_info("socket"))
        except OSError as error:
            log.warning(
                "another worker takes no connection",
                peer=client.peer,
                worker=number,
                reason=str(error),
            )
            self.abort()
            return
        self._passed = True
        self.handler.abandon()
        self._server.connection_passed(self, relayed)
        if relayed:
            self._server.relay(transport, ours, self._turns.take_rest(), self)
        else:
            # The socket itself stays open: the other worker has it.
            transport.abort()

    def can_pass_socket(self) -> bool:
        """Return whether the bytes of the client are those of its socket, without TLS."""
        return not isinstance(self._transport, TlsStream)


class UpgradableProtocol(AmqpProtocol):
    """A connection that begins without TLS, and may or must go on with TLS (AMQP 1.0 §5.2)."""

    def __init__(
        self,
        server: BrokerServer,
        loopback: bool,
        tls: TlsFiles,
        upgrade: Literal["offered", "required"],
    ) -> None:
        super().__init__(server, loopback)
        self._upgrade_with = tls
        self._required = upgrade == "required"
        self._agreed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        super().connection_made(transport)
        handler = self._amqp_handler()
        handler.connection.settings.tls = True
        handler.connection.settings.tls_required = self._required
        handler.on_tls = self._on_agreed
        # Other protocols cannot begin TLS on a connection.
        if self._required:
            self._beginning = None

    def _amqp_handler(self) -> ConnectionHandler:
        handler = self.handler
        assert isinstance(handler, ConnectionHandler)
        return handler

    def _take(self, data: bytes) -> None:
        """Handle the bytes of one turn, in one pass of the broker."""
        super()._take(data)
        if self._agreed:
            self._agreed = False
            # The broker's header is written. Bytes after the client's header go to TLS, which fails
            # if they are anything else: an attacker cannot insert bytes in the clear.
            behind = self._amqp_handler().connection.take_tls_data() + self._turns.take_rest()
            self._begin_tls(self._upgrade_with, behind)

    def _on_agreed(self) -> None:
        self._agreed = True

    def _on_secured(self) -> None:
        super()._on_secured()
        self._amqp_handler().connection.tls_established(self._clock.now())
