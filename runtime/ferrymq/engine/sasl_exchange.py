"""The SASL layer of a connection: its frames (AMQP 1.0 §5.3).

The initiator follows the mechanism of its settings. The other side offers
mechanisms, turns the client's choice into `AuthenticationRequested`, and waits
for the user's verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq.engine.events import AuthenticationRequested, ScramKeysRequested
from ferrymq.engine.frames import SASL_FRAME, begin_frame, end_frame
from ferrymq.engine.oauth import OAUTHBEARER, OAuthBearerServer
from ferrymq.engine.sasl import (
    AnonymousServer,
    ExternalServer,
    PlainServer,
    SaslMechanism,
    SaslServerMechanism,
)
from ferrymq.engine.scram import SCRAM_MECHANISMS, ScramKeys, ScramServerMechanism
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
    from ferrymq_codec.composite import Composite


@final
class SaslExchange:
    """The SASL frames of one connection.

    `waiting` is true from the client's credentials to the user's verdict, and while
    the user looks for the keys of a SCRAM exchange (`waiting_for_keys`).
    """

    __slots__ = (
        "connection",
        "waiting",
        "waiting_for_keys",
        "done",
        "mechanism",
        "username",
        "_client",
        "_server",
        "_final",
        "_refused",
        "_prompted",
        "_hostname",
    )
    # Deleted by `drop_references`, when nothing is called any more.
    __deletable__: tuple[str, ...] = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection: Connection = connection
        self.waiting: bool = False
        self.done: bool = False
        self.mechanism: str = ""
        self.username: str | None = None
        self.waiting_for_keys: bool = False
        self._client: SaslMechanism | None = None
        self._server: SaslServerMechanism | None = None
        # Additional data of a successful outcome.
        self._final: bytes | None = None
        # Whether the client was told the reason of the refusal and has not answered yet.
        self._refused = False
        # Whether the client was asked for the response that its init did not have.
        self._prompted = False
        self._hostname: str | None = None

    def start(self) -> None:
        """Begin the exchange after both headers: a server offers its mechanisms."""
        settings = self.connection.settings
        if not settings.initiator:
            if not settings.sasl_mechanisms:
                # The list of mechanisms must not be empty (§5.3.3.1), and no other frame may be
                # sent.
                self.connection._terminate(
                    AuthenticationError("there is no SASL mechanism for this client")
                )
                return
            self._send(SaslMechanisms(sasl_server_mechanisms=settings.sasl_mechanisms))

    def on_frame(self, reader: Reader) -> None:
        """Handle one SASL frame; the reader stands at its body."""
        frame = decode_sasl_frame(reader, "sasl-frame")
        if reader.pos != reader.end:
            raise RemoteProtocolError(
                "amqp:connection:framing-error", "bytes after the body of a SASL frame"
            )
        if not self.connection.settings.initiator:
            if isinstance(frame, SaslInit) and not self.mechanism:
                self._on_init(frame)
            elif isinstance(frame, SaslResponse):
                self._on_response(frame)
            else:
                raise _out_of_place(frame)
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
        server = make_server_mechanism(init.mechanism)
        self._server = server
        self.mechanism = init.mechanism
        self._hostname = init.hostname
        if init.initial_response is None and server.client_first:
            # The client did not send the initial response that it must begin with (RFC 4422 §3.3).
            self._prompted = True
            self._send(SaslChallenge(challenge=b""))
            return
        self._begin(server, init.initial_response)

    def _begin(self, server: SaslServerMechanism, response: bytes | None) -> None:
        """Ask the user of the engine about the client's initial response."""
        server.start(response)
        self.username = server.username
        self.waiting = True
        if server.wants_keys:
            self.waiting_for_keys = True
            self.connection._emit(
                ScramKeysRequested(server.name, server.username or "", self._hostname)
            )
        else:
            self.connection._emit(
                AuthenticationRequested(
                    server.name, server.username, server.password, self._hostname, server.token
                )
            )

    def provide_keys(self, keys: ScramKeys | None) -> None:
        """Continue the SCRAM exchange with the stored keys; None if there is no such user."""
        server = self._server
        if not self.waiting_for_keys or not isinstance(server, ScramServerMechanism):
            raise LocalProtocolError("amqp:illegal-state", "no SCRAM exchange waits for keys")
        challenge = server.challenge(keys)
        self.waiting_for_keys = False
        self.waiting = False
        self._send(SaslChallenge(challenge=challenge))

    def _on_response(self, response: SaslResponse) -> None:
        server = self._server
        if self._refused:
            self.refuse(SaslCode.AUTH, "authentication failed")
            return
        if self._prompted and server is not None:
            self._prompted = False
            self._begin(server, response.response)
            return
        if not isinstance(server, ScramServerMechanism) or self._final is not None:
            raise _out_of_place(response)
        try:
            self._final = server.finish(response.response)
        except AuthenticationError as error:
            self.refuse(SaslCode.AUTH, str(error))
            return
        # The client's proof is valid; the user of the engine decides whether the client is
        # admitted.
        self.waiting = True
        self.connection._emit(AuthenticationRequested(server.name, server.username, None, None))

    def accept(self) -> None:
        """Accept the credentials."""
        self._expect_waiting()
        self._send(SaslOutcome(code=SaslCode.OK, additional_data=self._final))
        self.done = True
        self.connection._layers.authenticated()

    def reject(self, code: SaslCode) -> None:
        """Reject the credentials."""
        self.waiting_for_keys = False
        self._expect_waiting()
        reason = None if self._server is None else self._server.refusal()
        if reason is not None and code is SaslCode.AUTH:
            self._refused = True
            self._send(SaslChallenge(challenge=reason))
            return
        self.refuse(code, "authentication failed")

    def refuse(self, code: SaslCode, description: str) -> None:
        """Tell the client the outcome and end the transport."""
        self._send(SaslOutcome(code=code))
        self.connection._terminate(AuthenticationError(description, code.value))

    def _expect_waiting(self) -> None:
        if not self.waiting or self.waiting_for_keys:
            raise LocalProtocolError("amqp:illegal-state", "no credentials wait for an answer")
        self.waiting = False

    # -- client --------------------------------------------------------------

    def _on_mechanisms(self, mechanisms: SaslMechanisms) -> None:
        settings = self.connection.settings
        offered = mechanisms.sasl_server_mechanisms
        if self._client is not None:
            raise _out_of_place(mechanisms)
        for mechanism in settings.sasl:
            if mechanism.name in offered:
                self._client = mechanism
                break
        else:
            # Never use a mechanism that was not asked for: an attacker could have removed the
            # better ones from the list.
            wanted = " or ".join([mechanism.name for mechanism in settings.sasl])
            self.connection._terminate(
                AuthenticationError(f"the server offers SASL {', '.join(offered)}, not {wanted}")
            )
            return
        try:
            response = mechanism.initial_response()
        except AuthenticationError as error:
            self.connection._terminate(error)
            return
        self.mechanism = mechanism.name
        self._send(
            SaslInit(
                mechanism=mechanism.name, initial_response=response, hostname=settings.sasl_hostname
            )
        )

    def _on_challenge(self, challenge: SaslChallenge) -> None:
        mechanism = self._client
        if mechanism is None:
            raise _out_of_place(challenge)
        try:
            response = mechanism.respond(challenge.challenge)
        except AuthenticationError as error:
            self.connection._terminate(error)
            return
        self._send(SaslResponse(response=response))

    def _on_outcome(self, outcome: SaslOutcome) -> None:
        mechanism = self._client
        if mechanism is None:
            raise _out_of_place(outcome)
        if outcome.code is not SaslCode.OK:
            self.connection._terminate(
                _refused(mechanism.name, mechanism.username, outcome.code, mechanism.refusal())
            )
            return
        try:
            mechanism.finish(outcome.additional_data)
        except AuthenticationError as error:
            self.connection._terminate(error)
            return
        self.done = True
        self.username = mechanism.username
        self.connection._layers.authenticated()

    def _send(self, frame: Composite) -> None:
        output = self.connection.output
        mark = begin_frame(output, 0, SASL_FRAME)
        try:
            frame.encode(output)
        except BaseException:
            output.truncate(mark)
            raise
        end_frame(output, mark)


