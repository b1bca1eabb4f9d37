"""The state machines of a connection and of a channel of AMQP 0-9-1, as literal tables.

Each table maps ``(state, input)`` to a `Transition`: the next state with the event of the user, or
the code of the fault. A pair that is not in a table cannot come from the peer: the engine reads no
methods before a header, and nothing at all while the user decides. The same holds for a call of the
user at the wrong time, which has no effect. The modules `server_connection` and `server_channel`
have the side effects.

States and inputs are numbers, because compiled code compares these at once; `CONNECTION_STATES` and
the like have their names. `docs/engine-0-9-1.md` shows the tables.
"""

from __future__ import annotations

from typing import Final

from ferrymq_codec_0_9_1.method import Method
from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import (
    ChannelClosed,
    ChannelOpened,
    ClosedByPeer,
    ConnectionEnded,
    ContentReceived,
    HostOpened,
    LoginContinued,
    LoginStarted,
    MethodReceived,
    SecretUpdated,
)
from ferrymq_rabbitmq.amqp_0_9_1.engine.transition import Transition as Transition
from ferrymq_types_0_9_1.basic import BasicPublish
from ferrymq_types_0_9_1.channel import ChannelClose, ChannelCloseOk, ChannelOpen
from ferrymq_types_0_9_1.connection import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
)
from ferrymq_types_0_9_1.constants import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    UNEXPECTED_FRAME,
)
from ferrymq_types_0_9_1.methods import METHODS

# -- connections -------------------------------------------------------------------------

# The states of a connection, by what has to come next (AMQP 0-9-1 §2.2.4). In EXPECT_LOGIN,
# EXPECT_HOST and EXPECT_SECRET this is a decision of the user.
EXPECT_HEADER: Final = 0
EXPECT_START_OK: Final = 1
EXPECT_LOGIN: Final = 2
EXPECT_SECURE_OK: Final = 3
EXPECT_TUNE_OK: Final = 4
EXPECT_OPEN: Final = 5
EXPECT_HOST: Final = 6
OPENED: Final = 7
EXPECT_SECRET: Final = 8
EXPECT_CLOSE_OK: Final = 9
ENDED: Final = 10

CONNECTION_STATES: Final = (
    "EXPECT_HEADER",
    "EXPECT_START_OK",
    "EXPECT_LOGIN",
    "EXPECT_SECURE_OK",
    "EXPECT_TUNE_OK",
    "EXPECT_OPEN",
    "EXPECT_HOST",
    "OPENED",
    "EXPECT_SECRET",
    "EXPECT_CLOSE_OK",
    "ENDED",
)

# The inputs of a connection: headers, methods on channel 0, a content on channel 0, a frame of a
# channel, and what the user sends. END is the end of the transport, a time-out or a refused login,
# without a close.
RECV_HEADER: Final = 0
RECV_OTHER_HEADER: Final = 1
RECV_START_OK: Final = 2
RECV_SECURE_OK: Final = 3
RECV_TUNE_OK: Final = 4
RECV_OPEN: Final = 5
RECV_UPDATE_SECRET: Final = 6
RECV_CLOSE: Final = 7
RECV_CLOSE_OK: Final = 8
RECV_OTHER_METHOD: Final = 9
RECV_CONTENT: Final = 10
RECV_CHANNEL_FRAME: Final = 11
SEND_SECURE: Final = 12
SEND_TUNE: Final = 13
SEND_OPEN_OK: Final = 14
SEND_UPDATE_SECRET_OK: Final = 15
SEND_CLOSE: Final = 16
END: Final = 17

CONNECTION_INPUTS: Final = (
    "RECV_HEADER",
    "RECV_OTHER_HEADER",
    "RECV_START_OK",
    "RECV_SECURE_OK",
    "RECV_TUNE_OK",
    "RECV_OPEN",
    "RECV_UPDATE_SECRET",
    "RECV_CLOSE",
    "RECV_CLOSE_OK",
    "RECV_OTHER_METHOD",
    "RECV_CONTENT",
    "RECV_CHANNEL_FRAME",
    "SEND_SECURE",
    "SEND_TUNE",
    "SEND_OPEN_OK",
    "SEND_UPDATE_SECRET_OK",
    "SEND_CLOSE",
    "END",
)

INPUT_OF_METHOD: Final[dict[type[Method], int]] = {
    ConnectionStartOk: RECV_START_OK,
    ConnectionSecureOk: RECV_SECURE_OK,
    ConnectionTuneOk: RECV_TUNE_OK,
    ConnectionOpen: RECV_OPEN,
    ConnectionUpdateSecret: RECV_UPDATE_SECRET,
    ConnectionClose: RECV_CLOSE,
    ConnectionCloseOk: RECV_CLOSE_OK,
}
"""The inputs of methods on channel 0; any other method is `RECV_OTHER_METHOD`."""

