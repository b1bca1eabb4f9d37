"""The server's end of a connection of AMQP 0-9-1, without input and output.

The user gives it bytes and time, takes events and output, and answers the events. What a peer does
wrong becomes a close with the right reply code and an event, and never raises.

Input is read when events are taken, and no further than to a frame that opens or closes something:
so the answer to an event takes effect before what the client has sent after it.

Which input is allowed in a state, and which state follows it, is in the tables of `server_states`.

One module because it is one state machine: each frame may change the state, and so may each answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_be, write_i32_be, write_i64_be
from mypy_extensions import i64

from ferrymq_codec.errors import DecodeError
from ferrymq_codec_0_9_1.frames import (
    METHOD,
    OVERHEAD,
    PAYLOAD,
    PROTOCOL_HEADER,
    begin_frame,
    end_frame,
    frame_channel,
    frame_size,
    write_raw_header,
)
from ferrymq_codec_0_9_1.method import Method
from ferrymq_codec_0_9_1.unknown_method import UnknownMethod
from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import (
    ChannelClosed,
    ChannelOpened,
    ClosedByPeer,
    ConnectionEnded,
    ContentReceived,
    EngineEvent,
    HostOpened,
    LoginContinued,
    LoginStarted,
    MethodReceived,
    SecretUpdated,
)
from ferrymq_rabbitmq.amqp_0_9_1.engine.input_buffer import InputBuffer
from ferrymq_rabbitmq.amqp_0_9_1.engine.peer_fault import PeerFault
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_channel import ContentBudget, ServerChannel
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_states import (
    CHANNEL_TRANSITIONS,
    COMPLETE,
    CONNECTION_TABLE,
    END,
    ENDED,
    EXPECT_CLOSE_OK,
    EXPECT_HEADER,
    EXPECT_HOST,
    EXPECT_LOGIN,
    EXPECT_SECRET,
    EXPECT_SECURE_OK,
    INPUT_OF_METHOD,
    INPUT_ON_CHANNEL,
    INPUTS,
    OPENED,
    RECV_CHANNEL_CLOSE,
    RECV_CHANNEL_CLOSE_OK,
    RECV_CHANNEL_FRAME,
    RECV_CHANNEL_OPEN,
    RECV_CLOSE,
    RECV_CONTENT,
    RECV_CONTENT_BODY,
    RECV_CONTENT_HEADER,
    RECV_HEADER,
    RECV_HEARTBEAT,
    RECV_METHOD,
    RECV_OTHER_HEADER,
    RECV_OTHER_METHOD,
    RECV_PUBLISH,
    SEND_CHANNEL_CLOSE,
    SEND_CLOSE,
    SEND_OPEN_OK,
    SEND_SECURE,
    SEND_TUNE,
    SEND_UPDATE_SECRET_OK,
    UNOPENED,
)
from ferrymq_rabbitmq.amqp_0_9_1.engine.transition import Transition
from ferrymq_types_0_9_1 import registry
from ferrymq_types_0_9_1.basic import BasicPublish
from ferrymq_types_0_9_1.channel import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpenOk,
)
from ferrymq_types_0_9_1.connection import (
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from ferrymq_types_0_9_1.constants import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    FRAME_BODY,
    FRAME_ERROR,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_MIN_SIZE,
    NOT_ALLOWED,
    REPLY_NAMES,
    SYNTAX_ERROR,
    UNEXPECTED_FRAME,
)
from ferrymq_types_0_9_1.registry import (
    split_header,
    write_body_frames,
    write_header_frame,
    write_heartbeat,
    write_method_frame,
)

if TYPE_CHECKING:
    from ferrymq_rabbitmq.amqp_0_9_1.engine.server_settings import ServerSettings

# The longest reply text: a short string (AMQP 0-9-1 §4.2.5.3).
_MAX_TEXT: Final = 255
# Bytes that a frame may have beyond frame-max: some clients count the payload only. RabbitMQ takes
# such frames too.
_SIZE_LENIENCE: Final = OVERHEAD
_BASIC: Final = 60
# The indices of basic.publish and basic.deliver.
_PUBLISH: Final = 0x003C0028
_DELIVER: Final = 0x003C003C
# The payloads of basic.publish that were read last: how many there are at most, how long each is.
_MOST_KNOWN: Final = 256
_LONGEST_KNOWN: Final = 256
# The tables as names of this module, which compiled code finds at once: theirs is not compiled.
_TRANSITIONS: Final = CHANNEL_TRANSITIONS
_INPUT_ON_CHANNEL: Final = INPUT_ON_CHANNEL
_known: Final[dict[bytes, Method]] = {}


@final
class ServerConnection:
    """The server's end of one connection. Times are in seconds of the user's clock.

    `frame_max`, `channel_max` and `heartbeat` (seconds, 0 for none) are those that both sides have
    agreed upon. `finished` is whether the transport can end once the output is written.
    """

    __slots__ = (
        "settings",
        "state",
        "frame_max",
        "channel_max",
        "heartbeat",
        "client_properties",
        "channels",
        "_input",
        "_output",
        "_events",
        "_budget",
        "_now",
        "_deadline",
        "_heard",
        "_beat_at",
        "_has_sent",
        "_blocks",
        "_in_eof",
        "_was_opened",
    )

    def __init__(self, settings: ServerSettings, now: float) -> None:
        self.settings: ServerSettings = settings
        self.state: i64 = EXPECT_HEADER
        self.frame_max: i64 = settings.frame_max
        self.channel_max: i64 = settings.channel_max
        self.heartbeat: i64 = 0
        self.client_properties: dict[str, object] = {}
        self.channels: dict[int, ServerChannel] = {}
        self._input = InputBuffer()
        self._output = BytesWriter()
        self._events: list[EngineEvent] = []
        self._budget = ContentBudget(settings.max_unfinished, settings.unfinished)
        self._now = now
        # When the handshake, or the client's answer to a close, has to be there; 0 for never.
        self._deadline = now + settings.handshake_timeout
        # When something came last; when the next heartbeat is due, if nothing else is sent.
        self._heard = now
        self._beat_at = 0.0
        self._has_sent = False
        # Whether the client knows connection.blocked.
        self._blocks = False
        self._in_eof = False
        self._was_opened = False

    # -- input ---------------------------------------------------------------------------

    @property
    def opened(self) -> bool:
        """Whether the client is in a virtual host, or was there before the end."""
        return self._was_opened

    @property
    def finished(self) -> bool:
        """Whether nothing follows what is in the output."""
        return self.state == ENDED

    @property
    def lingering(self) -> bool:
        """Whether the client may still have to read why the connection has ended."""
        return not self._in_eof

    def is_established(self) -> bool:
        """Return whether the handshake is over, and no close has begun."""
        return self.state == OPENED

    def holds_input(self) -> bool:
        """Return whether input waits for a decision of the user, and more should not be read."""
        return self._waits() and self._input.size > self.frame_max

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes that have arrived; `take_events` reads them."""
        self._now = self._heard = now
        if self.state != ENDED:
            self._input.add(data)

    def note_input(self, now: float) -> None:
        """Take the client's silence until now for granted, because the user did not read."""
        self._now = self._heard = now

    def receive_eof(self, now: float) -> None:
        """Take note that no more bytes will arrive."""
        self._now = now
        self._in_eof = True

    def take_events(self) -> list[EngineEvent]:
        """Read on, and return what has happened; empty if there is nothing to read."""
        while not self._events and self._input.is_ready() and not self._waits():
            try:
                self._read()
            except (PeerFault, DecodeError) as error:
                if not self._events:
                    self._fail(_as_fault(error))
                # Else the user answers what came before, and the frame is read again.
        if self._in_eof and not self._events:
            self._lose("the client has closed the transport without a close")
        events = self._events
        if events:
            self._events = []
        return events

    def _waits(self) -> bool:
        """Return whether nothing is read until the user has decided."""
        state = self.state
        return state in (EXPECT_LOGIN, EXPECT_HOST, EXPECT_SECRET)

    def _read(self) -> None:
        """Read frames until the input ends, or until the user has to answer first."""
        buffer = self._input
        if self.state == EXPECT_HEADER:
            self._read_protocol_header()
            return
        data = buffer.data
        end: i64 = len(data)
        if self.state == ENDED:
            buffer.clear()
        while buffer.size > 0:
            pos = buffer.pos
            size = frame_size(data, pos, end, self.frame_max + _SIZE_LENIENCE)
            if size == 0:
                left = end - pos
                if left >= PAYLOAD:
                    buffer.wanted = self._size_of(data, pos)
                else:
                    buffer.wanted = left + 1
                return
            number = frame_channel(data, pos)
            kind: i64 = data[pos]
            channel = self.channels.get(int(number))
            if channel is not None and channel.is_open():
                if not self._on_channel_frame(channel, kind, data, pos, size):
                    # The user answers what came before.
                    return
                buffer.read(size)
                continue
            if not self._on_other_frame(number, channel, kind, data, pos, size):
                return
            buffer.read(size)
            # Frames of open channels do not change the state of the connection.
            if self.state == ENDED:
                buffer.clear()
            elif self._waits():
                return

    def _size_of(self, data: bytes, pos: i64) -> i64:
        size: i64 = 0
        for at in range(3, PAYLOAD):
            size = (size << 8) | i64(data[pos + at])
        return size + OVERHEAD

    def _read_protocol_header(self) -> None:
        buffer = self._input
        if buffer.size < len(PROTOCOL_HEADER):
            buffer.wanted = len(PROTOCOL_HEADER)
            return
        found = buffer.data[buffer.pos : buffer.pos + len(PROTOCOL_HEADER)]
        buffer.read(len(PROTOCOL_HEADER))
        given = RECV_HEADER if found == PROTOCOL_HEADER else RECV_OTHER_HEADER
        transition = CONNECTION_TABLE[int(self.state), given]
        if transition.state == ENDED:
            self._output.write(PROTOCOL_HEADER)
            self._end("the client has asked for another protocol")
            return
        settings = self.settings
        self.state = transition.state
        start = ConnectionStart(
            version_major=0,
            version_minor=9,
            server_properties=settings.properties,
            mechanisms=" ".join(settings.mechanisms).encode(),
            locales=b"en_US",
        )
        self._write(0, start)

    # -- frames of open channels ---------------------------------------------------------

    def _on_channel_frame(
        self, channel: ServerChannel, kind: i64, data: bytes, pos: i64, size: i64
    ) -> bool:
        """Read a frame; return false, and read nothing, if the user has to answer first."""
        start = pos + PAYLOAD
        end = pos + size - 1
        row = channel.state * INPUTS
        if kind == METHOD:
            method = decode_method(data, start, end)
            if isinstance(method, BasicPublish):
                transition = _TRANSITIONS[row + RECV_PUBLISH]
                if transition.code != 0:
                    raise _fault(transition, channel.number, method)
                channel.published = method
                channel.state = transition.state
                return True
            given: i64 = _INPUT_ON_CHANNEL[type(method)]
            transition = _TRANSITIONS[row + given]
            if transition.code != 0:
                raise _fault(transition, channel.number, method)
            if given == RECV_METHOD:
                self._events.append(MethodReceived(channel.number, method))
            elif given == RECV_CHANNEL_CLOSE:
                if self._events:
                    return False
                self._write(channel.number, ChannelCloseOk())
                self._drop_channel(channel, transition)
            return True
        if kind == FRAME_BODY:
            transition = _TRANSITIONS[row + RECV_CONTENT_BODY]
            if transition.code != 0:
                raise _fault(transition, channel.number, None)
            complete = channel.take_body(data[start:end])
        elif kind == FRAME_HEADER:
            transition = _TRANSITIONS[row + RECV_CONTENT_HEADER]
            if transition.code != 0:
                raise _fault(transition, channel.number, None)
            class_id, body_size, properties = split_header(data, start, end)
            # More than 2**63 bytes are too large in any case.
            limited = body_size if body_size <= 0x7FFF_FFFF_FFFF_FFFF else 0x7FFF_FFFF_FFFF_FFFF
            complete = channel.take_header(class_id, limited, properties)
        else:
            raise _fault(_TRANSITIONS[row + RECV_HEARTBEAT], channel.number, None)
        if complete:
            transition = _TRANSITIONS[transition.state * INPUTS + COMPLETE]
            published = channel.published
            assert published is not None
            properties = channel.properties
            body = channel.take_content()
            self._events.append(ContentReceived(channel.number, published, properties, body))
        channel.state = transition.state
        return True

    # -- all other frames ----------------------------------------------------------------

    def _on_other_frame(
        self,
        number: i64,
        channel: ServerChannel | None,
        kind: i64,
        data: bytes,
        pos: i64,
        size: i64,
    ) -> bool:
        """Read a frame of the connection, or of a channel that is not open; return false, and read
        nothing, if the user has to answer first."""
        if kind == FRAME_HEARTBEAT and number == 0:
            return True
        method: Method | None = None
        if kind == METHOD:
            if self._events:
                # What follows opens or closes something.
                return False
            method = decode_method(data, pos + PAYLOAD, pos + size - 1)
        if number != 0:
            transition = self._allowed(RECV_CHANNEL_FRAME, number, method)
            if transition.state != EXPECT_CLOSE_OK:
                self._on_closed_channel(number, channel, kind, method)
        elif method is None:
            self._allowed(RECV_CONTENT, 0, None)
        else:
            self._on_connection_method(method)
        return True

    def _allowed(self, given: int, number: i64, method: Method | None) -> Transition:
        """Return what an input does in the present state. Raises `PeerFault` if it is none that the
        peer may send."""
        transition = CONNECTION_TABLE[int(self.state), given]
        if transition.code != 0:
            raise _fault(transition, number, method)
        return transition

    def _on_closed_channel(
        self, number: i64, channel: ServerChannel | None, kind: i64, method: Method | None
    ) -> None:
        if method is not None:
            given: i64 = _INPUT_ON_CHANNEL[type(method)]
        elif kind == FRAME_HEADER:
            given = RECV_CONTENT_HEADER
        else:
            given = RECV_CONTENT_BODY if kind == FRAME_BODY else RECV_HEARTBEAT
        state = UNOPENED if channel is None else channel.state
        transition = _TRANSITIONS[state * INPUTS + given]
        if transition.code != 0:
            raise _fault(transition, number, method)
        if channel is not None:
            channel.state = transition.state
            if given == RECV_CHANNEL_CLOSE_OK:
                del self.channels[int(number)]
            elif given == RECV_CHANNEL_CLOSE:
                self._write(number, ChannelCloseOk())
        elif given == RECV_CHANNEL_OPEN:
            self._open_channel(number, method, transition)

    def _open_channel(self, number: i64, method: Method | None, transition: Transition) -> None:
        if number > self.channel_max:
            raise PeerFault(
                NOT_ALLOWED,
                f"channel {number}; the highest number is {self.channel_max}",
                method,
            )
        channel = ServerChannel(number, self.settings.max_message_size, self._budget)
        channel.state = transition.state
        self.channels[int(number)] = channel
        self._write(number, ChannelOpenOk())
        self._events.append(ChannelOpened(number))

    def _on_connection_method(self, method: Method) -> None:
        given: int = INPUT_OF_METHOD.get(type(method), RECV_OTHER_METHOD)
        transition = self._allowed(given, 0, method)
        if given == RECV_CLOSE:
            self._write(0, ConnectionCloseOk())
        if transition.event is None:
            if isinstance(method, ConnectionTuneOk) and self.state != EXPECT_CLOSE_OK:
                self._tune(method)
        elif isinstance(method, ConnectionClose):
            self._events.append(ClosedByPeer(method.reply_code, method.reply_text))
            self._end("")
        elif isinstance(method, ConnectionStartOk):
            self.client_properties = method.client_properties
            self._blocks = self.is_capable("connection.blocked")
            self._events.append(
                LoginStarted(
                    method.mechanism, method.response, method.client_properties, method.locale
                )
            )
        elif isinstance(method, ConnectionSecureOk):
            self._events.append(LoginContinued(method.response))
        elif isinstance(method, ConnectionOpen):
            self._events.append(HostOpened(method.virtual_host))
        elif isinstance(method, ConnectionUpdateSecret):
            self._events.append(SecretUpdated(method.new_secret, method.reason))
        self.state = transition.state

    def is_capable(self, capability: str) -> bool:
        """Return whether the client says that it has a capability."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    def _tune(self, method: ConnectionTuneOk) -> None:
        settings = self.settings
        frame_max: i64 = method.frame_max
        channel_max: i64 = method.channel_max
        if frame_max != 0 and (frame_max < FRAME_MIN_SIZE or frame_max > settings.frame_max):
            raise PeerFault(
                NOT_ALLOWED,
                f"frame-max {frame_max}; it must be from {FRAME_MIN_SIZE} to "
                f"{settings.frame_max}",
                method,
            )
        if channel_max > settings.channel_max:
            raise PeerFault(
                NOT_ALLOWED,
                f"channel-max {channel_max}; at most {settings.channel_max} channels are allowed",
                method,
            )
        if frame_max != 0:
            self.frame_max = frame_max
        if channel_max != 0:
            self.channel_max = channel_max
        self.heartbeat = method.heartbeat
        if self.heartbeat != 0:
            self._beat_at = self._now + float(self.heartbeat) / 4

    # -- answers of the user ---------------------------------------------------------------

    def challenge(self, data: bytes) -> None:
        """Ask the client for another response of its mechanism."""
        if self._moves(SEND_SECURE):
            self._write(0, ConnectionSecure(challenge=data))

    def accept_login(self) -> None:
        """Go on with a client that is who it says."""
        if not self._moves(SEND_TUNE):
            return
        settings = self.settings
        self._write(
            0,
            ConnectionTune(
                channel_max=int(settings.channel_max),
                frame_max=int(settings.frame_max),
                heartbeat=int(settings.heartbeat),
            ),
        )

    def refuse_login(self, text: str) -> None:
        """End the connection: the client is not who it says."""
        if self.state != EXPECT_LOGIN:
            return
        if self.is_capable("authentication_failure_close"):
            self.close(ACCESS_REFUSED, text)
        else:
            # Other clients expect the end of the transport alone.
            self._lose(text)

    def open_ok(self) -> None:
        """Tell the client that it is in its virtual host."""
        if self._moves(SEND_OPEN_OK):
            self._was_opened = True
            self._deadline = 0.0
            self._write(0, ConnectionOpenOk())

    def accept_secret(self) -> None:
        """Tell the client that its new secret is valid."""
        if self._moves(SEND_UPDATE_SECRET_OK):
            self._write(0, ConnectionUpdateSecretOk())

    def _moves(self, given: int) -> bool:
        """Go to the state that follows what the user sends; return false if it is at the wrong
        time."""
        transition = CONNECTION_TABLE.get((int(self.state), given))
        if transition is None:
            return False
        self.state = transition.state
        return True

    # -- output --------------------------------------------------------------------------

    @property
    def has_output(self) -> bool:
        """Whether there are bytes for the client."""
        return len(self._output) > 0

    @property
    def output_size(self) -> int:
        """The bytes for the client."""
        return len(self._output)

    def data_to_send(self) -> bytes:
        """Return the bytes for the client, and keep none."""
        output = self._output
        if len(output) == 0:
            return b""
        self._has_sent = True
        self._output = BytesWriter()
        return output.getvalue()

    def send_method(self, channel: i64, method: Method) -> None:
        """Write a method on an open channel; without effect on a channel that is not open.

        Raises `EncodeError` for a field that is illegal; nothing is written then.
        """
        if self._is_open(channel):
            self._write(channel, method)

    def send_content(self, channel: i64, method: Method, properties: bytes, body: bytes) -> None:
        """Write a method with a content; `properties` are encoded. Without effect on a channel that
        is not open.

        Raises `EncodeError` for a field that is illegal; nothing is written then.
        """
        if self._is_open(channel):
            self._write(channel, method)
            output = self._output
            write_header_frame(output, channel, _BASIC, len(body), properties)
            write_body_frames(output, channel, body, self.frame_max)

    def send_delivery(
        self,
        channel: i64,
        consumer: bytes,
        tag: i64,
        redelivered: bool,
        place: bytes,
        properties: bytes,
        body: bytes,
    ) -> None:
        """Write a basic.deliver with its content, as `send_content` does, without an object for the
        method. Without effect on a channel that is not open.

        `consumer` is the consumer tag, `place` the exchange and the routing key, all of them
        encoded short strings.
        """
        if self._is_open(channel):
            output = self._output
            mark = begin_frame(output, METHOD, channel)
            write_i32_be(output, _DELIVER)
            output.write(consumer)
            write_i64_be(output, tag)
            output.append(1 if redelivered else 0)
            output.write(place)
            end_frame(output, mark)
            write_raw_header(output, channel, _BASIC, len(body), properties)
            write_body_frames(output, channel, body, self.frame_max)

    def _is_open(self, channel: i64) -> bool:
        # There are channels only while the connection is open.
        found = self.channels.get(int(channel))
        return found is not None and found.is_open()

    def _write(self, channel: i64, method: Method) -> None:
        output = self._output
        mark: i64 = len(output)
        try:
            write_method_frame(output, channel, method)
        except BaseException:
            # After half a frame the client could not read the next one.
            output.truncate(mark)
            raise

    def block(self, reason: str) -> None:
        """Tell a client that understands it that the server does not read from it."""
        if self._is_opened() and self._blocks:
            self._write(0, ConnectionBlocked(reason=_cut(reason)))

    def unblock(self) -> None:
        """Tell a client that understands it that the server reads again."""
        if self._is_opened() and self._blocks:
            self._write(0, ConnectionUnblocked())

    def _is_opened(self) -> bool:
        return self.state in (OPENED, EXPECT_SECRET)

    # -- ends ----------------------------------------------------------------------------

    def close_channel(self, channel: i64, code: i64, text: str, method: Method | None) -> None:
        """Close a channel for an error that `method` has caused; `ChannelClosed` follows."""
        found = self.channels.get(int(channel))
        if found is None or not found.is_open():
            return
        found.forget_content()
        found.state = _TRANSITIONS[found.state * INPUTS + SEND_CHANNEL_CLOSE].state
        self._write(
            channel,
            ChannelClose(
                reply_code=int(code),
                reply_text=_reply_text(code, text),
                class_id=0 if method is None else type(method).CLASS_ID,
                method_id=0 if method is None else type(method).METHOD_ID,
            ),
        )
        self._events.append(ChannelClosed(channel))

    def close(self, code: i64, text: str, method: Method | None = None) -> None:
        """Close the connection; `ConnectionEnded` follows, and the client has a limited time to
        answer."""
        transition = CONNECTION_TABLE.get((int(self.state), SEND_CLOSE))
        if transition is None:
            return
        if transition.state == ENDED:
            self._end(text)
            return
        self._write(
            0,
            ConnectionClose(
                reply_code=int(code),
                reply_text=_reply_text(code, text),
                class_id=0 if method is None else type(method).CLASS_ID,
                method_id=0 if method is None else type(method).METHOD_ID,
            ),
        )
        self._end(text)
        self.state = transition.state
        self._deadline = self._now + self.settings.close_timeout

    def _fail(self, fault: PeerFault) -> None:
        """Close what a fault of the peer ends."""
        buffer = self._input
        number: i64 = 0
        try:
            size = frame_size(buffer.data, buffer.pos, len(buffer.data), 0)
        except DecodeError:
            # What follows cannot be told apart from frames.
            buffer.clear()
        else:
            number = frame_channel(buffer.data, buffer.pos)
            buffer.read(size)
        if fault.soft:
            self.close_channel(number, fault.code, fault.text, fault.method)
        elif self.state == EXPECT_CLOSE_OK:
            self._lose(fault.text)
        else:
            self.close(fault.code, fault.text, fault.method)

    def _drop_channel(self, channel: ServerChannel, transition: Transition) -> None:
        channel.forget_content()
        channel.state = transition.state
        del self.channels[int(channel.number)]
        self._events.append(ChannelClosed(channel.number))

    def _lose(self, reason: str) -> None:
        """End the connection without a close."""
        transition = CONNECTION_TABLE.get((int(self.state), END))
        if transition is None:
            return
        if transition.event is None:
            # The end was told with our close.
            self.state = transition.state
        else:
            self._end(reason)

    def _end(self, reason: str) -> None:
        """Note that nothing more is read or written on any channel."""
        failed_login = self.state == EXPECT_LOGIN or self.state == EXPECT_SECURE_OK
        self.state = ENDED
        for channel in self.channels.values():
            channel.forget_content()
            channel.state = UNOPENED
        self.channels.clear()
        self._deadline = 0.0
        self._events.append(ConnectionEnded(reason, failed_login))

    # -- time ----------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `handle_timeout` has something to do."""
        if self.state == ENDED:
            return None
        due = self._deadline
        if self.heartbeat != 0 and self.state != EXPECT_CLOSE_OK:
            silent = self._heard + 2.0 * float(self.heartbeat)
            if due == 0.0 or silent < due:
                due = silent
            if self._beat_at < due:
                due = self._beat_at
        return None if due == 0.0 else due

    def handle_timeout(self, now: float) -> None:
        """Do what is due: a heartbeat, or the end of a connection whose client is silent."""
        self._now = now
        state = self.state
        if state == ENDED:
            return
        if self._deadline != 0.0 and now >= self._deadline:
            self._lose("the client has not opened the connection in time")
            return
        if self.heartbeat == 0 or state == EXPECT_CLOSE_OK:
            return
        if now >= self._heard + 2.0 * float(self.heartbeat):
            self._lose(f"the client has sent nothing for {2 * self.heartbeat} s")
            return
        if now >= self._beat_at:
            if not self._has_sent:
                write_heartbeat(self._output)
            self._has_sent = False
            # The last output may be that old: the client waits for half the interval at most.
            self._beat_at = now + float(self.heartbeat) / 4


