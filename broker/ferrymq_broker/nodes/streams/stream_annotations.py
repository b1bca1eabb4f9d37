"""The place of a message in its stream, written into the message-annotations of its deliveries.

    x-opt-offset           long        its offset in the partition
    x-opt-sequence-number  long        the same number
    x-opt-enqueued-time    timestamp   when it was appended
    x-opt-partition        int         the partition

They are put before the bytes of the sender's annotations, which come before the bytes of the bare
message; neither is decoded. Only if the sender's annotations have names of this kind are they
decoded, to remove these names.

In a virtual host whose personality has `text_offsets`, the offset is a string; if it has an
`offset_annotation`, the offset is there too, as an ulong.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from ferrymq.partitioning import PARTITION
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_codec import codes
from ferrymq_codec.compound import descriptor_bytes
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.writer import symbol_bytes
from ferrymq_types.descriptors import DELIVERY_ANNOTATIONS, HEADER, MESSAGE_ANNOTATIONS
from ferrymq_types.messaging import DeliveryAnnotations, encode_delivery_annotations

OFFSET: Final = "x-opt-offset"
SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
ENQUEUED_TIME: Final = "x-opt-enqueued-time"
# A delivery-annotation of the first delivery after a gap.
SKIPPED: Final = "x-opt-skipped"

# The size in bytes of the four keys with their values, and their number of items in a map.
_OURS: Final = 107
_ITEMS: Final = 8
_OFFSET_KEY: Final = symbol_bytes(OFFSET) + bytes((codes.LONG,))
_OFFSET_TEXT_KEY: Final = symbol_bytes(OFFSET) + bytes((codes.STRING8,))
# The start of the annotations up to the value of the offset: without other annotations, and with
# some.
_SECTION: Final = descriptor_bytes(MESSAGE_ANNOTATIONS)
_SHORT: Final = _SECTION + bytes((codes.MAP8, 1 + _OURS, _ITEMS)) + _OFFSET_KEY
_LONG: Final = _SECTION + bytes((codes.MAP32,))
_SEQUENCE_KEY: Final = symbol_bytes(SEQUENCE_NUMBER) + bytes((codes.LONG,))
_TIME_KEY: Final = symbol_bytes(ENQUEUED_TIME) + bytes((codes.TIMESTAMP,))
_PARTITION_KEY: Final = symbol_bytes(PARTITION) + bytes((codes.INT,))
_SKIPPED_KEY: Final = symbol_bytes(SKIPPED) + bytes((codes.LONG,))
_GAP: Final = (
    descriptor_bytes(DELIVERY_ANNOTATIONS)
    + bytes((codes.MAP8, 1 + len(_SKIPPED_KEY) + 8, 2))
    + _SKIPPED_KEY
)

_NAMESPACE: Final = b"x-opt-"


def offset_entry(name: str) -> bytes:
    """Return the beginning of a further annotation with the offset, up to its value; empty without
    a name."""
    return symbol_bytes(name) + bytes((codes.ULONG,)) if name else b""


def partition_entry(number: i64) -> bytes:
    """Return the last of the four annotations, the same for all messages of a partition."""
    w = BytesWriter()
    w.write(_PARTITION_KEY)
    write_i32_be(w, i32(number))
    return w.getvalue()


def told_with(annotations: dict[str, object], skipped: i64) -> bytes:
    """Return delivery-annotations for one delivery, which also say how many records the reader has
    lost if it has lost any."""
    told: dict[str | int, object] = dict(annotations.items())
    if skipped > 0:
        told[SKIPPED] = int(skipped)
    w = BytesWriter()
    encode_delivery_annotations(w, DeliveryAnnotations(value=told))
    return w.getvalue()


def stamped(
    payload: bytes,
    offset: i64,
    time: i64,
    partition: bytes,
    skipped: i64,
    text: bool,
    also: bytes = b"",
) -> bytes:
    """Return the payload of a delivery of a message in AMQP's own format.

    `time` is in milliseconds since the epoch, `partition` comes from `partition_entry`. `skipped`
    is how many records the reader has lost before this one; it is written if it is not 0. A message
    whose annotations cannot be read is left unchanged. `text` is whether the offset is a string;
    `also` comes from `offset_entry`.
    """
    head, start = stamp(payload, offset, time, partition, skipped, text, also)
    return head + payload[start:] if start else head + payload


def stamp(
    payload: bytes,
    offset: i64,
    time: i64,
    partition: bytes,
    skipped: i64,
    text: bool,
    also: bytes = b"",
    told: bytes = b"",
) -> tuple[bytes, int]:
    """Return the first sections of such a payload, and where the rest of the message begins, which
    is sent unchanged. `told` comes from `told_with`, for a reader that is told more."""
    w = BytesWriter()
    start: i64 = 0
    ours = _own(offset, time, partition, text, also) if text or also else b""
    items: i64 = _ITEMS + 2 if also else _ITEMS
    try:
        code = section_at(payload, 0)
        if code == HEADER:
            start = section_end(payload, 0)
            code = section_at(payload, start)
            w.write(payload[:start])
        if told:
            w.write(told)
        elif skipped > 0:
            w.write(_GAP)
            write_i64_be(w, skipped)
        if code == MESSAGE_ANNOTATIONS:
            start = _merge(w, payload, start, offset, time, partition, ours, items)
        elif ours:
            w.write(_LONG)
            write_i32_be(w, i32(4 + len(ours)))
            write_i32_be(w, i32(items))
            w.write(ours)
        else:
            w.write(_SHORT)
            _write_values(w, offset, time, partition)
    except DecodeError:
        return b"", 0
    return w.getvalue(), start


def _own(offset: i64, time: i64, partition: bytes, text: bool, also: bytes) -> bytes:
    """Return the four keys with their values, and the further key for the offset if there is
    one."""
    w = BytesWriter()
    if text:
        digits = str(offset).encode()
        w.write(_OFFSET_TEXT_KEY)
        w.write(bytes((len(digits),)))
        w.write(digits)
    else:
        w.write(_OFFSET_KEY)
        write_i64_be(w, offset)
    _write_values(w, offset, time, partition, False)
    if also:
        w.write(also)
        write_i64_be(w, offset)
    return w.getvalue()


def _write_values(
    w: BytesWriter, offset: i64, time: i64, partition: bytes, first: bool = True
) -> None:
    """Write the values with the keys between them; without the `first` one, the offset, begin
    with the second key."""
    if first:
        write_i64_be(w, offset)
    w.write(_SEQUENCE_KEY)
    write_i64_be(w, offset)
    w.write(_TIME_KEY)
    write_i64_be(w, time)
    w.write(partition)


def _merge(
    w: BytesWriter,
    payload: bytes,
    start: i64,
    offset: i64,
    time: i64,
    partition: bytes,
    ours: bytes,
    items: i64,
) -> i64:
    """Write the broker's annotations, which have `items` items, and are `ours` if there are any
    bytes in it, followed by those of the sender at `start`; return the end of the latter."""
    reader = Reader(payload, start, len(payload))
    reader.read_descriptor("message-annotations")
    end: i64
    count: i64 = 0
    others = b""
    # A section with another encoding (null, or by mistake a list) has no annotations.
    code: i64 = payload[reader.pos] if reader.pos < len(payload) else 0
    if code == codes.MAP8 or code == codes.MAP32:
        count = reader.enter_map("message-annotations")
        end = reader.end
        if payload.find(_NAMESPACE, reader.pos, end) < 0:
            others = payload[reader.pos : end]
        else:
            kept = BytesWriter()
            count = _copy(kept, reader, count)
            others = kept.getvalue()
    else:
        reader.skip_value("message-annotations")
        end = reader.pos
    w.write(_LONG)
    size: i64 = len(ours) if ours else _OURS
    write_i32_be(w, i32(4 + size + len(others)))
    write_i32_be(w, i32(items + count))
    if ours:
        w.write(ours)
    else:
        w.write(_OFFSET_KEY)
        _write_values(w, offset, time, partition)
    w.write(others)
    return end


def _copy(w: BytesWriter, reader: Reader, count: i64) -> i64:
    """Copy all entries except those with the broker's names; return how many items were copied."""
    payload = reader.data
    items: i64 = 0
    i: i64 = 0
    while i < count:
        start = reader.pos
        code = reader.peek_code("message-annotations")
        key = ""
        if code == codes.SYMBOL8 or code == codes.SYMBOL32:
            key = reader.read_symbol("message-annotations")
        else:
            reader.skip_value("message-annotations")
        reader.skip_value("message-annotations")
        if key not in (OFFSET, SEQUENCE_NUMBER, ENQUEUED_TIME, PARTITION):
            w.write(payload[start : reader.pos])
            items += 2
        i += 2
    return items