_NOT_START_OK: Final = Transition(
    EXPECT_START_OK, None, COMMAND_INVALID, "{method} where connection.start-ok has to come"
)
_NOT_SECURE_OK: Final = Transition(
    EXPECT_SECURE_OK, None, COMMAND_INVALID, "{method} where connection.secure-ok has to come"
)
_NOT_TUNE_OK: Final = Transition(
    EXPECT_TUNE_OK, None, COMMAND_INVALID, "{method} where connection.tune-ok has to come"
)
_NOT_OPEN: Final = Transition(
    EXPECT_OPEN, None, COMMAND_INVALID, "{method} where connection.open has to come"
)
_IN_OPENED: Final = Transition(OPENED, None, COMMAND_INVALID, "{method} on an open connection")
_CONTENT_ON_0: Final = Transition(OPENED, None, UNEXPECTED_FRAME, "a content on channel 0")
_TOO_EARLY: Final = Transition(
    OPENED, None, CHANNEL_ERROR, "a frame on channel {channel} before connection.open"
)
_DISCARDED: Final = Transition(EXPECT_CLOSE_OK)
_CLOSED_BY_PEER: Final = Transition(ENDED, ClosedByPeer)
_CLOSED: Final = Transition(EXPECT_CLOSE_OK, ConnectionEnded)
_OVER: Final = Transition(ENDED, ConnectionEnded)

