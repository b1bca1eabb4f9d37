"""The SASL layer of a connection: its header and its frames (AMQP 1.0 §2.2, §5.3).

The initiator follows the mechanism of its settings. The other side offers
mechanisms, turns the client's choice into `AuthenticationRequested`, and waits
for the user's verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq.engine.events import AuthenticationRequested
from ferrymq.engine.frames import SASL_FRAME, begin_frame, end_frame, protocol_header
from ferrymq.engine.sasl import parse_initial_response
from ferrymq.errors import AuthenticationError, LocalProtocolError, RemoteProtocolError
from ferrymq_codec.reader import Reader
from ferrymq_types.security import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from ferrymq_types.unions import decode_sasl_frame

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.settings import ConnectionSettings
    from ferrymq_codec.composite import Composite

AMQP_PROTOCOL: Final = 0
SASL_PROTOCOL: Final = 3


def choose_protocol(header: bytes, settings: ConnectionSettings, authenticated: bool) -> int:
    """The protocol id a server answers a client's header with; another one refuses it."""
    if settings.sasl_required and not authenticated:
        return SASL_PROTOCOL
    if header == protocol_header(SASL_PROTOCOL) and settings.sasl_mechanisms and not authenticated:
        return SASL_PROTOCOL
    return AMQP_PROTOCOL


@final
class SaslExchange:
    """The SASL frames of one connection.

    `waiting` is true from the client's credentials to the user's verdict.
    """

    __slots__ = ("connection", "waiting", "done", "mechanism", "username")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.waiting = False
        self.done = False
        self.mechanism = ""
        self.username: str | None = None

    def start(self) -> None:
        """Both headers are exchanged: a server names its mechanisms."""
        settings = self.connection.settings
        if not settings.initiator:
            self._send(SaslMechanisms(sasl_server_mechanisms=settings.sasl_mechanisms))

    def on_frame(self, reader: Reader) -> None:
        """One SASL frame; the reader stands at its body."""
        frame = decode_sasl_frame(reader, "sasl-frame")
        if reader.pos != reader.end:
            raise RemoteProtocolError(
                "amqp:connection:framing-error", "bytes after the body of a SASL frame"
            )
        if not self.connection.settings.initiator:
            if not isinstance(frame, SaslInit) or self.mechanism:
                raise _out_of_place(frame)
            self._on_init(frame)
        elif isinstance(frame, SaslMechanisms):
            self._on_mechanisms(frame)
        elif isinstance(frame, SaslChallenge):
            self._on_challenge(frame)
        elif isinstance(frame, SaslOutcome):
            self._on_outcome(frame)
        else:
            raise _out_of_place(frame)

    # -- server --------------------------------------------------------------

    def _on_init(self, init: SaslInit) -> None:
        if init.mechanism not in self.connection.settings.sasl_mechanisms:
            self.refuse(SaslCode.AUTH, f"SASL {init.mechanism} was chosen but not offered")
            return
        credentials = parse_initial_response(init.mechanism, init.initial_response)
        self.mechanism = init.mechanism
        self.username = credentials.username
        self.waiting = True
        self.connection._emit(
            AuthenticationRequested(
                init.mechanism, credentials.username, credentials.password, init.hostname
            )
        )

    def accept(self) -> None:
        """The user finds the credentials good."""
        self._expect_waiting()
        self._send(SaslOutcome(code=SaslCode.OK))
        self.done = True
        self.connection._authenticated(self.mechanism, self.username)

    def reject(self, code: SaslCode) -> None:
        """The user finds the credentials bad."""
        self._expect_waiting()
        self.refuse(code, "authentication failed")

    def refuse(self, code: SaslCode, description: str) -> None:
        """Tell the client the outcome and end the transport."""
        self._send(SaslOutcome(code=code))
        self.connection._terminate(AuthenticationError(description, code.value))

    def _expect_waiting(self) -> None:
        if not self.waiting:
            raise LocalProtocolError("amqp:illegal-state", "no credentials wait for an answer")
        self.waiting = False

    # -- client --------------------------------------------------------------

    def _on_mechanisms(self, mechanisms: SaslMechanisms) -> None:
        settings = self.connection.settings
        mechanism = settings.sasl
        offered = mechanisms.sasl_server_mechanisms
        if mechanism is None or self.mechanism:
            raise _out_of_place(mechanisms)
        if mechanism.name not in offered:
            self.connection._terminate(
                AuthenticationError(
                    f"the server offers SASL {', '.join(offered)}, not {mechanism.name}"
                )
            )
            return
        self.mechanism = mechanism.name
        self._send(
            SaslInit(
                mechanism=mechanism.name,
                initial_response=mechanism.initial_response(),
                hostname=settings.hostname,
            )
        )

    def _on_challenge(self, challenge: SaslChallenge) -> None:
        mechanism = self.connection.settings.sasl
        if mechanism is None or not self.mechanism:
            raise _out_of_place(challenge)
        try:
            response = mechanism.respond(challenge.challenge)
        except AuthenticationError as error:
            self.connection._terminate(error)
            return
        self._send(SaslResponse(response=response))

    def _on_outcome(self, outcome: SaslOutcome) -> None:
        mechanism = self.connection.settings.sasl
        if mechanism is None or not self.mechanism:
            raise _out_of_place(outcome)
        if outcome.code is not SaslCode.OK:
            self.connection._terminate(
                AuthenticationError(
                    f"the server refused SASL {mechanism.name}: {outcome.code.name.lower()}",
                    outcome.code.value,
                )
            )
            return
        self.done = True
        self.connection._authenticated(mechanism.name, mechanism.username)

    def _send(self, frame: Composite) -> None:
        output = self.connection.output
        mark = begin_frame(output, 0, SASL_FRAME)
        frame.encode(output)
        end_frame(output, mark)


def _out_of_place(frame: object) -> RemoteProtocolError:
    return RemoteProtocolError(
        "amqp:not-allowed", f"{type(frame).__name__} frame out of place in the SASL exchange"
    )
