"""TLS over an existing transport, from its first byte or after bytes in the clear.

The standard library's TLS engine has two buffers. Received bytes go into one; decrypted bytes go to
the protocol; bytes that the engine produces, alerts included, go to the network. So a client that
is refused gets an alert with the reason; bytes in the clear cannot be taken for decrypted ones; and
back-pressure is that of the transport, because there are no queues in between.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ferrymq_broker.server.handshakes import Handshakes

if TYPE_CHECKING:
    from ferrymq_broker.connections.client_handler import ClientHandler

# The most bytes of one record.
_RECORD: Final = 16384
# Seconds for a client to read why it is refused.
_LINGER: Final = 1.0
# The most bytes of a client before the end of the handshake, more than a chain of certificates.
_MOST_EARLY: Final = 256 * 1024
# The most bytes that TLS answers by itself to a client that sends no data, for example one that
# asks for new keys again and again.
_MOST_ANSWERS: Final = 256 * 1024


def _ignore(*_: object) -> None:
    """Do nothing, because the transport has ended."""


class TlsStream(asyncio.Protocol, asyncio.Transport):
    """A protocol towards the network, and a transport for `protocol` after `on_secured` was called.

    From then on `protocol` gets data and the end of data; `connection_lost` is called in any case.
    `on_failed` gets the reason if the handshake fails or TLS breaks; the connection ends after
    that. `begin` takes bytes of the handshake that were read already.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        on_secured: Callable[[], object],
        on_failed: Callable[[str], object],
    ) -> None:
        super().__init__()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = context.wrap_bio(
            self._incoming, self._outgoing, server_side=True
        )
        self._handshakes = Handshakes.of_this_loop()
        self._plain = transport
        self._protocol = protocol
        self._on_secured = on_secured
        self._on_failed = on_failed
        self._timer: asyncio.TimerHandle | None = None
        self._answered = 0
        self._secured = False
        # Whether received bytes are dropped, and whether written bytes are dropped.
        self._drops_input = False
        self._drops_output = True

    def begin(self, data: bytes = b"") -> None:
        """Begin TLS on the transport. `data` are bytes of TLS that were read already."""
        self._plain.set_protocol(self)
        if data:
            self.data_received(data)

    def certificate(self) -> dict[str, object] | None:
        """Return the verified certificate of the client, as `ssl.SSLSocket.getpeercert` has it."""
        tls = self._tls
        return None if tls is None else dict(tls.getpeercert() or {}) or None

    def version(self) -> str:
        """Return the version of TLS, such as ``TLSv1.3``; empty before the handshake is over."""
        tls = self._tls
        return "" if tls is None else tls.version() or ""

    # -- from the network ----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Handle bytes of records."""
        if self._drops_input:
            return
        self._incoming.write(data)
        if self._secured:
            self._read()
        elif self._incoming.pending > _MOST_EARLY:
            self.abort()
        else:
            # Other connections are served in between, so a thousand handshakes do not block them.
            self._handshakes.ask(self._go_on)

    def eof_received(self) -> bool | None:
        """Handle that the client sends no more. A missing close_notify does not matter, because
        AMQP has its own close."""
        if self._drops_input:
            return False
        self._drops_input = True
        if not self._secured:
            self._on_failed("the client went away")
            return False
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle that the transport has ended."""
        if not self._secured and not self._drops_input:
            self._on_failed("the connection was lost" if exc is None else str(exc))
        self._drops_input = self._drops_output = True
        if self._timer is not None:
            self._timer.cancel()
        # Free a hundred kilobytes now, without waiting for garbage collection.
        self._tls = None
        self._protocol.connection_lost(exc)
        # The protocol refers to this object as its transport: break the cycle, so that both are
        # freed now.
        self._protocol = asyncio.Protocol()
        self._on_secured = self._on_failed = _ignore

    def pause_writing(self) -> None:
        """Handle that the transport's buffer is full."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Handle that the transport's buffer has room again."""
        self._protocol.resume_writing()

    # -- as a transport ------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and write. After the end of output data is dropped."""
        tls = self._tls
        if self._drops_output or tls is None or self._plain.is_closing():
            return
        try:
            sent = tls.write(data)
            if sent < len(data):
                rest = memoryview(data)
                while sent < len(rest):
                    sent += tls.write(rest[sent:])
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._plain.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        """Return whether the end of output can be sent while input is still read."""
        return self._plain.can_write_eof()

    def write_eof(self) -> None:
        """Send the end of output."""
        self._send_close_notify()
        self._plain.write_eof()

    def close(self) -> None:
        """Write the buffered data, then end."""
        if not self._plain.is_closing():
            self._send_close_notify()
            self._drops_input = True
            self._plain.close()

    def abort(self) -> None:
        """End at once."""
        self._plain.abort()

    def is_closing(self) -> bool:
        """Return whether it has been closed."""
        return self._plain.is_closing()

    def pause_reading(self) -> None:
        """Pause reading."""
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._plain.resume_reading()

    def is_reading(self) -> bool:
        """Return whether reading is not paused."""
        return self._plain.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the buffer: the protocol pauses above `high` bytes and resumes below
        `low`."""
        self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits of the buffer."""
        return self._plain.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes in the buffer."""
        return self._plain.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the data to another protocol."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that gets the data."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return asyncio's extra information of TLS transports, or that of the transport below."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return None if self._tls is None else self._tls.context
        if name == "peercert":
            return self.certificate()
        if name == "cipher":
            return None if self._tls is None else self._tls.cipher()
        return self._plain.get_extra_info(name, default)

    # -- inside --------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Continue the handshake."""
        if self._drops_input or self._secured:
            return
        tls = self._tls
        if tls is not None and self._shake_hands(tls):
            self._read()

    def _shake_hands(self, tls: ssl.SSLObject) -> bool:
        """Continue the handshake. Return whether it is done."""
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._fail(error)
            return False
        self._flush()
        self._secured = True
        self._drops_output = False
        self._on_secured()
        return True

    def _read(self) -> None:
        """Decrypt all complete records, and hand them on as one read."""
        tls = self._tls
        if tls is None:
            return
        incoming = self._incoming
        pieces: list[bytes] = []
        ended = False
        failure: ssl.SSLError | None = None
        try:
            while incoming.pending or tls.pending():
                piece = tls.read(_RECORD)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            failure = error
        if pieces:
            self._answered = 0
        if self._outgoing.pending:
            self._answered += self._outgoing.pending
            self._flush()
            if self._answered > _MOST_ANSWERS:
                # The client may not even read what is buffered for it.
                self.abort()
                return
        if pieces and not self._drops_input:
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if failure is not None:
            self._fail(failure)
        elif ended and not self.eof_received():
            self.close()

    def _flush(self) -> None:
        """Send bytes that the TLS engine has produced."""
        if not self._plain.is_closing():
            data = self._outgoing.read()
            if data:
                self._plain.write(data)

    def _fail(self, error: ssl.SSLError) -> None:
        """End the connection after a TLS error: send the alert, and drop the client's input."""
        if self._drops_input:
            return
        self._flush()
        self._drops_input = self._drops_output = True
        self._on_failed(reason_of(error))
        plain = self._plain
        if plain.is_closing():
            return
        # Closing at once with unread input would reset the connection before the client reads the
        # alert.
        if plain.can_write_eof():
            plain.write_eof()
            self._timer = asyncio.get_running_loop().call_later(_LINGER, plain.abort)
        else:
            plain.close()

    def _send_close_notify(self) -> None:
        """Send close_notify, which tells the client that the output is complete."""
        tls = self._tls
        if self._drops_output or tls is None:
            return
        self._drops_output = True
        try:
            tls.unwrap()
        except ssl.SSLError:
            # `unwrap` wants to wait for the client's close_notify.
            pass
        self._flush()


def mark_secured(handler: ClientHandler, stream: TlsStream) -> None:
    """Record that TLS is established: other logins may be allowed now."""
    transport = handler.client.transport
    transport.encrypted = True
    transport.certificate = stream.certificate()
    transport.tls_version = stream.version()
    handler.on_secured()


def reason_of(error: ssl.SSLError) -> str:
    """Return the reason of an OpenSSL error in readable words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