def _fault(transition: Transition, number: i64, method: Method | None) -> PeerFault:
    """Return the fault that a transition is, on this channel."""
    name = "a content" if method is None else type(method).NAME
    text = transition.text.format(method=name, channel=number)
    # As with RabbitMQ, a frame at the wrong place is the fault of no method.
    return PeerFault(
        int(transition.code), text, None if transition.code == UNEXPECTED_FRAME else method
    )


def _as_fault(error: PeerFault | DecodeError) -> PeerFault:
    """Return the fault for a frame that could not be read."""
    if isinstance(error, PeerFault):
        return error
    if isinstance(error, UnknownMethod):
        return PeerFault(COMMAND_INVALID, str(error))
    code = FRAME_ERROR if error.field.startswith("frame.") else SYNTAX_ERROR
    return PeerFault(code, str(error))


def decode_method(data: bytes, start: i64, end: i64) -> Method:
    """Read a method from `data[start:end]`; raises as the registry's function. A basic.publish
    comes again and again, so the objects of the last ones are shared. Nobody changes them."""
    size = end - start
    if size < 4 or size > _LONGEST_KNOWN or read_i32_be(data, start) != _PUBLISH:
        return registry.decode_method(data, start, end)
    payload = data[start:end]
    method = _known.get(payload)
    if method is None:
        method = registry.decode_method(data, start, end)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[payload] = method
    return method


def _reply_text(code: i64, text: str) -> str:
    """Return the text of a close, as RabbitMQ writes it: the name of the code comes first."""
    return _cut(f"{REPLY_NAMES.get(int(code), 'ERROR')} - {text}")


def _cut(text: str) -> str:
    """Return as much of a text as a short string can have."""
    encoded = text.encode()
    if len(encoded) <= _MAX_TEXT:
        return text
    return encoded[:_MAX_TEXT].decode("utf-8", "ignore")
