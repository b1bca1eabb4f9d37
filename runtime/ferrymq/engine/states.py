"""The state machines of AMQP as literal tables.

Each table maps ``(state, input)`` to the next state; a pair that is not in it
is a protocol error of the endpoint that made the input. States have the names of the
specification. The modules `connection`, `session` and `link` hold the side
effects; only these tables decide which inputs are allowed in a state.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ConnectionState(Enum):
    """AMQP 1.0 §2.4.6. `CLOSE_PIPE`, `OC_PIPE` and `OPEN_PIPE` arise from pipelined opens."""

    START = auto()
    HDR_RCVD = auto()
    HDR_SENT = auto()
    HDR_EXCH = auto()
    OPEN_PIPE = auto()
    OC_PIPE = auto()
    OPEN_RCVD = auto()
    OPEN_SENT = auto()
    CLOSE_PIPE = auto()
    OPENED = auto()
    CLOSE_RCVD = auto()
    CLOSE_SENT = auto()
    DISCARDING = auto()
    END = auto()


class ConnectionInput(Enum):
    """Inputs of the connection's state machine: a header, open or close, sent or received.

    The inputs with OTHER_HEADER are headers that differ from the header in the other direction;
    no later data can be understood.
    """

    SEND_HEADER = auto()
    RECV_HEADER = auto()
    SEND_OTHER_HEADER = auto()
    RECV_OTHER_HEADER = auto()
    SEND_OPEN = auto()
    RECV_OPEN = auto()
    SEND_CLOSE = auto()
    SEND_CLOSE_ERROR = auto()
    RECV_CLOSE = auto()


CONNECTION_TABLE: Final[dict[tuple[ConnectionState, ConnectionInput], ConnectionState]] = {
    (ConnectionState.START, ConnectionInput.RECV_HEADER): ConnectionState.HDR_RCVD,
    (ConnectionState.START, ConnectionInput.SEND_HEADER): ConnectionState.HDR_SENT,
    (ConnectionState.HDR_RCVD, ConnectionInput.SEND_HEADER): ConnectionState.HDR_EXCH,
    (ConnectionState.HDR_RCVD, ConnectionInput.SEND_OTHER_HEADER): ConnectionState.END,
    (ConnectionState.HDR_SENT, ConnectionInput.RECV_HEADER): ConnectionState.HDR_EXCH,
    (ConnectionState.HDR_SENT, ConnectionInput.RECV_OTHER_HEADER): ConnectionState.END,
    (ConnectionState.HDR_SENT, ConnectionInput.SEND_OPEN): ConnectionState.OPEN_PIPE,
    (ConnectionState.HDR_EXCH, ConnectionInput.SEND_OPEN): ConnectionState.OPEN_SENT,
    (ConnectionState.HDR_EXCH, ConnectionInput.RECV_OPEN): ConnectionState.OPEN_RCVD,
    (ConnectionState.OPEN_PIPE, ConnectionInput.RECV_HEADER): ConnectionState.OPEN_SENT,
    (ConnectionState.OPEN_PIPE, ConnectionInput.RECV_OTHER_HEADER): ConnectionState.END,
    (ConnectionState.OPEN_PIPE, ConnectionInput.SEND_CLOSE): ConnectionState.OC_PIPE,
    (ConnectionState.OPEN_PIPE, ConnectionInput.SEND_CLOSE_ERROR): ConnectionState.OC_PIPE,
    (ConnectionState.OC_PIPE, ConnectionInput.RECV_HEADER): ConnectionState.CLOSE_PIPE,
    (ConnectionState.OC_PIPE, ConnectionInput.RECV_OTHER_HEADER): ConnectionState.END,
    (ConnectionState.OPEN_RCVD, ConnectionInput.SEND_OPEN): ConnectionState.OPENED,
    # A peer may send its close directly after its open, before we have answered the open. The state
    # does not change, because we must still send both answers.
    (ConnectionState.OPEN_RCVD, ConnectionInput.RECV_CLOSE): ConnectionState.OPEN_RCVD,
    (ConnectionState.OPEN_SENT, ConnectionInput.RECV_OPEN): ConnectionState.OPENED,
    (ConnectionState.OPEN_SENT, ConnectionInput.SEND_CLOSE): ConnectionState.CLOSE_PIPE,
    (ConnectionState.OPEN_SENT, ConnectionInput.SEND_CLOSE_ERROR): ConnectionState.CLOSE_PIPE,
    (ConnectionState.CLOSE_PIPE, ConnectionInput.RECV_OPEN): ConnectionState.CLOSE_SENT,
    (ConnectionState.OPENED, ConnectionInput.SEND_CLOSE): ConnectionState.CLOSE_SENT,
    (ConnectionState.OPENED, ConnectionInput.SEND_CLOSE_ERROR): ConnectionState.DISCARDING,
    (ConnectionState.OPENED, ConnectionInput.RECV_CLOSE): ConnectionState.CLOSE_RCVD,
    (ConnectionState.CLOSE_RCVD, ConnectionInput.SEND_CLOSE): ConnectionState.END,
    (ConnectionState.CLOSE_RCVD, ConnectionInput.SEND_CLOSE_ERROR): ConnectionState.END,
    (ConnectionState.CLOSE_SENT, ConnectionInput.RECV_CLOSE): ConnectionState.END,
    (ConnectionState.DISCARDING, ConnectionInput.RECV_CLOSE): ConnectionState.END,
}

# The states in which one side has sent a close, so that the end of the transport is expected.
CLOSE_SEEN: Final = (
    ConnectionState.CLOSE_SENT,
    ConnectionState.DISCARDING,
    ConnectionState.CLOSE_RCVD,
)
# The states in which we have sent a close: no frame may follow it.
CLOSING: Final = (
    ConnectionState.OC_PIPE,
    ConnectionState.CLOSE_PIPE,
    ConnectionState.CLOSE_SENT,
    ConnectionState.DISCARDING,
)


class SessionState(Enum):
    """AMQP 1.0 §2.5.5."""

    UNMAPPED = auto()
    BEGIN_SENT = auto()
    BEGIN_RCVD = auto()
    MAPPED = auto()
    END_SENT = auto()
    END_RCVD = auto()
    DISCARDING = auto()


class SessionInput(Enum):
    """Inputs of the session's state machine: begin or end, sent or received."""

    SEND_BEGIN = auto()
    RECV_BEGIN = auto()
    SEND_END = auto()
    SEND_END_ERROR = auto()
    RECV_END = auto()


