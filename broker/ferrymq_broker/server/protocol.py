"""The asyncio protocol of a connection, which drives a connection handler."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from ferrymq_broker.clock import reader_of
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.event_log import log
from ferrymq_broker.server.connection_driver import ConnectionDriver
from ferrymq_broker.server.peer_address import host_of, name_of
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
        # The first bytes, while the protocol is unknown.
        self._beginning = b""
        self.driver: ConnectionDriver = ConnectionDriver(
            reader_of(server.clock),
            server.round,
            self._find_protocol if server.tables.protocols else None,
            self._arm,
            self._limit_input,
            self._on_settled,
            self._failed,
        )
        # The bytes of the handshake, as long as the connection may have to go to another worker.
        self._record: HandshakeRecord | None = None
        # Whether the connection goes, or has gone, to another worker.
        self._moving = False
        self._passed = False
        if server.worker is not None:
            self._begin_record()
        # The event loop gets the driver's own method.
        self.data_received = self._reader()  # type: ignore[assignment, method-assign]

    @property
    def handler(self) -> ClientHandler:
        """The handler, once there is a transport."""
        handler = self.driver.handler
        assert handler is not None
        return handler

    @property
    def _transport(self) -> asyncio.Transport:
        transport: asyncio.Transport = self.driver.transport
        return transport

    def _reader(self) -> Callable[[bytes], None]:
        """Return the function that handles a read."""
        return self.driver.receive

    def _writer(self) -> Callable[[bytes], None]:
        """Return the function that writes the handler's bytes."""
        return self.driver.write

    def _pieces_writer(self) -> Callable[[list[bytes | memoryview]], None]:
        """Return the function that writes pieces of the handler's bytes."""
        return self.driver.write_pieces

    # -- from the event loop -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        driver = self.driver
        driver.use(transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            # In addition to AMQP's own idle time-out (AMQP 1.0 §2.4.5).
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client = self._client_transport(transport)
        handler = self._new_handler(client)
        driver.handler = handler
        handler.rearm = self._rearm
        handler.output.write_pieces = self._pieces_writer()
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

    def _new_handler(self, client: ClientTransport) -> ClientHandler:
        return self._server.new_handler(client, self._writer(), self._hang_up, self._began)

    def _authenticator(self, client: ClientTransport) -> Authenticator:
        return self._server.admission.authenticator_for(client)

    def eof_received(self) -> bool:
        """Handle that the client sends no more: answer with a close at most."""
        if not self.handler.is_behind() and not self._moving:
            self.driver.turns.finish()
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
            self._forget_driver()
            return
        self.driver.turns.finish()
        self._receive_eof()
        self._server.connection_gone(self)
        self._forget_driver()
        self.handler.forget_transport()

    def _forget_driver(self) -> None:
        """Break the reference cycles, so that the connection is freed now."""
        self.driver.close()
        self.__dict__.pop("data_received", None)

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
            self.driver.turns.go_on()
        try:
            self.handler.output.resume()
        except Exception:
            self._failed()

    # -- from the driver -----------------------------------------------------------------

    def _find_protocol(self, data: bytes) -> bytes:
        """Choose the handler by the first bytes, and return the bytes for it; none while they could
        be those of another protocol than AMQP 1.0."""
        data = self._beginning + data
        protocols = self._server.tables.protocols
        if len(data) < HEADER_SIZE and any(each.startswith(data) for each in protocols):
            self._beginning = data
            return b""
        self._beginning = b""
        driver = self.driver
        driver.begin = None
        make = protocols.get(data[:HEADER_SIZE])
        if make is not None:
            before = self.handler
            client = before.client
            handler = self._server.admission.other_handler(
                make,
                client,
                self._writer(),
                self._hang_up,
                self._clock.now(),
                self._authenticator(client.transport),
            )
            before.abandon()
            driver.handler = handler
            handler.rearm = self._rearm
            handler.output.write_pieces = self._pieces_writer()
        return data

    def _on_settled(self) -> None:
        self._server.connection_settled(self)

    def _limit_input(self) -> None:
        if self._transport.get_write_buffer_size() > WRITE_LIMIT:
            self.driver.turns.hold()

    # -- TLS -----------------------------------------------------------------------------

    def _begin_tls(self, tls: TlsFiles, data: bytes = b"") -> None:
        """Begin TLS. `data` are bytes of TLS that were read already."""
        if self._record is not None:
            # The client begins anew inside TLS.
            self._begin_record()
        stream = TlsStream(
            tls.context, self._transport, self, self._on_secured, self._on_tls_failed
        )
        self.driver.use(stream)
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
        self.driver.turns.hold()

    def dismiss(self, error: Error) -> None:
        """Close the connection with an error. Output that was not written is thrown away."""
        try:
            words = self.handler.last_words(error)
        except Exception:
            log.exception("internal error", peer=self.handler.client.peer)
            self.abort()
            return
        if words:
            self.driver.write(words)
        self._hang_up()

    def abort(self) -> None:
        """Drop the connection without a close."""
        self._transport.abort()

    # -- inside --------------------------------------------------------------------------

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
            self.driver.turns.go_on()

    def _arm(self) -> None:
        """Set the timer for the handler's next deadline."""
        if self._record is not None:
            if self.handler.moves_to >= 0:
                self._move()
                return
            if self.handler.is_opened():
                self._end_record()
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

    def _begin_record(self) -> None:
        self._end_record()
        self._record = HandshakeRecord()
        self.driver.taps += (self._record,)

    def _end_record(self) -> None:
        record, self._record = self._record, None
        self.driver.taps = tuple(tap for tap in self.driver.taps if tap is not record)

    def _move(self) -> None:
        """Pass the connection to another worker, as soon as everything is written."""
        if self._moving:
            return
        self._moving = True
        self.driver.turns.hold()
        if self._timer is not None:
            self._timer.cancel()
        until = self._clock.now() + self._server.config.limits.handshake_timeout
        self._loop.call_soon(self._pass_on, until)

    def _pass_on(self, until: float) -> None:
        transport = self._transport
        worker, record, identity = self._server.worker, self._record, self.handler.client.identity
        if transport.is_closing():
            return
        assert worker is not None and record is not None and identity is not None
        if transport.get_write_buffer_size():
            if self._clock.now() > until:
                self.abort()
            else:
                self._loop.call_later(FLUSH, self._pass_on, until)
            return
        record.received += self.driver.turns.take_rest()
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
            self._server.relay(transport, ours, self.driver.turns.take_rest(), self)
        else:
            # The socket itself stays open: the other worker has it.
            transport.abort()

    def relay_ended(self) -> None:
        """Handle that the client, whose connection another worker had, is gone."""
        self._forget_driver()

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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        super().connection_made(transport)
        handler = self._amqp_handler()
        handler.connection.settings.tls = True
        handler.connection.settings.tls_required = self._required
        handler.on_tls = self._on_agreed
        # Other protocols cannot begin TLS on a connection.
        if self._required:
            self.driver.begin = None

    def _amqp_handler(self) -> ConnectionHandler:
        handler = self.handler
        assert isinstance(handler, ConnectionHandler)
        return handler

    def _on_agreed(self) -> None:
        self.driver.then = self._upgrade

    def _upgrade(self) -> None:
        # The broker's header is written. Bytes after the client's header go to TLS, which fails if
        # they are anything else: an attacker cannot insert bytes in the clear.
        rest = self.driver.turns.take_rest()
        self._begin_tls(self._upgrade_with, self._amqp_handler().connection.take_tls_data() + rest)

    def _on_secured(self) -> None:
        super()._on_secured()
        self._amqp_handler().connection.tls_established(self._clock.now())