# `ConnectionEnded` follows each `ClosedByPeer`.
CONNECTION_TABLE: Final[dict[tuple[int, int], Transition]] = {
    (EXPECT_HEADER, RECV_HEADER): Transition(EXPECT_START_OK),
    (EXPECT_HEADER, RECV_OTHER_HEADER): _OVER,
    (EXPECT_HEADER, SEND_CLOSE): _OVER,
    (EXPECT_HEADER, END): _OVER,
    (EXPECT_START_OK, RECV_START_OK): Transition(EXPECT_LOGIN, LoginStarted),
    (EXPECT_START_OK, RECV_SECURE_OK): _NOT_START_OK,
    (EXPECT_START_OK, RECV_TUNE_OK): _NOT_START_OK,
    (EXPECT_START_OK, RECV_OPEN): _NOT_START_OK,
    (EXPECT_START_OK, RECV_UPDATE_SECRET): _NOT_START_OK,
    (EXPECT_START_OK, RECV_CLOSE): _CLOSED_BY_PEER,
    (EXPECT_START_OK, RECV_CLOSE_OK): _NOT_START_OK,
    (EXPECT_START_OK, RECV_OTHER_METHOD): _NOT_START_OK,
    (EXPECT_START_OK, RECV_CONTENT): _CONTENT_ON_0,
    (EXPECT_START_OK, RECV_CHANNEL_FRAME): _TOO_EARLY,
    (EXPECT_START_OK, SEND_CLOSE): _CLOSED,
    (EXPECT_START_OK, END): _OVER,
    (EXPECT_LOGIN, SEND_SECURE): Transition(EXPECT_SECURE_OK),
    (EXPECT_LOGIN, SEND_TUNE): Transition(EXPECT_TUNE_OK),
    (EXPECT_LOGIN, SEND_CLOSE): _CLOSED,
    (EXPECT_LOGIN, END): _OVER,
    (EXPECT_SECURE_OK, RECV_START_OK): _NOT_SECURE_OK,
    (EXPECT_SECURE_OK, RECV_SECURE_OK): Transition(EXPECT_LOGIN, LoginContinued),
    (EXPECT_SECURE_OK, RECV_TUNE_OK): _NOT_SECURE_OK,
    (EXPECT_SECURE_OK, RECV_OPEN): _NOT_SECURE_OK,
    (EXPECT_SECURE_OK, RECV_UPDATE_SECRET): _NOT_SECURE_OK,
    (EXPECT_SECURE_OK, RECV_CLOSE): _CLOSED_BY_PEER,
    (EXPECT_SECURE_OK, RECV_CLOSE_OK): _NOT_SECURE_OK,
    (EXPECT_SECURE_OK, RECV_OTHER_METHOD): _NOT_SECURE_OK,
    (EXPECT_SECURE_OK, RECV_CONTENT): _CONTENT_ON_0,
    (EXPECT_SECURE_OK, RECV_CHANNEL_FRAME): _TOO_EARLY,
    (EXPECT_SECURE_OK, SEND_CLOSE): _CLOSED,
    (EXPECT_SECURE_OK, END): _OVER,
    (EXPECT_TUNE_OK, RECV_START_OK): _NOT_TUNE_OK,
    (EXPECT_TUNE_OK, RECV_SECURE_OK): _NOT_TUNE_OK,
    (EXPECT_TUNE_OK, RECV_TUNE_OK): Transition(EXPECT_OPEN),
    (EXPECT_TUNE_OK, RECV_OPEN): _NOT_TUNE_OK,
    (EXPECT_TUNE_OK, RECV_UPDATE_SECRET): _NOT_TUNE_OK,
    (EXPECT_TUNE_OK, RECV_CLOSE): _CLOSED_BY_PEER,
    (EXPECT_TUNE_OK, RECV_CLOSE_OK): _NOT_TUNE_OK,
    (EXPECT_TUNE_OK, RECV_OTHER_METHOD): _NOT_TUNE_OK,
    (EXPECT_TUNE_OK, RECV_CONTENT): _CONTENT_ON_0,
    (EXPECT_TUNE_OK, RECV_CHANNEL_FRAME): _TOO_EARLY,
    (EXPECT_TUNE_OK, SEND_CLOSE): _CLOSED,
    (EXPECT_TUNE_OK, END): _OVER,
    (EXPECT_OPEN, RECV_START_OK): _NOT_OPEN,
    (EXPECT_OPEN, RECV_SECURE_OK): _NOT_OPEN,
    (EXPECT_OPEN, RECV_TUNE_OK): _NOT_OPEN,
    (EXPECT_OPEN, RECV_OPEN): Transition(EXPECT_HOST, HostOpened),
    (EXPECT_OPEN, RECV_UPDATE_SECRET): _NOT_OPEN,
    (EXPECT_OPEN, RECV_CLOSE): _CLOSED_BY_PEER,
    (EXPECT_OPEN, RECV_CLOSE_OK): _NOT_OPEN,
    (EXPECT_OPEN, RECV_OTHER_METHOD): _NOT_OPEN,
    (EXPECT_OPEN, RECV_CONTENT): _CONTENT_ON_0,
    (EXPECT_OPEN, RECV_CHANNEL_FRAME): _TOO_EARLY,
    (EXPECT_OPEN, SEND_CLOSE): _CLOSED,
    (EXPECT_OPEN, END): _OVER,
    (EXPECT_HOST, SEND_OPEN_OK): Transition(OPENED),
    (EXPECT_HOST, SEND_CLOSE): _CLOSED,
    (EXPECT_HOST, END): _OVER,
    (OPENED, RECV_START_OK): _IN_OPENED,
    (OPENED, RECV_SECURE_OK): _IN_OPENED,
    (OPENED, RECV_TUNE_OK): _IN_OPENED,
    (OPENED, RECV_OPEN): _IN_OPENED,
    (OPENED, RECV_UPDATE_SECRET): Transition(EXPECT_SECRET, SecretUpdated),
    (OPENED, RECV_CLOSE): _CLOSED_BY_PEER,
    (OPENED, RECV_CLOSE_OK): _IN_OPENED,
    (OPENED, RECV_OTHER_METHOD): _IN_OPENED,
    (OPENED, RECV_CONTENT): _CONTENT_ON_0,
    # The table of channels says what the frame does.
    (OPENED, RECV_CHANNEL_FRAME): Transition(OPENED),
    (OPENED, SEND_CLOSE): _CLOSED,
    (OPENED, END): _OVER,
    (EXPECT_SECRET, SEND_UPDATE_SECRET_OK): Transition(OPENED),
    (EXPECT_SECRET, SEND_CLOSE): _CLOSED,
    (EXPECT_SECRET, END): _OVER,
    # The end was told with our close. All but the end of the connection is discarded (§1.4.2.9).
    (EXPECT_CLOSE_OK, RECV_START_OK): _DISCARDED,
    (EXPECT_CLOSE_OK, RECV_SECURE_OK): _DISCARDED,
    (EXPECT_CLOSE_OK, RECV_TUNE_OK): _DISCARDED,
    (EXPECT_CLOSE_OK, RECV_OPEN): _DISCARDED,
    (EXPECT_CLOSE_OK, RECV_UPDATE_SECRET): _DISCARDED,
    (EXPECT_CLOSE_OK, RECV_CLOSE): Transition(ENDED),
    (EXPECT_CLOSE_OK, RECV_CLOSE_OK): Transition(ENDED),
    (EXPECT_CLOSE_OK, RECV_OTHER_METHOD): _DISCARDED,
    (EXPECT_CLOSE_OK, RECV_CONTENT): _DISCARDED,
    (EXPECT_CLOSE_OK, RECV_CHANNEL_FRAME): _DISCARDED,
    (EXPECT_CLOSE_OK, END): Transition(ENDED),
}

