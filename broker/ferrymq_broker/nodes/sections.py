"""The sections of an encoded message (AMQP 1.0 §3.2): where they are, and in what order.

The broker passes bytes on that other clients decode. It refuses messages that these clients could
not decode: with repeated sections, sections out of order, or annotations that are not a map with
symbols or ulongs as keys. The broker does not look at the content of the bare message, which
belongs to the sender.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from ferrymq_codec import codes
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.limits import SECTION_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Described
from ferrymq_types.descriptors import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from ferrymq_types.messaging import (
    DeliveryAnnotations,
    Footer,
    MessageAnnotations,
    decode_delivery_annotations,
    decode_footer,
    decode_message_annotations,
    encode_footer,
    encode_message_annotations,
)
from ferrymq_types.registry import typed
from ferrymq_types.transport import Error

_NOTHING: Final = -1
_OTHER: Final = -2

_SYMBOLS: Final[dict[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": AMQP_SEQUENCE,
    "amqp:amqp-value:*": AMQP_VALUE,
    "amqp:footer:map": FOOTER,
}

_NAMES: Final = (
    "header", "delivery-annotations", "message-annotations", "properties",
    "application-properties", "data", "amqp-sequence", "amqp-value", "footer",
)  # fmt: skip

# A map with more keys and values is left to the decoder, which finds repeated keys with a table.
_MOST_PLAIN: Final = 16
# The size of a value by its constructor, for constructors after which any content is valid; else 0.
_WIDTHS: Final = bytes(
    1 if code in (codes.NULL, codes.TRUE, codes.FALSE, codes.UINT0, codes.ULONG0)
    else 2 if codes.UBYTE <= code <= codes.SMALL_LONG
    else 3 if code in (codes.USHORT, codes.SHORT)
    else 5 if code in (codes.UINT, codes.INT, codes.FLOAT)
    else 9 if code in (codes.ULONG, codes.LONG, codes.DOUBLE, codes.TIMESTAMP)
    else 17 if code == codes.UUID
    else 0
    for code in range(256)
)  # fmt: skip

# The delivery-annotation with the reason why a message was rejected.
_REJECTED: Final = "rejected"


def section_at(payload: bytes, pos: i64) -> i64:
    """Return the descriptor code of the section at `pos`; a negative number at the end or for an
    unknown descriptor."""
    size: i64 = len(payload)
    if pos >= size:
        return _NOTHING
    if (
        pos + 3 <= size
        and payload[pos] == codes.DESCRIBED
        and payload[pos + 1] == codes.SMALL_ULONG
    ):
        return i64(payload[pos + 2])
    reader = Reader(payload, pos, size)
    code = reader.read_descriptor("message")
    if code == -1:
        known = _SYMBOLS.get(reader.symbol)
        return _OTHER if known is None else known
    return code


def section_end(payload: bytes, pos: i64) -> i64:
    """Return where the section that begins at `pos` ends. Raises `DecodeError` if it is cut off."""
    size: i64 = len(payload)
    end: i64
    if pos + 5 <= size and payload[pos + 1] == codes.SMALL_ULONG:
        code = i64(payload[pos + 3])
        if code == codes.LIST8 or code == codes.BINARY8 or code == codes.MAP8:
            end = pos + 5 + i64(payload[pos + 4])
            if end <= size:
                return end
        elif (
            code == codes.BINARY32 or code == codes.LIST32 or code == codes.MAP32
        ) and pos + 8 <= size:
            end = pos + 8 + (i64(read_i32_be(payload, pos + 4)) & 0xFFFFFFFF)
            if end <= size:
                return end
    reader = Reader(payload, pos, size)
    reader.read_descriptor("message")
    reader.skip_value("message")
    return reader.pos


def check_order(payload: bytes, pos: i64, latest: i64) -> i64:
    """Check the order of the sections from `pos` on; the section before has the code `latest`, 0 if
    there was none. Returns where the footer begins, −1 without one.

    Raises `DecodeError` for a section that is repeated or out of order. A null body may come before
    the properties, and a footer before the body, because some clients encode them so. The check
    ends at anything without a descriptor or an end.
    """
    size: i64 = len(payload)
    body: i64 = 0
    footer: i64 = -1
    problem = ""
    code: i64
    form: i64
    end: i64
    try:
        while pos < size:
            end = -1
            if (
                pos + 5 <= size
                and payload[pos] == codes.DESCRIBED
                and payload[pos + 1] == codes.SMALL_ULONG
            ):
                # This is true for nearly all sections; the check is done for every message.
                code = payload[pos + 2]
                form = payload[pos + 3]
                if form == codes.BINARY8 or form == codes.LIST8 or form == codes.MAP8:
                    end = pos + 5 + payload[pos + 4]
            else:
                code = section_at(payload, pos)
            if DATA <= code <= AMQP_VALUE:
                if body != 0 and (latest == FOOTER or code != body or code == AMQP_VALUE):
                    problem = _disorder(code, body if latest != FOOTER else FOOTER)
                    break
                body = code
                if code != AMQP_VALUE or pos + 4 > size or payload[pos + 3] != codes.NULL:
                    latest = code
            elif HEADER <= code <= FOOTER:
                if footer >= 0:
                    latest = FOOTER
                if code <= latest or code < PROPERTIES:
                    # The caller has passed the sections before the properties.
                    problem = _disorder(code, latest if code <= latest else body)
                    break
                latest = code
                if code == FOOTER:
                    footer = pos
            pos = section_end(payload, pos) if end < 0 or end > size else end
    except DecodeError:
        return footer
    if problem:
        raise DecodeError(pos, "message", problem)
    return footer


def _disorder(code: i64, latest: i64) -> str:
    name = _NAMES[code - HEADER]
    if latest < HEADER:
        return f"{name} after something that is not a section of a message"
    return f"second {name}" if code == latest else f"{name} after the {_NAMES[latest - HEADER]}"


def check_delivery_annotations(payload: bytes, pos: i64) -> None:
    """Raise `DecodeError` unless the delivery-annotations at `pos` are valid annotations, and
    `rejected` among them is an error (AMQP 1.0 §3.2.2)."""
    reader = _entered(payload, pos)
    annotations: DeliveryAnnotations = decode_delivery_annotations(reader)
    if _REJECTED in annotations.value:
        value = annotations.value[_REJECTED]
        if isinstance(value, Described):
            value = typed(value)
        if not isinstance(value, Error):
            reader.fail("delivery-annotations.rejected", "not an error")


def checked_annotations(payload: bytes, pos: i64) -> bytes | None:
    """Check the message-annotations or the footer at `pos` (AMQP 1.0 §3.2.3, §3.2.9).

    Returns the section with symbols as keys if its keys were strings, else None. Raises
    `DecodeError` if the section is not a map of annotations.
    """
    if _is_plain(payload, pos):
        return None
    reader = _entered(payload, pos)
    w = BytesWriter()
    if section_at(payload, pos) == FOOTER:
        footer: Footer = decode_footer(reader)
        if reader.converted:
            encode_footer(w, footer)
            return w.getvalue()
    else:
        annotations: MessageAnnotations = decode_message_annotations(reader)
        if reader.converted:
            encode_message_annotations(w, annotations)
            return w.getvalue()
    return None


def _is_plain(payload: bytes, pos: i64) -> bool:
    """Return whether the section at `pos` is certainly a valid map of annotations: few keys, all
    different symbols, and values that are valid whatever their content. This is checked for every
    message with annotations, so nothing is decoded; other maps are left to the decoder."""
    size: i64 = len(payload)
    if pos + 6 > size:
        return False
    if payload[pos + 1] != codes.SMALL_ULONG or payload[pos + 3] != codes.MAP8:
        return False
    end: i64 = pos + 5 + payload[pos + 4]
    count: i64 = payload[pos + 5]
    if end > size or count % 2 != 0 or count > _MOST_PLAIN:
        return False
    first = pos + 6
    at = first
    code: i64
    for _ in range(count >> 1):
        if at + 2 > end or payload[at] != codes.SYMBOL8:
            return False
        key = at
        at += 2 + i64(payload[at + 1])
        if at >= end or not _is_ascii(payload, key + 2, at) or _occurs(payload, first, key):
            return False
        code = payload[at]
        if code == codes.STRING8 or code == codes.SYMBOL8:
            if at + 2 > end:
                return False
            text = at + 2
            at = text + i64(payload[at + 1])
            if at > end or not _is_ascii(payload, text, at):
                return False
        elif code == codes.BINARY8:
            if at + 2 > end:
                return False
            at += 2 + i64(payload[at + 1])
        else:
            width = i64(_WIDTHS[code])
            if width == 0:
                return False
            at += width
    return at == end


def _is_ascii(payload: bytes, start: i64, end: i64) -> bool:
    at = start
    while at < end and payload[at] <= 0x7F:
        at += 1
    return at == end


def _occurs(payload: bytes, first: i64, key: i64) -> bool:
    """Return whether the key at `key` is repeated among the simple pairs from `first` on."""
    at = first
    length: i64 = payload[key + 1]
    code: i64
    while at < key:
        other: i64 = payload[at + 1]
        if other == length:
            same = True
            for i in range(2, 2 + length):
                if payload[at + i] != payload[key + i]:
                    same = False
                    break
            if same:
                return True
        at += 2 + other
        code = payload[at]
        at += 2 + i64(payload[at + 1]) if code >= codes.VARIABLE_1 else i64(_WIDTHS[code])
    return False


def _entered(payload: bytes, pos: i64) -> Reader:
    reader = Reader(payload, pos, len(payload))
    reader.budget = SECTION_ELEMENTS
    reader.read_descriptor("message")
    return reader
