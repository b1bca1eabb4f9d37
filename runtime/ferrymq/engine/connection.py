"""The connection: layers, frames in and out, open and close (AMQP 1.0 §2.4).

Theory of operation
-------------------

The engine does no I/O and reads no clock. Its user passes it the bytes that arrived
(`receive_data`), takes the events that they caused (`take_events`), calls methods of the objects in
the events, and writes the bytes that `data_to_send` returns to the transport. For timers, the user
calls `handle_timeout` at the time that `next_deadline` returns. Client and broker run the same
code; only `ConnectionSettings.initiator` differs.

`receive_data` never raises for the peer's data. An error of the peer is answered at the scope that
the specification gives it: the link is detached, the session ended or the connection closed, with
the condition and a description. An event reports the error. A wrong call of the user raises
`LocalProtocolError` and changes nothing.

A transport carries *layers*, each opened by an 8-byte header: TLS and SASL if they are used, then
AMQP. `layers` says which layer is being read. Output is collected in one buffer. Dispositions and
window updates are held back until the output is taken, so that consecutive ones share a frame. With
`ConnectionSettings.max_output`, transfers wait when the buffer has that many bytes, and each call
of `data_to_send` makes room for the next transfers: call it while `has_output` is true and the
transport takes more.

One module because it is one class: opening, reading, timers and closing change the same state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq.engine.answers import answer_to, fitting, illegal
from ferrymq.engine.channels import Channels
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.dispatch import dispatch, empty_frame
from ferrymq.engine.events import (
    BareEvent,
    CloseReceived,
    DeliveryReceived,
    Event,
    OpenReceived,
    OutcomeReceived,
    Terminated,
)
from ferrymq.engine.frames import AMQP_FRAME, EMPTY_FRAME, begin_frame, end_frame
from ferrymq.engine.input import FrameInput
from ferrymq.engine.layers import AMQP, DONE, MAX_EARLY_FRAME, MAX_EARLY_INPUT, SASL, Layers
from ferrymq.engine.opening import check_open
from ferrymq.engine.output_limit import OutputLimit
from ferrymq.engine.plain_disposition import PlainDisposition
from ferrymq.engine.plain_transfer import PlainTransfer
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings
from ferrymq.engine.states import (
    CLOSE_SEEN,
    CLOSING,
    CONNECTION_TABLE,
    ConnectionInput,
    ConnectionState,
    LinkState,
)
from ferrymq.engine.timers import ConnectionTimers
from ferrymq.engine.unfinished import Unfinished
from ferrymq.errors import (
    AmqpError,
    ConnectionClosed,
    DecodeError,
    LocalProtocolError,
    RemoteProtocolError,
    Scope,
    TransportError,
)
from ferrymq_types.security import SaslCode
from ferrymq_types.transport import (
    MIN_MAX_FRAME_SIZE,
    Begin,
    Close,
    Disposition,
    Error,
    Open,
    Role,
    Transfer,
)

if TYPE_CHECKING:
    from ferrymq.engine.scram import ScramKeys
    from ferrymq_codec.composite import Composite

# The buffer of an output of at most so many bytes is used again. A larger one is given back, so
# that an idle connection does not keep it.
_KEPT_OUTPUT: Final = 1024


@final
class Connection:
    """An AMQP connection over one transport. `context` belongs to the user."""

    __slots__ = (
        "settings",
        "state",
        "opened",
        "_receiving",
        "finished",
        "lingering",
        "failure",
        "remote_open",
        "remote_max_frame_size",
        "channels",
        "output",
        "output_limit",
        "_spliced",
        "_spliced_bytes",
        "transfer",
        "plain",
        "accepted",
        "disposition",
        "context",
        "_timers",
        "_now",
        "_events",
        "_early",
        "_touched",
        "_layers",
        "_open_called",
        "_open_wanted",
        "_closed_early",
        "_input",
    )

    def __init__(self, settings: ConnectionSettings, now: float) -> None:
        self.settings: ConnectionSettings = settings
        self.state: ConnectionState = ConnectionState.START
        # True while both sides have opened and neither has closed.
        self.opened: bool = False
        # True while the peer may send: it may send frames after its open before it has seen our
        # open.
        self._receiving = False
        # True once `Terminated` has been emitted: write the output, then close the transport.
        self.finished: bool = False
        # True if the connection ended before the layers were complete: shut the transport down for
        # writing and read it to its end, so that the peer receives our last frame (AMQP 1.0 §2.2,
        # §5.1).
        self.lingering: bool = False
        # The peer's error, while the peer's close is awaited.
        self.failure: AmqpError | None = None
        self.remote_open: Open | None = None
        # Until the peer's open is known, no larger frame may be sent (AMQP 1.0 §2.4.1).
        self.remote_max_frame_size: i64 = MIN_MAX_FRAME_SIZE
        self.channels: Channels = Channels(Unfinished(settings.max_unfinished, settings.unfinished))
        self.output: BytesWriter = BytesWriter()
        self.output_limit: OutputLimit = OutputLimit(settings.max_output)
        # Long parts of payloads, each with its position in `output`, and their bytes.
        self._spliced: list[tuple[i64, memoryview]] = []
        self._spliced_bytes: i64 = 0
        # Filled in for one frame after another, the last two with those of the peer: an object for
        # each frame would be thrown away at once.
        self.transfer: Transfer = Transfer(handle=0)
        self.plain: PlainTransfer = PlainTransfer()
        self.accepted: PlainDisposition = PlainDisposition()
        self.disposition: Disposition = Disposition(role=Role.RECEIVER, first=0)
        self.context: object = None
        self._timers = ConnectionTimers(now, settings.idle_time_out, settings.handshake_timeout)
        self._now = now
        self._events: list[BareEvent] = []
        # Links with transfers that arrived before we answered their attach.
        self._early: list[ReceiverLink] = []
        self._touched: list[Session] = []
        self._layers = Layers(self)
        self._open_called = False
        self._open_wanted = False
        # True if the peer sent open and close before we answered its open.
        self._closed_early = False
        self._input = FrameInput(settings.types)
        self._layers.begin()

    # -- what the user calls ---------------------------------------------------

    def take_events(self) -> list[Event]:
        """Return the events since the last call, oldest first."""
        events: list[Event] = []
        for event in self.take_bare_events():
            if isinstance(event, IncomingDelivery):
                events.append(DeliveryReceived(event.link, event))
            elif isinstance(event, OutgoingDelivery):
                events.append(OutcomeReceived(event))
            else:
                events.append(event)
        return events

    def take_bare_events(self) -> list[BareEvent]:
        """Return the events since the last call, oldest first, with deliveries in place of
        `DeliveryReceived` and `OutcomeReceived`."""
        if self._early:
            self._take_early()
        events = self._events
        if events:
            self._events = []
        return events

    def _take_early(self) -> None:
        """Process transfers that arrived before their attach was answered, if it is answered
        now."""
        waiting = self._early
        self._early = []
        for link in waiting:
            if link.state is LinkState.ATTACH_RCVD and not link.remote_detached:
                self._early.append(link)
            else:
                link.session._take_early(link)

    @property
    def has_output(self) -> bool:
        """Whether `data_to_send` has bytes to return."""
        return bool(self._touched) or len(self.output) > 0 or bool(self.output_limit.waiting)

    def output_size(self) -> i64:
        """Return how many bytes are in the output."""
        return i64(len(self.output)) + self._spliced_bytes

    def splice(self, payload: bytes, start: i64, end: i64) -> None:
        """Add bytes of a payload to the output without a copy: `data_to_send` copies them once,
        `pieces_to_send` does not."""
        self._spliced.append((i64(len(self.output)), memoryview(payload)[start:end]))
        self._spliced_bytes += end - start

    def truncate_output(self, size: i64) -> None:
        """Remove what was added when `output` had `size` bytes, and later."""
        kept = self.output.getvalue()[:size]
        # A new buffer, because this one may have grown: see `_KEPT_OUTPUT`.
        self.output = BytesWriter()
        self.output.write(kept)
        while self._spliced and self._spliced[-1][0] > size:
            self._spliced_bytes -= len(self._spliced.pop()[1])

    @property
    def holds_back(self) -> bool:
        """Whether transfers wait for room in the output, which further calls of `data_to_send`
        make."""
        return bool(self.output_limit.waiting)

    def data_to_send(self, transfers: bool = True) -> bytes:
        """Return the bytes to write to the transport now. Each byte is returned once.

        With a `max_output`, at most about that many bytes of transfers are returned, otherwise all
        output. Without `transfers`, transfers that wait for room in the output continue to wait.
        """
        data = self._take_output(transfers)
        return b"".join(self._pieces(data)) if self._spliced else data

    def pieces_to_send(self, transfers: bool = True) -> bytes | list[bytes | memoryview]:
        """Return what `data_to_send` returns; with large payloads in pieces that are not empty.

        Pieces of large payloads refer to them. Do not keep such pieces for a peer that does not
        read: each keeps its whole payload in memory, although `max_output` limits the output.
        """
        data = self._take_output(transfers)
        return self._pieces(data) if self._spliced else data

    def _take_output(self, transfers: bool) -> bytes:
        """Return the output without its spliced parts, and forget it."""
        if transfers and self.output_limit.waiting:
            self.output_limit.fill(self)
        if self._touched:
            touched = self._touched
            self._touched = []
            for session in touched:
                session._flush()
        if len(self.output) == 0:
            return b""
        data = self.output.getvalue()
        if len(data) <= _KEPT_OUTPUT:
            self.output.truncate(0)
        else:
            self.output = BytesWriter()
        timers = self._timers
        timers.sent_since = True
        timers.sent_after = self._now
        return data

    def _pieces(self, data: bytes) -> list[bytes | memoryview]:
        """Return `data` with the spliced parts at their positions."""
        pieces: list[bytes | memoryview] = []
        begin: i64 = 0
        for position, part in self._spliced:
            if begin < position:
                pieces.append(data[begin:position])
            pieces.append(part)
            begin = position
        if begin < len(data):
            pieces.append(data[begin:])
        self._spliced = []
        self._spliced_bytes = 0
        return pieces

    @property
    def awaited(self) -> str:
        """The part of the handshake that the peer has to send next, for error messages."""
        return self._layers.awaited

    @property
    def unread(self) -> bool:
        """Whether input is left to read: call `handle_timeout` at once to continue with it."""
        return self._input.unread

    def read_size(self, most: i64) -> i64:
        """Return how many bytes to read next, at most `most`, so that large frames are probably
        whole. Other reads cost a copy of such a frame."""
        return self._input.read_size(most)

    @property
    def last_received(self) -> float:
        """When the peer was last heard of, by the clock that gives `now`."""
        return self._timers.last_received

    def next_deadline(self) -> float | None:
        """Return when `handle_timeout` should be called, by the clock that gives `now`."""
        if self._input.unread:
            return self._now
        return None if self.finished else self._timers.next_deadline()

    def handle_timeout(self, now: float) -> None:
        """Do the work that is due at `now`: continue reading, send a keep-alive, or end the
        connection."""
        self._now = now
        if self.finished:
            return
        if self._input.unread:
            self._input.go_on()
            self._read()
        timers = self._timers
        if timers.close_late(now):
            self._terminate(self.failure)
        elif timers.handshake_late(now):
            late = "the peer did not complete the handshake in time"
            self._say_close(Error(condition="amqp:resource-limit-exceeded", description=late))
            self._terminate(TransportError(late))
            self.lingering = False
        elif self.opened and timers.overslept(now):
            # This limit is checked before the peer's silence, because we read no input in that
            # time.
            timers.keepalive_interval = None
            late = "this end was busy and sent nothing for twice the idle time-out of its peer"
            self.failure = TransportError(late)
            self.close(Error(condition="amqp:resource-limit-exceeded", description=late), now)
        elif timers.peer_silent(now):
            timers.idle_time_out = None
            self._violated(
                RemoteProtocolError(
                    "amqp:resource-limit-exceeded",
                    f"nothing received for the idle time-out of {self.settings.idle_time_out} s",
                )
            )
        elif timers.keepalive(now) and (self.opened or self.state is ConnectionState.CLOSE_RCVD):
            # No frame may be sent before our open or after our close, not even an empty one.
            self.output.write(EMPTY_FRAME)

    def open(self) -> None:
        """Send our open, now or when the TLS and SASL layers are complete.

        Does nothing when the connection is closed or over already. Raises
        `LocalProtocolError` when called a second time.
        """
        if self._open_called:
            raise illegal("the connection has been opened before")
        self._open_called = True
        if not self.finished:
            self._open_wanted = True
            self._try_open()

    def begin(self) -> Session:
        """Begin a session. Raises `LocalProtocolError` before our open or if no channel is free."""
        if self.state not in (
            ConnectionState.OPENED,
            ConnectionState.OPEN_SENT,
            ConnectionState.OPEN_PIPE,
        ):
            raise illegal("the connection is not open")
        session = Session(self, True)
        limit = self._channel_limit()
        if not self.channels.allocate(session, limit):
            raise LocalProtocolError(
                "amqp:resource-limit-exceeded", f"all channels up to {limit} are in use"
            )
        session._begin()
        return session

    def close(self, error: Error | None = None, now: float | None = None) -> None:
        """Close the connection, or answer the peer's close. Nothing else is sent after it.

        All sessions end with it. Does nothing when the connection is closed already. Before the
        opens are exchanged it ends the transport. The time for the peer's answer counts from `now`,
        or without it from the last input.
        """
        if self.finished:
            return
        if now is not None:
            self._now = now
        event = ConnectionInput.SEND_CLOSE if error is None else ConnectionInput.SEND_CLOSE_ERROR
        if self.state in CLOSING:
            return
        if self.state in (ConnectionState.HDR_EXCH, ConnectionState.OPEN_RCVD):
            # A close must follow an open (AMQP 1.0 §2.4.3).
            self._open_wanted = True
            self._try_open()
        if (self.state, event) not in CONNECTION_TABLE:
            self._terminate(self.failure)
            return
        self._flush_sessions()
        self._send(0, Close(error=fitting(error, self.remote_max_frame_size)))
        self._transition(event)
        timeout = self.settings.close_timeout
        self._timers.close_due = None if timeout is None else self._now + timeout
        self._timers.handshake_due = None
        self._end_sessions(None)
        if self.state is ConnectionState.END:
            self._terminate(self.failure)

    def accept_authentication(self) -> None:
        """Answer `AuthenticationRequested`: the credentials are accepted. Input is read again.

        Does nothing when the connection is over. Raises `LocalProtocolError` if no request waits
        for an answer.
        """
        if not self.finished:
            self._layers.sasl.accept()
            self._read()

    def reject_authentication(self, code: SaslCode = SaslCode.AUTH) -> None:
        """Answer `AuthenticationRequested` or `ScramKeysRequested` with a refusal. The transport
        ends.

        Otherwise behaves like `accept_authentication`.
        """
        if not self.finished:
            self._layers.sasl.reject(code)

    def provide_scram_keys(self, keys: ScramKeys | None) -> None:
        """Answer `ScramKeysRequested` with the user's stored keys, None if there is no such user.

        Does nothing when the connection is over. Raises `LocalProtocolError` if no request waits
        for an answer.
        """
        if not self.finished:
            try:
                self._layers.sasl.provide_keys(keys)
            except RemoteProtocolError as error:
                self._violated(error)
            self._read()

    def take_tls_data(self) -> bytes:
        """Return the bytes that the peer sent after its TLS header: the first input of TLS.

        Call this from `TlsAgreed` until `tls_established`. Raises `LocalProtocolError` at any other
        time, except when the connection is over.
        """
        return b"" if self.finished else self._layers.take_tls_data(self._input)

    def tls_established(self, now: float) -> None:
        """Begin the next layer: the TLS handshake that `TlsAgreed` asked for has succeeded.

        After this call all input must be decrypted by TLS, and all output must be encrypted by it.
        Does nothing when the connection is over. Raises `LocalProtocolError` if no handshake was
        asked for, or if earlier bytes were not taken with `take_tls_data`: an attacker could
        otherwise inject them as if they had come through TLS.
        """
        self._now = now
        if not self.finished:
            self._layers.secure(self._input)

    def note_input(self, now: float) -> None:
        """Count the peer as heard of, because its input waits to be read."""
        self._timers.last_received = now

    def receive_eof(self, now: float) -> None:
        """Handle the end of the transport; no more data will arrive."""
        self._now = now
        if self.finished:
            self.lingering = False
            return
        if self.failure is not None or self.state in CLOSE_SEEN:
            self._terminate(self.failure)
        else:
            broken_off = self._layers.broken_off(self._input)
            # The transport may have ended in one direction only.
            self._say_close(
                Error(condition="amqp:connection:framing-error", description=str(broken_off))
            )
            self._terminate(broken_off)
        self.lingering = False

    def _say_close(self, error: Error) -> None:
        """Write a close, for which no answer is awaited, if the state allows one: it must precede
        every end of the transport (AMQP 1.0 §2.4.3)."""
        if self._layers.stage != AMQP:
            return
        self._open_wanted = True
        self._try_open()
        if (self.state, ConnectionInput.SEND_CLOSE_ERROR) in CONNECTION_TABLE:
            self._flush_sessions()
            self._send(0, Close(error=fitting(error, self.remote_max_frame_size)))

    def receive_data(self, data: bytes, now: float) -> None:
        """Process received bytes. Never raises for their content."""
        self._now = now
        layers = self._layers
        if layers.stage == DONE or not self._input.feed(data):
            return
        if layers.stage == AMQP:
            self._read()
            return
        if not layers.waiting:
            self._read()
        if layers.waiting and self._input.held() > MAX_EARLY_INPUT:
            too_much = "too much input before a security layer was through"
            if layers.stage == SASL and not self.settings.initiator:
                # The client receives a SASL outcome, as for any other failed login.
                layers.sasl.refuse(SaslCode.SYS_PERM, too_much)
            else:
                self._terminate(TransportError(too_much))

    # -- input -----------------------------------------------------------------

    def _read(self) -> None:
        """Read all complete headers and frames."""
        while True:
            try:
                self._read_frames()
                break
            except RemoteProtocolError as error:
                session = self.channels.by_remote.get(self._input.channel)
                if (
                    error.scope is Scope.SESSION
                    and session is not None
                    # An end cannot be sent before our open, so the connection is closed.
                    and self.state is not ConnectionState.OPEN_RCVD
                ):
                    session._fail(error)
                else:
                    self._violated(error)
            except DecodeError as error:
                self._violated(RemoteProtocolError("amqp:decode-error", str(error)))
        input = self._input
        if input.whole:
            input.whole = False
            self._timers.last_received = self._now

    def _read_frames(self) -> None:
        input = self._input
        layers = self._layers
        while True:
            if layers.stage == AMQP:
                limit: i64 = self.settings.max_frame_size
                if self.remote_open is None and limit > MAX_EARLY_FRAME:
                    limit = MAX_EARLY_FRAME
                if not input.next_frame(limit, AMQP_FRAME):
                    return
                if input.reader.pos < input.reader.end:
                    dispatch(self, input.reader, input.channel)
                else:
                    empty_frame(self, input.channel)
            elif not layers.read(input):
                return

    # -- open and close ------------------------------------------------------------

    def _transition(self, event: ConnectionInput) -> bool:
        new = CONNECTION_TABLE.get((self.state, event))
        if new is None:
            return False
        self.state = new
        self.opened = new is ConnectionState.OPENED
        self._receiving = self.opened or new is ConnectionState.OPEN_RCVD
        return True

    def _try_open(self) -> None:
        if not self._open_wanted or (self.state, ConnectionInput.SEND_OPEN) not in CONNECTION_TABLE:
            return
        self._send(0, self.settings.opening)
        self._transition(ConnectionInput.SEND_OPEN)
        if self._closed_early:
            self._transition(ConnectionInput.RECV_CLOSE)
        self._handshaken()

    def _on_open(self, open: Open, channel: i64) -> None:
        if not self._transition(ConnectionInput.RECV_OPEN):
            raise RemoteProtocolError("amqp:illegal-state", f"open in state {self.state.name}")
        self.remote_open = open
        closed = self.state is ConnectionState.CLOSE_SENT
        if not closed:
            check_open(open, channel, self.settings)
        self.remote_max_frame_size = open.max_frame_size
        idle = open.idle_time_out
        if idle is not None and idle > 0 and self.settings.keepalives:
            self._timers.peer_time_out(idle / 1000, self._now)
        self._handshaken()
        if not closed:
            self._emit(OpenReceived(open))

    def _check_channel(self, channel: i64) -> None:
        if channel > self.settings.channel_max:
            raise RemoteProtocolError(
                "amqp:connection:framing-error",
                f"frame on channel {channel}; the highest allowed is {self.settings.channel_max}",
            )

    def _handshaken(self) -> None:
        if self.opened:
            self._timers.handshake_due = None

    def _on_close(self, close: Close, channel: i64) -> None:
        if self._receiving:
            self._check_channel(channel)
        if self._closed_early or not self._transition(ConnectionInput.RECV_CLOSE):
            raise RemoteProtocolError("amqp:illegal-state", f"close in state {self.state.name}")
        if self.state is ConnectionState.OPEN_RCVD:
            self._closed_early = True
            self._receiving = False
        error = close.error
        if self.failure is None and error is not None:
            self.failure = ConnectionClosed("the peer closed the connection", error)
        self._emit(CloseReceived(error))
        self._end_sessions(self.failure)
        if self.state is ConnectionState.END:
            self._terminate(self.failure)

    def _violated(self, error: RemoteProtocolError) -> None:
        """Close the connection because the peer broke a rule."""
        layers = self._layers
        if layers.stage == SASL and not self.settings.initiator:
            layers.sasl.refuse(SaslCode.SYS_PERM, error.description)
            return
        self.failure = self.failure or error
        if layers.stage == AMQP and self.state is not ConnectionState.CLOSE_PIPE:
            self.close(answer_to(error))
        else:
            self._terminate(self.failure)

    def _terminate(self, error: AmqpError | None) -> None:
        if self.finished:
            return
        self._flush_sessions()
        self.lingering = self._layers.stage != AMQP
        self._layers.stage = DONE
        self.state = ConnectionState.END
        self.opened = False
        self._receiving = False
        self._input.clear()
        self._end_sessions(error)
        self.finished = True
        self._emit(Terminated(error))

    def drop_references(self) -> None:
        """Break the cycles between the connection and its parts, after `Terminated`.

        Reference counting then frees them without a run of the garbage collector. Only
        `receive_data` and `receive_eof` may be called afterwards.
        """
        self._layers.drop_references()

    # -- sessions --------------------------------------------------------------------

    def _on_begin(self, begin: Begin, channel: i64) -> None:
        self._check_channel(channel)
        self.channels.begun(self, begin, channel)._on_begin(begin)

    def _channel_limit(self) -> i64:
        """Return the highest channel we may use: 0 while the peer's open is unknown (§2.4.1)."""
        remote = self.remote_open
        if remote is None:
            return 0
        return min(i64(self.settings.channel_max), i64(remote.channel_max))

    def _end_sessions(self, error: AmqpError | None) -> None:
        for session in self.channels.clear():
            session._abandon(error)
        self.output_limit.clear()

    # -- output ------------------------------------------------------------------------

    def _emit(self, event: BareEvent) -> None:
        self._events.append(event)

    def _touch(self, session: Session) -> None:
        if not session.touched:
            session.touched = True
            self._touched.append(session)

    def _flush_sessions(self) -> None:
        touched = self._touched
        self._touched = []
        for session in touched:
            session._flush()

    def _send(self, channel: i64, performative: Composite) -> None:
        """Write one frame.

        Raises `EncodeError` if a value does not fit its type, `LocalProtocolError` if the frame is
        larger than the peer takes. In both cases nothing is written.
        """
        output = self.output
        mark = begin_frame(output, channel)
        try:
            performative.encode(output)
        except BaseException:
            # Half a frame would make the next one a framing error.
            self.truncate_output(mark)
            raise
        size = end_frame(output, mark)
        if size > self.remote_max_frame_size:
            self.truncate_output(mark)
            raise LocalProtocolError(
                "amqp:frame-size-too-small",
                f"{type(performative).__name__.lower()} of {size} bytes; "
                f"the peer takes frames of at most {self.remote_max_frame_size}",
            )