# -- channels ----------------------------------------------------------------------------

# The states of a channel. CLOSING is closed by the server and not answered. From OPEN on the
# channel is open: in CONTENT_HEADER and CONTENT_BODY, frames of a message have to come (§4.2.6).
UNOPENED: Final = 0
CLOSING: Final = 1
OPEN: Final = 2
CONTENT_HEADER: Final = 3
CONTENT_BODY: Final = 4

CHANNEL_STATES: Final = ("UNOPENED", "CLOSING", "OPEN", "CONTENT_HEADER", "CONTENT_BODY")

# The inputs of a channel. RECV_METHOD is any other method that a client may send,
# RECV_WRONG_METHOD one that it may not. COMPLETE follows a frame that makes a content complete.
RECV_CHANNEL_OPEN: Final = 0
RECV_CHANNEL_CLOSE: Final = 1
RECV_CHANNEL_CLOSE_OK: Final = 2
RECV_PUBLISH: Final = 3
RECV_METHOD: Final = 4
RECV_WRONG_METHOD: Final = 5
RECV_CONTENT_HEADER: Final = 6
RECV_CONTENT_BODY: Final = 7
RECV_HEARTBEAT: Final = 8
COMPLETE: Final = 9
SEND_CHANNEL_CLOSE: Final = 10

CHANNEL_INPUTS: Final = (
    "RECV_CHANNEL_OPEN",
    "RECV_CHANNEL_CLOSE",
    "RECV_CHANNEL_CLOSE_OK",
    "RECV_PUBLISH",
    "RECV_METHOD",
    "RECV_WRONG_METHOD",
    "RECV_CONTENT_HEADER",
    "RECV_CONTENT_BODY",
    "RECV_HEARTBEAT",
    "COMPLETE",
    "SEND_CHANNEL_CLOSE",
)


def _input_on_channel(method: type[Method]) -> int:
    """Return the input of a method on a channel."""
    known: dict[type[Method], int] = {
        ChannelOpen: RECV_CHANNEL_OPEN,
        ChannelClose: RECV_CHANNEL_CLOSE,
        ChannelCloseOk: RECV_CHANNEL_CLOSE_OK,
        BasicPublish: RECV_PUBLISH,
    }
    if method in known:
        return known[method]
    belongs = method.TO_SERVER and method.CLASS_ID != ConnectionClose.CLASS_ID
    return RECV_METHOD if belongs else RECV_WRONG_METHOD


INPUT_ON_CHANNEL: Final[dict[type[Method], int]] = {
    each: _input_on_channel(each) for each in METHODS.values()
}
"""The input of each method on a channel."""

_UNOPENED: Final = Transition(
    UNOPENED, None, CHANNEL_ERROR, "{method} on channel {channel}, which is not open"
)
_HEARTBEAT: Final = Transition(UNOPENED, None, COMMAND_INVALID, "a heartbeat on channel {channel}")
_OPEN_ALREADY: Final = Transition(OPEN, None, CHANNEL_ERROR, "channel {channel} is open already")
_FROM_CLIENT: Final = Transition(
    OPEN, None, COMMAND_INVALID, "{method} on channel {channel} from a client"
)
_NO_METHOD: Final = Transition(
    OPEN, None, UNEXPECTED_FRAME, "a header frame on channel {channel} that no method has"
)
_NO_HEADER: Final = Transition(
    OPEN, None, UNEXPECTED_FRAME, "a body frame on channel {channel} without a header frame"
)
_IN_CONTENT: Final = Transition(
    CONTENT_HEADER,
    None,
    UNEXPECTED_FRAME,
    "a method on channel {channel} where the content of basic.publish goes on",
)
_IGNORED: Final = Transition(CLOSING)
_CLOSES: Final = Transition(CLOSING, ChannelClosed)

