"""Annotations of messages: those that only the service writes, and those of each delivery."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from ferrymq_broker.nodes.message import restore
from ferrymq_broker.nodes.message_draft import draft_of
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import REASON, SOURCE
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_codec import codes
from ferrymq_codec.compound import descriptor_bytes
from ferrymq_codec.errors import CodecError
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Timestamp
from ferrymq_codec.writer import symbol_bytes, write_string
from ferrymq_servicebus.clock_numbers import CLOCK_NUMBERS
from ferrymq_servicebus.dead_letters import DEAD_LETTER_NAMES, explained
from ferrymq_types.descriptors import HEADER, MESSAGE_ANNOTATIONS
from ferrymq_types.messaging import Header, decode_header

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.queue import Queue

ENQUEUED_TIME: Final = "x-opt-enqueued-time"
SEQUENCE: Final = "x-opt-sequence-number"
ENQUEUED_SEQUENCE: Final = "x-opt-enqueue-sequence-number"
OFFSET: Final = "x-opt-offset"
LOCKED_UNTIL: Final = "x-opt-locked-until"
STATE: Final = "x-opt-message-state"
SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"

# Those that a sender's message may not have, and those that the broker writes on dead letters.
_RESERVED: Final = frozenset(
    (ENQUEUED_TIME, SEQUENCE, ENQUEUED_SEQUENCE, OFFSET, LOCKED_UNTIL, STATE, *DEAD_LETTER_NAMES)
)
_NAMESPACE: Final = (b"x-opt-",)
# Those that a kept message may have, and that are written anew for each delivery: a topic that
# schedules a message gives it a number, a dead letter has that of its first queue.
_NUMBERED: Final = frozenset((SEQUENCE, ENQUEUED_SEQUENCE, SOURCE))
_NUMBERS: Final = tuple(name.encode() for name in sorted(_NUMBERED))
_REASON: Final = REASON.encode()
_SECTION: Final = descriptor_bytes(MESSAGE_ANNOTATIONS) + bytes((codes.MAP32,))
_ENQUEUED_TIME_KEY: Final = symbol_bytes(ENQUEUED_TIME) + bytes((codes.TIMESTAMP,))
_SEQUENCE_KEY: Final = symbol_bytes(SEQUENCE) + bytes((codes.LONG,))
_ENQUEUED_SEQUENCE_KEY: Final = symbol_bytes(ENQUEUED_SEQUENCE) + bytes((codes.LONG,))
_OFFSET_KEY: Final = symbol_bytes(OFFSET) + bytes((codes.LONG,))
_SOURCE_KEY: Final = symbol_bytes(SOURCE)
_LOCKED_UNTIL_KEY: Final = symbol_bytes(LOCKED_UNTIL) + bytes((codes.TIMESTAMP,))
_ACTIVE: Final = symbol_bytes(STATE) + bytes((codes.INT, 0, 0, 0, 0))
_MAPS: Final = (codes.MAP8, codes.MAP32)
# The header of a first delivery: the clients need the delivery-count, also if it is 0.
_HEADER: Final = descriptor_bytes(HEADER)
_NULL: Final = bytes((codes.NULL,))
_TRUE: Final = bytes((codes.TRUE,))
_FALSE: Final = bytes((codes.FALSE,))
_UINT: Final = bytes((codes.UINT,))
# The longest ttl that a header can have.
_LONGEST: Final = 0xFFFF_FFFF
_WHAT: Final = "message-annotations"


def admitted(message: BrokerMessage, now: i64, sent_on: bool) -> BrokerMessage:
    """Return a message as it is kept: without the annotations that only the service writes, with
    the time of its arrival in milliseconds since the epoch, and with a message-id.

    A scheduled message arrives when it is due. A message that is `sent_on` at once gets the number
    of its arrival here.
    """
    if message.opaque:
        return message
    scheduled = view_of(message).message_annotations.get(SCHEDULED_TIME)
    if isinstance(scheduled, int) and scheduled > now:
        now = scheduled
    payload = message.payload
    start = message.header_end
    pairs, count, end = _pairs_at(payload, start, _RESERVED, _NAMESPACE)
    w = BytesWriter()
    w.write(_ENQUEUED_TIME_KEY)
    write_i64_be(w, now)
    count += 2
    if sent_on:
        w.write(_ENQUEUED_SEQUENCE_KEY)
        write_i64_be(w, CLOCK_NUMBERS.next(int(now)))
        count += 2
    w.write(pairs)
    kept = restore(
        payload[:start] + _section(w.getvalue(), count) + payload[end:],
        message.format,
        message.special,
        message.origin,
    )
    return _with_properties(kept)


def _with_properties(message: BrokerMessage) -> BrokerMessage:
    """Return the message with a message-id, without which the client for JavaScript cannot settle,
    and without absolute-expiry-time: the ttl of the header counts alone."""
    found = view_of(message).properties
    expires = found is not None and found.absolute_expiry_time is not None
    if found is not None and found.message_id is not None and not expires:
        return message
    draft = draft_of(message)
    if draft is None:
        return message
    properties = draft.properties()
    properties.absolute_expiry_time = None
    if properties.message_id is None:
        properties.message_id = uuid4().hex
    return draft.message()


def _pairs_at(
    payload: bytes, start: i64, names: frozenset[str], marks: tuple[bytes, ...]
) -> tuple[bytes, i64, i64]:
    """Return the keys and values of the annotations at `start` without those of these names, the
    number of items, and the end of the section. A section without any of `marks` has none of
    them."""
    if section_at(payload, start) != MESSAGE_ANNOTATIONS:
        return b"", 0, start
    end = section_end(payload, start)
    reader = Reader(payload, start, end)
    reader.read_descriptor(_WHAT)
    if payload[reader.pos] not in _MAPS:
        return b"", 0, end
    count: i64 = reader.enter_map(_WHAT)
    if all(payload.find(mark, reader.pos, end) < 0 for mark in marks):
        return payload[reader.pos : end], count, end
    kept: list[bytes] = []
    for _ in range(count // 2):
        begin = reader.pos
        name = ""
        code = reader.peek_code(_WHAT)
        if code in (codes.SYMBOL8, codes.SYMBOL32):
            name = reader.read_symbol(_WHAT)
        elif code in (codes.STRING8, codes.STRING32):
            # The client for JavaScript writes names as strings.
            name = reader.read_string(_WHAT)
        else:
            reader.skip_value(_WHAT)
        reader.skip_value(_WHAT)
        if name not in names:
            kept.append(payload[begin : reader.pos])
    return b"".join(kept), 2 * len(kept), end


def _section(pairs: bytes, count: i64) -> bytes:
    w = BytesWriter()
    w.write(_SECTION)
    write_i32_be(w, i32(4 + len(pairs)))
    write_i32_be(w, i32(count))
    w.write(pairs)
    return w.getvalue()


def stamped(
    queue: Queue, entry: Entry, head: bytes, start: i64, named: Callable[[str], str]
) -> tuple[bytes, i64]:
    """Return the header and the annotations of a delivery, and where the rest of the message
    begins (`Personality.stamp`). `named` is `Personality.named`."""
    message = entry.message
    if message.opaque:
        return head, start
    header = _header_in(head) if head else message.header()
    letter = message
    if entry.expires != 0:
        header.ttl = _ttl_of(queue, entry)
        letter = _with_expiry(letter, queue.agenda.date_of(entry.expires))
    if is_dead_letter(message):
        letter = explained(letter)
    payload = letter.payload
    try:
        pairs, count, end = _pairs_at(payload, letter.header_end, _NUMBERED, _NUMBERS)
    except CodecError:
        return header_bytes(header), message.header_end
    w = BytesWriter()
    w.write(_ACTIVE)
    w.write(_SEQUENCE_KEY)
    write_i64_be(w, entry.sequence)
    number = entry.sequence
    if any(payload.find(mark, letter.header_end, end) >= 0 for mark in _NUMBERS):
        annotations = view_of(letter).message_annotations
        number = enqueued_sequence(annotations, number)
        source = annotations.get(SOURCE)
        if isinstance(source, str):
            w.write(_SOURCE_KEY)
            write_string(w, named(source), _WHAT)
            count += 2
    w.write(_ENQUEUED_SEQUENCE_KEY)
    write_i64_be(w, number)
    w.write(_OFFSET_KEY)
    write_i64_be(w, number)
    count += 8
    if entry.lock is not None:
        until = queue.locked_until(entry)
        if until != 0:
            w.write(_LOCKED_UNTIL_KEY)
            write_i64_be(w, until)
            count += 2
    w.write(pairs)
    stamp = header_bytes(header) + _section(w.getvalue(), count)
    if letter is message:
        return stamp, end
    # The properties of the delivery are others than those that are kept; the body is the same.
    return stamp + payload[end : view_of(letter).head_size], view_of(message).head_size


def enqueued_sequence(annotations: Mapping[str | int, object], number: i64) -> i64:
    """Return the number that a message had in its first queue; `number` if this is the first."""
    found = annotations.get(ENQUEUED_SEQUENCE)
    return i64(found) if isinstance(found, int) else number


def is_dead_letter(message: BrokerMessage) -> bool:
    """Return whether the broker has made the message a dead letter, in whatever queue it is now."""
    payload = message.payload
    start = message.header_end
    if section_at(payload, start) != MESSAGE_ANNOTATIONS:
        return False
    return payload.find(_REASON, start, section_end(payload, start)) >= 0


def _ttl_of(queue: Queue, entry: Entry) -> int | None:
    """Return the ttl of the message as it was sent, or else that of the queue; in milliseconds."""
    ttl: i64 = entry.message.ttl
    if ttl < 0:
        ttl = queue.policy.message_ttl
        history = queue.lifecycle.policy_history
        if history is not None:
            ttl = history.ttl(entry.sequence, ttl)
    return min(int(ttl), _LONGEST) if ttl > 0 else None


def _with_expiry(message: BrokerMessage, date: i64) -> BrokerMessage:
    """Return the message with the time at which it expires, in ms since the epoch."""
    draft = draft_of(message)
    if draft is None:
        return message
    draft.properties().absolute_expiry_time = Timestamp(date)
    return draft.message()


def _header_in(head: bytes) -> Header:
    reader = Reader(head)
    reader.read_descriptor(_WHAT)
    return decode_header(reader)


def header_bytes(header: Header) -> bytes:
    """Return an encoded header that has all its fields, the delivery-count too if it is 0."""
    w = BytesWriter()
    w.write(_TRUE if header.durable else _FALSE)
    w.write(bytes((codes.UBYTE, header.priority)))
    if header.ttl is None:
        w.write(_NULL)
    else:
        w.write(_UINT)
        write_i32_be(w, i32(_signed(header.ttl)))
    w.write(_TRUE if header.first_acquirer else _FALSE)
    w.write(_UINT)
    write_i32_be(w, i32(_signed(header.delivery_count)))
    fields = w.getvalue()
    return _HEADER + bytes((codes.LIST8, 1 + len(fields), 5)) + fields


def _signed(value: int) -> int:
    """Return the number that has the same 32 bits with a sign."""
    return value - (1 << 32) if value >= 1 << 31 else value
