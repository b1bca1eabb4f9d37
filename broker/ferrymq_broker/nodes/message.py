"""A message as the broker holds it: its encoded bytes (AMQP 1.0 §3.2).

    header | delivery-annotations | message-annotations | bare message

The bare message (properties, application-properties, body) belongs to the sender and is never
changed. The broker reads as little of the sections as it needs: the header when the message
arrives, the length of the properties, and whether annotations mention a schedule. `view` reads the
rest when a filter or a route needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i32, i64, u8

from ferrymq_broker.nodes.sections import (
    check_delivery_annotations,
    check_order,
    checked_annotations,
    section_at,
    section_end,
)
from ferrymq_codec import codes
from ferrymq_codec.reader import Reader
from ferrymq_types.descriptors import DELIVERY_ANNOTATIONS, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES
from ferrymq_types.messaging import (
    Header,
    MessageAnnotations,
    decode_header,
    decode_message_annotations,
    decode_properties,
    encode_header,
    encode_message_annotations,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message_view import MessageView

DEFAULT_PRIORITY: Final = 4

# The prefixes of annotations that the broker acts upon.
_OURS: Final = b"x-opt-"
# The most bytes of annotations that consumers can give a message.
MAX_ANNOTATIONS: Final = 65_536
# The number of fields of the properties up to absolute-expiry-time, the ninth.
_UP_TO_EXPIRY: Final = 9

# A cache of decoded headers by their bytes, with the last one apart; the largest size of the cache,
# and the longest header in it.
_headers: Final[dict[bytes, Header]] = {}
_HEADERS: Final = 256
_SHORT: Final = 64


@final
class _LatestHeader:
    """The header that was read last, and its bytes: most messages have the same header as the one
    before."""

    __slots__ = ("encoded", "header")

    def __init__(self) -> None:
        self.encoded: bytes = b""
        self.header: Header = Header()


_latest: Final = _LatestHeader()


@final
class BrokerMessage:
    """An immutable message. `payload` is what a first delivery sends, byte for byte.

    `header_end` is the length of the header section in bytes, 0 without one. `format` is the
    sender's message-format (AMQP 1.0 §2.8.11); a payload in a format other than AMQP's own is
    opaque and always sent unchanged. `priority` and `durable` are those of the header; `ttl` is in
    milliseconds, −1 without one.

    `special` is whether the message may have something that even a plain queue must look at: a ttl,
    an absolute-expiry-time or annotations of the broker; it is false for most messages. `shared` is
    whether several queues may have the message, so that it is stored apart from its entries.
    `origin` is the number of the connection that brought it, 0 if the broker made it. `holders` is
    the number of its entries. `view` is the cached result of `view_of`, as long as the message is
    among those that were looked at last.

    The widths and the order of the attributes are chosen so that a compiled message takes 96 bytes
    beside its payload.
    """

    __slots__ = (
        "payload",
        "format",
        "header_end",
        "ttl",
        "origin",
        "holders",
        "priority",
        "durable",
        "special",
        "shared",
        "view",
    )

    def __init__(self, payload: bytes, format: i64, header_end: i64) -> None:
        self.payload: bytes = payload
        self.format: i64 = format
        self.header_end: i64 = header_end
        self.ttl: i64 = -1
        self.origin: i64 = 0
        self.holders: i32 = 0
        self.priority: u8 = DEFAULT_PRIORITY
        self.durable: bool = False
        self.special: bool = False
        self.shared: bool = False
        self.view: MessageView | None = None

    @property
    def opaque(self) -> bool:
        """Return whether the payload is in a format other than AMQP's own."""
        return (self.format >> 8) != 0

    def starts_with_body(self) -> bool:
        """Return whether the body, or the application properties, follow the header: the message
        has neither annotations nor properties. A message in a foreign format has none either."""
        if self.opaque:
            return True
        code = section_at(self.payload, self.header_end)
        return code != MESSAGE_ANNOTATIONS and code != PROPERTIES

    def header(self) -> Header:
        """Return the header section, or one of defaults if the message has none (AMQP 1.0
        §3.2.1)."""
        if self.header_end == 0 or self.opaque:
            return Header()
        reader = Reader(self.payload, 0, self.header_end)
        reader.read_descriptor("message")
        return decode_header(reader)

    def to(self) -> str | None:
        """Return the address that the sender has put into properties.to (AMQP 1.0 §3.2.4).

        Raises `DecodeError` if the sections up to the properties are malformed.
        """
        if self.opaque:
            return None
        payload = self.payload
        pos = self.header_end
        code = section_at(payload, pos)
        if code == MESSAGE_ANNOTATIONS:
            pos = section_end(payload, pos)
            code = section_at(payload, pos)
        if code != PROPERTIES:
            return None
        reader = Reader(payload, pos, len(payload))
        reader.read_descriptor("message")
        return decode_properties(reader).to

    def redelivery(self, failures: i64) -> bytes:
        """Return the payload of a delivery that is not the first, after `failures` failed ones.

        Its header shows that: delivery-count is raised and first-acquirer is false (AMQP 1.0
        §3.2.1).
        """
        head = self.redelivery_header(failures)
        return replace_start(self.payload, self.header_end, head) if head else self.payload

    def redelivery_header(self, failures: i64) -> bytes:
        """Return the encoded header of such a delivery; empty if the payload stays as it is."""
        if self.opaque:
            return b""
        header = self.header()
        if failures == 0 and not header.first_acquirer:
            return b""
        count = header.delivery_count + failures
        header.delivery_count = count if count < 0xFFFFFFFF else 0xFFFFFFFF
        header.first_acquirer = False
        w = BytesWriter()
        encode_header(w, header)
        return w.getvalue()

    def copy(self) -> BrokerMessage:
        """Return another message with the same content; both have the same bytes."""
        return derive(self, self.payload, self.header_end)

    def annotated(self, annotations: dict[str, object]) -> BrokerMessage:
        """Return this message with `annotations` merged over its own (AMQP 1.0 §3.4.5).

        Returns the message unchanged if it would have more than `MAX_ANNOTATIONS` bytes of
        annotations: a message must not grow with every delivery. Raises `DecodeError` if its
        present annotations are malformed.
        """
        if self.opaque or not annotations:
            return self
        payload = self.payload
        pos = self.header_end
        merged: dict[str | int, object] = {}
        rest = pos
        if section_at(payload, pos) == MESSAGE_ANNOTATIONS:
            rest = section_end(payload, pos)
            reader = Reader(payload, pos, rest)
            reader.read_descriptor("message")
            merged.update(decode_message_annotations(reader).value)
        for key, value in annotations.items():
            merged[key] = value
        w = BytesWriter()
        w.write(payload[:pos])
        encode_message_annotations(w, MessageAnnotations(value=merged))
        size: i64 = len(w) - pos
        if size > MAX_ANNOTATIONS and size > rest - pos:
            return self
        w.write(payload[rest:])
        return derive(self, w.getvalue(), pos)