CHANNEL_TABLE: Final[dict[tuple[int, int], Transition]] = {
    (UNOPENED, RECV_CHANNEL_OPEN): Transition(OPEN, ChannelOpened),
    (UNOPENED, RECV_CHANNEL_CLOSE): _UNOPENED,
    (UNOPENED, RECV_CHANNEL_CLOSE_OK): _UNOPENED,
    (UNOPENED, RECV_PUBLISH): _UNOPENED,
    (UNOPENED, RECV_METHOD): _UNOPENED,
    (UNOPENED, RECV_WRONG_METHOD): _UNOPENED,
    (UNOPENED, RECV_CONTENT_HEADER): _UNOPENED,
    (UNOPENED, RECV_CONTENT_BODY): _UNOPENED,
    (UNOPENED, RECV_HEARTBEAT): _HEARTBEAT,
    # All is discarded until the client has answered (§1.5.2.5). A close that has crossed ours is
    # answered.
    (CLOSING, RECV_CHANNEL_OPEN): _IGNORED,
    (CLOSING, RECV_CHANNEL_CLOSE): _IGNORED,
    (CLOSING, RECV_CHANNEL_CLOSE_OK): Transition(UNOPENED),
    (CLOSING, RECV_PUBLISH): _IGNORED,
    (CLOSING, RECV_METHOD): _IGNORED,
    (CLOSING, RECV_WRONG_METHOD): _IGNORED,
    (CLOSING, RECV_CONTENT_HEADER): _IGNORED,
    (CLOSING, RECV_CONTENT_BODY): _IGNORED,
    (CLOSING, RECV_HEARTBEAT): _HEARTBEAT,
    (OPEN, RECV_CHANNEL_OPEN): _OPEN_ALREADY,
    (OPEN, RECV_CHANNEL_CLOSE): Transition(UNOPENED, ChannelClosed),
    # The second answer to closes that have crossed.
    (OPEN, RECV_CHANNEL_CLOSE_OK): Transition(OPEN),
    (OPEN, RECV_PUBLISH): Transition(CONTENT_HEADER),
    (OPEN, RECV_METHOD): Transition(OPEN, MethodReceived),
    (OPEN, RECV_WRONG_METHOD): _FROM_CLIENT,
    (OPEN, RECV_CONTENT_HEADER): _NO_METHOD,
    (OPEN, RECV_CONTENT_BODY): _NO_HEADER,
    (OPEN, RECV_HEARTBEAT): _HEARTBEAT,
    (OPEN, SEND_CHANNEL_CLOSE): _CLOSES,
    (CONTENT_HEADER, RECV_CHANNEL_OPEN): _IN_CONTENT,
    (CONTENT_HEADER, RECV_CHANNEL_CLOSE): _IN_CONTENT,
    (CONTENT_HEADER, RECV_CHANNEL_CLOSE_OK): _IN_CONTENT,
    (CONTENT_HEADER, RECV_PUBLISH): _IN_CONTENT,
    (CONTENT_HEADER, RECV_METHOD): _IN_CONTENT,
    (CONTENT_HEADER, RECV_WRONG_METHOD): _IN_CONTENT,
    (CONTENT_HEADER, RECV_CONTENT_HEADER): Transition(CONTENT_BODY),
    (CONTENT_HEADER, RECV_CONTENT_BODY): _NO_HEADER,
    (CONTENT_HEADER, RECV_HEARTBEAT): _HEARTBEAT,
    (CONTENT_HEADER, SEND_CHANNEL_CLOSE): _CLOSES,
    (CONTENT_BODY, RECV_CHANNEL_OPEN): _IN_CONTENT,
    (CONTENT_BODY, RECV_CHANNEL_CLOSE): _IN_CONTENT,
    (CONTENT_BODY, RECV_CHANNEL_CLOSE_OK): _IN_CONTENT,
    (CONTENT_BODY, RECV_PUBLISH): _IN_CONTENT,
    (CONTENT_BODY, RECV_METHOD): _IN_CONTENT,
    (CONTENT_BODY, RECV_WRONG_METHOD): _IN_CONTENT,
    (CONTENT_BODY, RECV_CONTENT_HEADER): _NO_METHOD,
    (CONTENT_BODY, RECV_CONTENT_BODY): Transition(CONTENT_BODY),
    (CONTENT_BODY, RECV_HEARTBEAT): _HEARTBEAT,
    (CONTENT_BODY, COMPLETE): Transition(OPEN, ContentReceived),
    (CONTENT_BODY, SEND_CHANNEL_CLOSE): _CLOSES,
}

INPUTS: Final = 11
"""The number of `CHANNEL_INPUTS`."""

CHANNEL_TRANSITIONS: Final[list[Transition]] = [
    CHANNEL_TABLE.get((state, given), Transition(state))
    for state in range(len(CHANNEL_STATES))
    for given in range(len(CHANNEL_INPUTS))
]
"""`CHANNEL_TABLE` for compiled code, which makes no tuple for a look-up: the transition for an
input in a state is at ``state * INPUTS + input``. What is not in the table changes nothing."""
