"""The layers of a transport and the headers that open them (AMQP 1.0 §2.2, §5.1).

The layers are TLS, SASL and AMQP, in this order; TLS and SASL are used only if the settings ask for
them. The initiator sends the header of the next layer that it wants, and accepts no other. The
other side answers with the same header; or it sends the header of the layer that it requires, and
ends the transport. This module reads headers and SASL frames, the connection reads AMQP frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.engine.answers import illegal
from ferrymq.engine.events import Authenticated, HeaderReceived, TlsAgreed
from ferrymq.engine.foreign_peers import describe_end, describe_other
from ferrymq.engine.frames import SASL_FRAME, protocol_header
from ferrymq.engine.sasl_exchange import SaslExchange
from ferrymq.engine.states import ConnectionInput
from ferrymq.errors import AmqpError, AuthenticationError, ConnectionClosed, TransportError

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.input import FrameInput

AMQP_PROTOCOL: Final = 0
TLS_PROTOCOL: Final = 2
SASL_PROTOCOL: Final = 3

# The kind of data being read: the header of a layer, SASL frames, AMQP frames, no more data, or
# data of TLS.
HEADER: Final = 0
SASL: Final = 1
AMQP: Final = 2
DONE: Final = 3
TLS: Final = 4

# Before the opens are exchanged the peer is unknown, so frames are small.
MAX_EARLY_FRAME: Final = 8192
MAX_EARLY_INPUT: Final = 65536


@final
class Layers:
    """State of the layers: which one is being read (`stage`), and which comes next.

    `secured` is true once TLS was established inside AMQP.
    """

    __slots__ = ("connection", "stage", "sasl", "secured", "_sent")
    # Deleted by `drop_references`, after the last call.
    __deletable__: tuple[str, ...] = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection: Connection = connection
        self.stage: i64 = HEADER
        self.sasl: SaslExchange = SaslExchange(connection)
        self.secured: bool = False
        # The protocol id of the initiator's last header.
        self._sent: int = AMQP_PROTOCOL

    @property
    def waiting(self) -> bool:
        """Whether input is kept: for TLS, or until the user has decided on the credentials."""
        return self.stage == TLS or self.sasl.waiting

    @property
    def awaited(self) -> str:
        """The part of the handshake that the peer has to send next, for error messages."""
        if self.stage == HEADER:
            return "protocol header"
        if self.stage == TLS:
            return "TLS handshake"
        return "SASL login" if self.stage == SASL else "open"

    def drop_references(self) -> None:
        """See `Connection.drop_references`."""
        del self.connection
        del self.sasl.connection

    def begin(self) -> None:
        """Begin the first or the next layer as its initiator. Called when the transport is
        connected, and when a layer is complete."""
        self.stage = HEADER
        settings = self.connection.settings
        if not settings.initiator:
            return
        if settings.tls and not self.secured:
            self._sent = TLS_PROTOCOL
        elif settings.sasl and not self.sasl.done:
            self._sent = SASL_PROTOCOL
        else:
            self._sent = AMQP_PROTOCOL
        self._send(self._sent)

    def read(self, input: FrameInput) -> bool:
        """Read one header or SASL frame; return false if none is complete or may be read now."""
        if self.stage == HEADER:
            header = input.next_header()
            if header is None:
                return False
            self._on_header(header)
            return True
        if self.stage == SASL and not self.sasl.waiting:
            if not input.next_frame(MAX_EARLY_FRAME, SASL_FRAME):
                return False
            self.sasl.on_frame(input.reader)
            return True
        # The data that follows is kept until the user has decided on the credentials, or for TLS.
        input.hold()
        return False

    def take_tls_data(self, input: FrameInput) -> bytes:
        """Return the input for TLS. Raises `LocalProtocolError` if no handshake is in progress."""
        self._expect_handshake()
        return input.take()

    def secure(self, input: FrameInput) -> None:
        """Begin the next layer after a successful TLS handshake. Raises `LocalProtocolError` if no
        handshake was in progress, or if input from before the handshake has not been taken."""
        self._expect_handshake()
        if input.held():
            raise illegal("input from before the TLS handshake has not been taken")
        self.secured = True
        self.begin()

    def authenticated(self) -> None:
        """Begin the next layer after a successful SASL exchange."""
        sasl = self.sasl
        self.connection._emit(Authenticated(sasl.mechanism, sasl.username))
        self.begin()

    def broken_off(self, input: FrameInput) -> AmqpError:
        """Return the error for an end of the transport at this point."""
        if self.stage == TLS:
            return TransportError("the transport ended during the TLS handshake")
        if self.stage == SASL and self.connection.settings.initiator:
            return AuthenticationError("the server ended the transport during SASL", lost=True)
        hint = ""
        if self.stage == HEADER and self.connection.settings.initiator and not self.sasl.done:
            hint = describe_end(input.take())
        return ConnectionClosed(f"the peer ended the transport without a close{hint}")

    def _expect_handshake(self) -> None:
        if self.stage != TLS:
            raise illegal("no TLS handshake is under way")

    def _on_header(self, header: bytes) -> None:
        """Handle the peer's header."""
        connection = self.connection
        initiator = connection.settings.initiator
        expected = self._sent if initiator else self._answer(header)
        if header != protocol_header(expected):
            if initiator:
                connection._transition(ConnectionInput.RECV_OTHER_HEADER)
            else:
                # Send the header that we would accept, then end the transport (AMQP 1.0 §2.2).
                connection._transition(ConnectionInput.RECV_HEADER)
                connection.output.write(protocol_header(expected))
                connection._transition(ConnectionInput.SEND_OTHER_HEADER)
            connection._terminate(
                TransportError(
                    describe_other(expected, header)
                    if initiator
                    else f"the peer sent protocol header {header!r}; "
                    f"{protocol_header(expected)!r} was expected"
                )
            )
            return
        if expected == AMQP_PROTOCOL:
            connection._transition(ConnectionInput.RECV_HEADER)
        if not initiator:
            self._send(expected)
        connection._emit(HeaderReceived(expected))
        if expected == TLS_PROTOCOL:
            self.stage = TLS
            connection._emit(TlsAgreed())
        elif expected == SASL_PROTOCOL:
            self.stage = SASL
            self.sasl.start()
        else:
            self.stage = AMQP
            connection._try_open()

    def _answer(self, header: bytes) -> int:
        """Return the protocol id that answers a client's header; one that differs refuses it."""
        settings = self.connection.settings
        authenticated = self.sasl.done
        if settings.tls_required and not self.secured:
            return TLS_PROTOCOL
        if (
            settings.tls
            and header == protocol_header(TLS_PROTOCOL)
            # TLS may be asked for once, and before any data that it should protect.
            and not (self.secured or authenticated)
        ):
            return TLS_PROTOCOL
        if authenticated:
            return AMQP_PROTOCOL
        if settings.sasl_required or (
            settings.sasl_mechanisms and header == protocol_header(SASL_PROTOCOL)
        ):
            return SASL_PROTOCOL
        return AMQP_PROTOCOL

    def _send(self, protocol_id: int) -> None:
        connection = self.connection
        connection.output.write(protocol_header(protocol_id))
        if protocol_id == AMQP_PROTOCOL:
            connection._transition(ConnectionInput.SEND_HEADER)
