"""TLS over a transport that is there already, from its first byte or in the middle of it.

The standard library's TLS engine between two buffers: what arrives goes in at one end, what it
decrypts goes to the protocol, and what it has to say itself goes out, alerts among it. So a client
that is refused hears why; nothing that came in the clear can be taken for something that did not;
and as there are no queues in between, back-pressure is that of the transport below.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ferrymq_broker.server.handshakes import Handshakes

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler

# What one record holds at most.
_RECORD: Final = 16384
# How long, in seconds, a client may take to read why it is refused.
_LINGER: Final = 1.0
# Bytes of a client that has yet to prove anything: a chain of certificates, and more.
_MOST_EARLY: Final = 256 * 1024
# Bytes that TLS answers by itself, to a client that says nothing else: new keys, again and again.
_MOST_CHATTER: Final = 256 * 1024


def _ignore(*_: object) -> None:
    """Take no notice: the transport is gone."""


class TlsStream(asyncio.Protocol, asyncio.Transport):
    """To the network a protocol, to `protocol` a transport, once `on_secured` has been called.

    `protocol` hears of data, and of the end, from then on; `connection_lost` it hears in any case.
    `on_failed` gets the reason when there is no TLS, or when it breaks: the end follows by itself.
    Hand it what has arrived of the handshake already by `begin`.
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
        self._chatter = 0
        self._secured = False
        # What comes is read no more, and what is to be written is not written.
        self._deaf = False
        self._mute = True

    def begin(self, data: bytes = b"") -> None:
        """From now on the bytes of the transport are TLS; `data` have been read already."""
        self._plain.set_protocol(self)
        if data:
            self.data_received(data)

    def certificate(self) -> dict[str, object] | None:
        """The verified certificate of the client, as `ssl.SSLSocket.getpeercert` has it."""
        tls = self._tls
        return None if tls is None else dict(tls.getpeercert() or {}) or None

    # -- from the network ----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Records, whole or not."""
        if self._deaf:
            return
        self._incoming.write(data)
        if self._secured:
            self._read()
        elif self._incoming.pending > _MOST_EARLY:
            self.abort()
        else:
            # Others are served in between: who comes with a thousand handshakes waits himself.
            self._handshakes.ask(self._go_on)

    def eof_received(self) -> bool | None:
        """The client sends no more, whether it has said so in TLS or not: AMQP has its own end."""
        if self._deaf:
            return False
        self._deaf = True
        if not self._secured:
            self._on_failed("the client went away")
            return False
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        if not self._secured and not self._deaf:
            self._on_failed("the connection was lost" if exc is None else str(exc))
        self._deaf = self._mute = True
        if self._timer is not None:
            self._timer.cancel()
        # A hundred kilobytes, which are not to wait until somebody collects what is left of us.
        self._tls = None
        self._protocol.connection_lost(exc)
        # The protocol has us for its transport: without this cycle both are freed now.
        self._protocol = asyncio.Protocol()
        self._on_secured = self._on_failed = _ignore

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The transport's buffer has room again."""
        self._protocol.resume_writing()

    # -- as a transport ------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and write. What the client is no longer to get is dropped."""
        tls = self._tls
        if self._mute or tls is None or self._plain.is_closing():
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
        """Whether the client can be told that nothing more comes while it is still heard."""
        return self._plain.can_write_eof()

    def write_eof(self) -> None:
        """Nothing more will be written."""
        self._say_goodbye()
        self._plain.write_eof()

    def close(self) -> None:
        """Write what there is, then end."""
        if not self._plain.is_closing():
            self._say_goodbye()
            self._deaf = True
            self._plain.close()

    def abort(self) -> None:
        """End at once."""
        self._plain.abort()

    def is_closing(self) -> bool:
        """Whether it has been closed."""
        return self._plain.is_closing()

    def pause_reading(self) -> None:
        """Let the client wait."""
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        self._plain.resume_reading()

    def is_reading(self) -> bool:
        """Whether the client is being read from."""
        return self._plain.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Above `high` bytes the protocol is to pause, below `low` it may go on."""
        self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The two."""
        return self._plain.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """How many bytes wait for the client to read, encrypted."""
        return self._plain.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let somebody else have the data."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who has the data."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What asyncio knows of TLS transports, and what the transport below knows."""
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
        """It is our turn."""
        if self._deaf or self._secured:
            return
        tls = self._tls
        if tls is not None and self._shake_hands(tls):
            self._read()

    def _shake_hands(self, tls: ssl.SSLObject) -> bool:
        """Go on with the handshake; whether it is done."""
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
        self._mute = False
        self._on_secured()
        return True

    def _read(self) -> None:
        """Everything that is whole, as one read."""
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
            self._chatter = 0
        if self._outgoing.pending:
            self._chatter += self._outgoing.pending
            self._flush()
            if self._chatter > _MOST_CHATTER:
                # It would not even have to read what we keep for it.
                self.abort()
                return
        if pieces and not self._deaf:
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if failure is not None:
            self._fail(failure)
        elif ended and not self.eof_received():
            self.close()

    def _flush(self) -> None:
        """What TLS has to say by itself."""
        if not self._plain.is_closing():
            data = self._outgoing.read()
            if data:
                self._plain.write(data)

    def _fail(self, error: ssl.SSLError) -> None:
        """There is no TLS with this client: it is told so, and what it sends is dropped."""
        if self._deaf:
            return
        self._flush()
        self._deaf = self._mute = True
        self._on_failed(reason_of(error))
        plain = self._plain
        if plain.is_closing():
            return
        # Dropped at once with input unread, the connection would take the alert with it.
        if plain.can_write_eof():
            plain.write_eof()
            self._timer = asyncio.get_running_loop().call_later(_LINGER, plain.abort)
        else:
            plain.close()

    def _say_goodbye(self) -> None:
        """Say that nothing more follows, so that nobody else could have cut it short."""
        tls = self._tls
        if self._mute or tls is None:
            return
        self._mute = True
        try:
            tls.unwrap()
        except ssl.SSLError:
            # It would go on when the client has answered, which nobody waits for.
            pass
        self._flush()


def mark_secured(handler: ConnectionHandler, certificate: dict[str, object] | None) -> None:
    """TLS is there: who the client is may be said in other ways than before."""
    transport = handler.transport
    transport.encrypted = True
    transport.certificate = certificate
    settings = handler.connection.settings
    settings.sasl_mechanisms = handler.authenticator.mechanisms(transport)
    settings.sasl_required = handler.authenticator.is_required(transport)


def reason_of(error: ssl.SSLError) -> str:
    """What OpenSSL says, in its words for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