SESSION_TABLE: Final[dict[tuple[SessionState, SessionInput], SessionState]] = {
    (SessionState.UNMAPPED, SessionInput.SEND_BEGIN): SessionState.BEGIN_SENT,
    (SessionState.UNMAPPED, SessionInput.RECV_BEGIN): SessionState.BEGIN_RCVD,
    (SessionState.BEGIN_SENT, SessionInput.RECV_BEGIN): SessionState.MAPPED,
    # The end may be pipelined after the begin: by us, before the peer has answered ...
    (SessionState.BEGIN_SENT, SessionInput.SEND_END): SessionState.END_SENT,
    (SessionState.BEGIN_SENT, SessionInput.SEND_END_ERROR): SessionState.DISCARDING,
    (SessionState.END_SENT, SessionInput.RECV_BEGIN): SessionState.END_SENT,
    (SessionState.DISCARDING, SessionInput.RECV_BEGIN): SessionState.DISCARDING,
    (SessionState.BEGIN_RCVD, SessionInput.SEND_BEGIN): SessionState.MAPPED,
    # ... and by the peer, to whom both answers must then be sent.
    (SessionState.BEGIN_RCVD, SessionInput.RECV_END): SessionState.BEGIN_RCVD,
    (SessionState.MAPPED, SessionInput.SEND_END): SessionState.END_SENT,
    (SessionState.MAPPED, SessionInput.SEND_END_ERROR): SessionState.DISCARDING,
    (SessionState.MAPPED, SessionInput.RECV_END): SessionState.END_RCVD,
    (SessionState.END_SENT, SessionInput.RECV_END): SessionState.UNMAPPED,
    (SessionState.DISCARDING, SessionInput.RECV_END): SessionState.UNMAPPED,
    (SessionState.END_RCVD, SessionInput.SEND_END): SessionState.UNMAPPED,
    (SessionState.END_RCVD, SessionInput.SEND_END_ERROR): SessionState.UNMAPPED,
}


class LinkState(Enum):
    """The halves of a link seen together (AMQP 1.0 §2.6.3–2.6.6)."""

    DETACHED = auto()
    ATTACH_SENT = auto()
    ATTACH_RCVD = auto()
    ATTACHED = auto()
    DETACH_SENT = auto()
    DETACH_RCVD = auto()


class LinkInput(Enum):
    """Inputs of the link's state machine: attach or detach, sent or received."""

    SEND_ATTACH = auto()
    RECV_ATTACH = auto()
    SEND_DETACH = auto()
    RECV_DETACH = auto()


LINK_TABLE: Final[dict[tuple[LinkState, LinkInput], LinkState]] = {
    (LinkState.DETACHED, LinkInput.SEND_ATTACH): LinkState.ATTACH_SENT,
    (LinkState.DETACHED, LinkInput.RECV_ATTACH): LinkState.ATTACH_RCVD,
    (LinkState.ATTACH_SENT, LinkInput.RECV_ATTACH): LinkState.ATTACHED,
    (LinkState.ATTACH_RCVD, LinkInput.SEND_ATTACH): LinkState.ATTACHED,
    (LinkState.ATTACH_SENT, LinkInput.SEND_DETACH): LinkState.DETACH_SENT,
    # A peer may attach and detach before we have answered the attach. The state does not change,
    # because we must still send both answers.
    (LinkState.ATTACH_RCVD, LinkInput.RECV_DETACH): LinkState.ATTACH_RCVD,
    (LinkState.ATTACHED, LinkInput.SEND_DETACH): LinkState.DETACH_SENT,
    (LinkState.ATTACHED, LinkInput.RECV_DETACH): LinkState.DETACH_RCVD,
    # We detached a link whose attach the peer has not answered yet.
    (LinkState.DETACH_SENT, LinkInput.RECV_ATTACH): LinkState.DETACH_SENT,
    (LinkState.DETACH_SENT, LinkInput.RECV_DETACH): LinkState.DETACHED,
    (LinkState.DETACH_RCVD, LinkInput.SEND_DETACH): LinkState.DETACHED,
}
