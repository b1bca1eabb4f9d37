"""The context of a trace in a message (W3C Trace Context; W3C Trace Context: AMQP protocol).

Senders put ``traceparent`` and ``tracestate`` into the application-properties, intermediaries into
the message-annotations, which count first. The two sections are searched, not decoded: this is
done for each message of a broker with tracing.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_codec import codes
from ferrymq_codec.errors import DecodeError
from ferrymq_types.descriptors import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
)

TRACEPARENT: Final = "traceparent"
_PARENT_KEY: Final = b"traceparent"
_STATE_KEY: Final = b"tracestate"
# The length of a traceparent of version 00 in characters; later versions begin with the same.
_PARENT_SIZE: Final = 55
# The longest tracestate that is passed on, in characters (W3C Trace Context §3.3.1.5).
_MOST_STATE: Final = 512
_HEX: Final = frozenset("0123456789abcdef")
_SHORT: Final = (codes.STRING8, codes.SYMBOL8, codes.BINARY8)
_LONG: Final = (codes.STRING32, codes.SYMBOL32, codes.BINARY32)


@final
class TraceContext:
    """The context that a message came with: its trace, of 32 hexadecimal digits, the span that is
    the parent of further spans, of 16, whether the trace is `sampled`, and the tracestate."""

    __slots__ = ("trace_id", "span_id", "sampled", "state")

    def __init__(self, trace_id: str, span_id: str, sampled: bool, state: str = "") -> None:
        self.trace_id: str = trace_id
        self.span_id: str = span_id
        self.sampled: bool = sampled
        self.state: str = state

    def traceparent(self) -> str:
        """Return the value of ``traceparent`` (W3C Trace Context §3.2)."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def trace_of(payload: bytes) -> TraceContext | None:
    """Return the context in an encoded message; None without a valid one."""
    start: i64 = -1
    pos: i64 = 0
    try:
        while True:
            code = section_at(payload, pos)
            if code < HEADER or code > APPLICATION_PROPERTIES:
                break
            if start < 0 and code in (MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES):
                start = pos
            pos = section_end(payload, pos)
    except DecodeError:
        return None
    if start < 0:
        return None
    at: i64 = payload.find(_PARENT_KEY, start, pos)
    while at >= 0:
        if _is_key(payload, at, len(_PARENT_KEY)):
            context = parse_traceparent(_text(payload, at + len(_PARENT_KEY), pos))
            if context is not None:
                if context.sampled:
                    context.state = _state(payload, start, pos)
                return context
        at = payload.find(_PARENT_KEY, at + 1, pos)
    return None


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the context that a traceparent says, None for a malformed one (W3C Trace Context
    §3.2)."""
    if len(text) < _PARENT_SIZE or text[2] != "-" or text[35] != "-" or text[52] != "-":
        return None
    version = text[:2]
    if version == "ff" or (version == "00" and len(text) != _PARENT_SIZE):
        return None
    if len(text) > _PARENT_SIZE and text[_PARENT_SIZE] != "-":
        return None
    trace_id, span_id, flags = text[3:35], text[36:52], text[53:55]
    if not _HEX.issuperset(version + trace_id + span_id + flags):
        return None
    if trace_id == "0" * 32 or span_id == "0" * 16:
        return None
    return TraceContext(trace_id, span_id, int(flags, 16) & 1 != 0)


def _is_key(payload: bytes, at: i64, size: i64) -> bool:
    """Return whether a string or symbol of this size begins at `at`."""
    if at >= 2 and i64(payload[at - 1]) == size and payload[at - 2] in _SHORT:
        return True
    return (
        at >= 5
        and i64(payload[at - 1]) == size
        and payload[at - 4 : at - 1] == b"\x00\x00\x00"
        and payload[at - 5] in _LONG
    )


def _text(payload: bytes, at: i64, end: i64) -> str:
    """Return the string, symbol or binary at `at`; empty for anything else."""
    size: i64
    if at + 2 > end:
        return ""
    if payload[at] in _SHORT:
        size = payload[at + 1]
        at += 2
    elif payload[at] in _LONG and at + 5 <= end:
        size = int.from_bytes(payload[at + 1 : at + 5], "big")
        at += 5
    else:
        return ""
    if size > _MOST_STATE or at + size > end:
        return ""
    return payload[at : at + size].decode("ascii", "replace")


def _state(payload: bytes, start: i64, end: i64) -> str:
    at: i64 = payload.find(_STATE_KEY, start, end)
    while at >= 0:
        if _is_key(payload, at, len(_STATE_KEY)):
            return _text(payload, at + len(_STATE_KEY), end)
        at = payload.find(_STATE_KEY, at + 1, end)
    return ""
