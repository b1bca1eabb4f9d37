"""The layers of a transport and the headers that open them (AMQP 1.0 §2.2, §5.1).

TLS, then SASL, then AMQP; the first two only where the settings ask for them. The
initiator names the next layer it wants and takes no other. The other side answers
with the same header, or with the one of the layer it would speak, and ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq.engine.events import HeaderReceived
from ferrymq.engine.frames import protocol_header
from ferrymq.engine.states import ConnectionInput
from ferrymq.errors import TransportError

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection

AMQP_PROTOCOL: Final = 0
TLS_PROTOCOL: Final = 2
SASL_PROTOCOL: Final = 3


@final
class Layers:
    """Which layer comes next. `secured` is true once TLS was established inside AMQP."""

    __slots__ = ("connection", "secured", "_sent")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.secured = False
        # The protocol id of the last header of the initiator.
        self._sent: int = AMQP_PROTOCOL

    def proceed(self) -> None:
        """The transport is there or a layer is through: the initiator begins the next."""
        settings = self.connection.settings
        if not settings.initiator:
            return
        if settings.tls and not self.secured:
            self._sent = TLS_PROTOCOL
        elif settings.sasl and not self.connection._sasl.done:
            self._sent = SASL_PROTOCOL
        else:
            self._sent = AMQP_PROTOCOL
        self._send(self._sent)

    def on_header(self, header: bytes) -> None:
        """The peer's header has come."""
        connection = self.connection
        initiator = connection.settings.initiator
        expected = self._sent if initiator else self._answer(header)
        if header != protocol_header(expected):
            if initiator:
                connection._transition(ConnectionInput.RECV_OTHER_HEADER)
            else:
                # What we would speak, then the end (AMQP 1.0 §2.2).
                connection._transition(ConnectionInput.RECV_HEADER)
                connection.output.write(protocol_header(expected))
                connection._transition(ConnectionInput.SEND_OTHER_HEADER)
            connection._terminate(
                TransportError(
                    f"the peer sent protocol header {header!r}; "
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
            connection._tls_agreed()
        elif expected == SASL_PROTOCOL:
            connection._sasl_agreed()
        else:
            connection._amqp_agreed()

    def _answer(self, header: bytes) -> int:
        """The protocol id that a client's header is answered with; another one refuses it."""
        settings = self.connection.settings
        authenticated = self.connection._sasl.done
        if settings.tls_required and not self.secured:
            return TLS_PROTOCOL
        if (
            settings.tls
            and header == protocol_header(TLS_PROTOCOL)
            # Once, and before anything that TLS should have protected.
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