def _refused(
    mechanism: str, username: str | None, code: SaslCode, reason: str
) -> AuthenticationError:
    """Return the error of a client whose login the server has refused; `reason` is the server's
    reason, which may be empty."""
    user = "" if username is None else f" of user {username!r}"
    said = f" ({reason})" if reason else ""
    if code is SaslCode.AUTH:
        verdict = "the credentials are wrong"
    elif code is SaslCode.SYS_TEMP:
        verdict = "it cannot check them now: try again later"
    else:
        verdict = "it cannot check them, because of an error of its own"
    return AuthenticationError(
        f"the server refused SASL {mechanism}{user}: {verdict}{said}", code.value
    )


def _out_of_place(frame: object) -> RemoteProtocolError:
    return RemoteProtocolError(
        "amqp:not-allowed", f"{type(frame).__name__} frame out of place in the SASL exchange"
    )


def make_server_mechanism(name: str) -> SaslServerMechanism:
    """Return the server's side of a mechanism. Raises ValueError for an unknown one."""
    if name == "ANONYMOUS":
        return AnonymousServer(name)
    if name == "PLAIN":
        return PlainServer(name)
    if name == "EXTERNAL":
        return ExternalServer(name)
    if name == OAUTHBEARER:
        return OAuthBearerServer(name)
    if name in SCRAM_MECHANISMS:
        return ScramServerMechanism(name)
    raise ValueError(f"SASL mechanism {name!r} is not known")