def replace_start(payload: bytes, start: i64, head: bytes) -> bytes:
    """Return `head` followed by the payload from `start` on, copied once."""
    return b"".join((head, memoryview(payload)[start:]))


def admit(payload: bytes, format: i64, ordered: bool = True) -> BrokerMessage:
    """Make a message of the bytes that a sender transferred.

    Its delivery-annotations were meant for this broker and are removed (AMQP 1.0 §3.2.2). String
    keys of annotations become symbols, as the specification demands. Raises `DecodeError` if the
    header or any annotations are malformed, or if sections are repeated or out of order. Payloads
    in other formats than AMQP's own are not checked; the order of sections is checked only if
    `ordered`.
    """
    if (format >> 8) != 0:
        return BrokerMessage(payload, format, 0)
    header_end: i64 = 0
    latest: i64 = 0
    code = section_at(payload, 0)
    if code == HEADER:
        latest = code
        header_end = section_end(payload, 0)
        code = section_at(payload, header_end)
    if code == DELIVERY_ANNOTATIONS:
        latest = code
        check_delivery_annotations(payload, header_end)
        payload = payload[:header_end] + payload[section_end(payload, header_end) :]
        code = section_at(payload, header_end)
    pos = header_end
    special = False
    if code == MESSAGE_ANNOTATIONS:
        latest = code
        section = checked_annotations(payload, pos)
        pos = section_end(payload, pos)
        if section is not None:
            payload = payload[:header_end] + section + payload[pos:]
            pos = header_end + len(section)
        special = payload.find(_OURS, header_end, pos) >= 0
        code = section_at(payload, pos)
    # No conditional expression: its value would be an object.
    footer: i64 = -1
    if ordered:
        footer = check_order(payload, pos, latest)
    if footer >= 0:
        section = checked_annotations(payload, footer)
        if section is not None:
            payload = payload[:footer] + section + payload[section_end(payload, footer) :]
    message = BrokerMessage(payload, format, header_end)
    if header_end != 0:
        _read_header(message)
    if special or (code == PROPERTIES and _field_count(payload, pos) >= _UP_TO_EXPIRY):
        message.special = True
    return message


def restore(payload: bytes, format: i64, special: bool, origin: i64) -> BrokerMessage:
    """Return a message that was admitted before, as it was kept. Raises `DecodeError`."""
    header_end: i64 = 0
    if (format >> 8) == 0 and section_at(payload, 0) == HEADER:
        header_end = section_end(payload, 0)
    message = BrokerMessage(payload, format, header_end)
    if header_end != 0:
        _read_header(message)
    message.special = special
    message.origin = origin
    return message


def derive(message: BrokerMessage, payload: bytes, header_end: i64) -> BrokerMessage:
    """Return another form of the same message, with other bytes before the bare message."""
    other = BrokerMessage(payload, message.format, header_end)
    other.durable = message.durable
    other.priority = message.priority
    other.ttl = message.ttl
    other.special = message.special
    other.origin = message.origin
    return other


def _read_header(message: BrokerMessage) -> None:
    """Read durable, priority and ttl from the header."""
    latest = _latest
    size: i64 = len(latest.encoded)
    if size == message.header_end and message.payload.startswith(latest.encoded):
        header = latest.header
    else:
        header = _cached_header(message)
    message.durable = header.durable
    message.priority = header.priority
    ttl = header.ttl
    if ttl is not None:
        message.ttl = ttl
        message.special = True


def _cached_header(message: BrokerMessage) -> Header:
    """Return the header of a message from the cache; put it there if it is short."""
    encoded = message.payload[: message.header_end]
    known = _headers.get(encoded)
    if known is None:
        known = message.header()
        if len(encoded) > _SHORT:
            return known
        if len(_headers) >= _HEADERS:
            _headers.clear()
        _headers[encoded] = known
    _latest.encoded = encoded
    _latest.header = known
    return known


def _field_count(payload: bytes, pos: i64) -> i64:
    """Return the number of fields of the properties at `pos`; a high number if that is not easily
    seen."""
    if pos + 5 < len(payload) and payload[pos + 1] == codes.SMALL_ULONG:
        code = payload[pos + 3]
        if code == codes.LIST8:
            return i64(payload[pos + 5])
        if code == codes.LIST0:
            return 0
    return _UP_TO_EXPIRY
