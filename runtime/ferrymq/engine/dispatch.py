"""Dispatching frames: from the descriptor to the part of the connection that handles it.

Flow, transfer and disposition, nearly all of the traffic, are decoded here by their own decoders;
other frames use the decoder of the capability `frame`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq.engine.states import ConnectionState
from ferrymq.errors import RemoteProtocolError
from ferrymq_codec.reader import Reader
from ferrymq_types import descriptors
from ferrymq_types.messaging import Accepted
from ferrymq_types.transport import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Open,
    decode_disposition,
    decode_flow,
    decode_transfer,
)
from ferrymq_types.unions import CODES, decode_frame

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection

# The payload of a frame that is not the last of its message is not cut out of a read if it has at
# least so many bytes: the message copies it.
_REFERRED: Final = 8192
_ACCEPTED: Final = Accepted()
_NAMES: Final = ("begin", "attach", "flow", "transfer", "disposition", "detach", "end")


def dispatch(connection: Connection, reader: Reader, channel: i64) -> None:
    """Handle one AMQP frame; the reader stands at its body.

    Raises `RemoteProtocolError` for a frame that is out of place, and
    `DecodeError` for one that cannot be read.
    """
    body = reader.pos
    end = reader.end
    code = reader.read_descriptor("frame")
    if code == -1:
        code = CODES.get(reader.symbol, -2)
    if connection._receiving:
        if descriptors.FLOW <= code <= descriptors.DISPOSITION:
            session = connection.channels.get(channel, code)
            if not session.open_for_input:
                # After our end, only the peer's end matters (AMQP 1.0 §2.5.5).
                return
            if code == descriptors.TRANSFER:
                plain = connection.plain
                data = reader.data
                begin = plain.read(data, reader.pos, end)
                if begin >= 0 and session._take_plain(plain, data, begin, end):
                    return
                transfer = decode_transfer(reader)
                begin = reader.pos
                if transfer.more and end - begin >= _REFERRED:
                    session._on_transfer(transfer, memoryview(reader.data)[begin:end])
                else:
                    session._on_transfer(transfer, reader.data[begin:end])
                return
            if code == descriptors.DISPOSITION:
                accepted = connection.accepted
                if accepted.read(reader.data, reader.pos, end):
                    session.outgoing.on_disposition(
                        accepted.first, accepted.last, accepted.settled, _ACCEPTED
                    )
                    return
                disposition = decode_disposition(reader)
                _expect_end(reader)
                session._on_disposition(disposition)
                return
            flow = decode_flow(reader)
            _expect_end(reader)
            session._on_flow(flow)
            return
        if (
            code == descriptors.ATTACH or code == descriptors.DETACH
        ) and not connection.channels.get(channel, code).open_for_input:
            return
    elif code != descriptors.CLOSE:
        state = connection.state
        if state is ConnectionState.CLOSE_SENT or state is ConnectionState.DISCARDING:
            # The peer sent this before it saw our close: only its own close matters now.
            return
        if descriptors.BEGIN <= code <= descriptors.END:
            name = _NAMES[code - descriptors.BEGIN]
            raise RemoteProtocolError("amqp:illegal-state", f"{name} frame in state {state.name}")
    reader.pos = body
    frame = decode_frame(reader, "frame")
    _expect_end(reader)
    if isinstance(frame, Close):
        connection._on_close(frame, channel)
    elif isinstance(frame, Open):
        connection._on_open(frame, channel)
    elif isinstance(frame, Begin):
        connection._on_begin(frame, channel)
    else:
        session = connection.channels.get(channel, code)
        if isinstance(frame, End):
            session._on_end(frame.error)
        elif isinstance(frame, Attach):
            session._on_attach(frame, end - body)
        elif isinstance(frame, Detach):
            session._on_detach(frame)


def empty_frame(connection: Connection, channel: i64) -> None:
    """Handle an empty frame, which keeps the connection alive (AMQP 1.0 §2.4.5). Raises as
    `dispatch` does."""
    if connection._receiving:
        connection._check_channel(channel)
        return
    state = connection.state
    if state is not ConnectionState.CLOSE_SENT and state is not ConnectionState.DISCARDING:
        raise RemoteProtocolError("amqp:illegal-state", f"empty frame in state {state.name}")


def _expect_end(reader: Reader) -> None:
    if reader.pos != reader.end:
        raise RemoteProtocolError(
            "amqp:connection:framing-error",
            f"{reader.end - reader.pos} bytes after the performative of a frame",
        )
