"""A message as the broker holds it: its encoded bytes (AMQP 1.0 §3.2).

    header | delivery-annotations | message-annotations | bare message

The bare message (properties, application-properties, body) is the sender's and is never
touched. Of all sections the broker reads as little as it needs: the header when the message
arrives, the length of the properties, whether annotations mention a schedule; `facts` reads the
rest for those who filter and route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i32, i64, u8

from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
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
    from ferrymq_broker.nodes.facts import Facts

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73

DEFAULT_PRIORITY: Final = 4

_NOTHING: Final = -1
_OTHER: Final = -2
# How annotations that the broker acts upon begin.
_OURS: Final = b"x-opt-"
# How many bytes of annotations a consumer may make a message have.
MAX_ANNOTATIONS: Final = 65_536
# Fields of the properties up to absolute-expiry-time, the ninth.
_UP_TO_EXPIRY: Final = 9

# Decoded headers by their bytes; how many, and how long those bytes may be.
_headers: Final[dict[bytes, Header]] = {}
_HEADERS: Final = 256
_SHORT: Final = 64

_SYMBOLS: Final[dict[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
}


@final
class Message:
    """An immutable message. `payload` is what a first delivery sends, byte for byte.

    `header_end` is the length of the header section in bytes, 0 without one. `format` is the
    sender's message-format (AMQP 1.0 §2.8.11); the payload of a format other than AMQP's own is
    opaque and always sent unchanged. `priority` and `durable` are those of the header, `ttl` is in
    milliseconds, −1 without one.

    `special` is whether there may be anything a plain queue would have to look at: a ttl, an
    absolute-expiry-time or annotations of ours; false for most. `shared` is whether several queues
    may have it, so that it is stored apart from its entries. `origin` is the number of the
    connection that brought it, 0 for the broker's own. `holders` is how many entries it has.
    `facts` are what `facts_of` has read out of it, while it is among those asked about last.

    The attributes are so wide, and in such an order, that a compiled message takes 96 bytes beside
    its payload.
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
        "facts",
    )

    def __init__(self, payload: bytes, format: i64, header_end: i64) -> None:
        self.payload = payload
        self.format: i64 = format
        self.header_end: i64 = header_end
        self.ttl: i64 = -1
        self.origin: i64 = 0
        self.holders: i32 = 0
        self.priority: u8 = DEFAULT_PRIORITY
        self.durable = False
        self.special = False
        self.shared = False
        self.facts: Facts | None = None

    @property
    def opaque(self) -> bool:
        """Whether the payload is in a format that is not the specification's."""
        return (self.format >> 8) != 0

    def header(self) -> Header:
        """The header section, or one of defaults if the message has none (AMQP 1.0 §3.2.1)."""
        if self.header_end == 0 or self.opaque:
            return Header()
        reader = Reader(self.payload, 0, self.header_end)
        reader.read_descriptor("message")
        return decode_header(reader)

    def to(self) -> str | None:
        """Where the sender wants the message to go: properties.to (AMQP 1.0 §3.2.4).

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
        """The payload of a delivery that is not the first, after `failures` failed ones.

        The header says so: delivery-count is raised and first-acquirer is false
        (AMQP 1.0 §3.2.1).
        """
        head = self.redelivery_header(failures)
        return replace_start(self.payload, self.header_end, head) if head else self.payload

    def redelivery_header(self, failures: i64) -> bytes:
        """The encoded header of such a delivery; nothing if the payload stays as it is."""
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

    def annotated(self, annotations: dict[str, object]) -> Message:
        """This message with `annotations` put over its message-annotations (AMQP 1.0 §3.4.5).

        Itself if it would have more than `MAX_ANNOTATIONS` bytes of them: a message must not grow
        with every delivery. Raises `DecodeError` if the annotations it has are malformed.
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
    """`head` and then the payload from `start` on, copied once."""
    return b"".join((head, memoryview(payload)[start:]))


def admit(payload: bytes, format: i64) -> Message:
    """Take in what a sender transferred.

    Its delivery-annotations were meant for us and end here (AMQP 1.0 §3.2.2). Raises `DecodeError`
    if the header or any annotations are malformed, or if a header or delivery-annotations follow
    the delivery-annotations: what is left would be taken for ours, and nobody has looked at it.
    """
    if (format >> 8) != 0:
        return Message(payload, format, 0)
    header_end: i64 = 0
    code = section_at(payload, 0)
    if code == HEADER:
        header_end = section_end(payload, 0)
        code = section_at(payload, header_end)
    if code == DELIVERY_ANNOTATIONS:
        payload = payload[:header_end] + payload[section_end(payload, header_end) :]
        code = section_at(payload, header_end)
        if code in (DELIVERY_ANNOTATIONS, HEADER):
            again = "header" if code == HEADER else "delivery-annotations"
            raise DecodeError(header_end, "message", f"{again} behind the delivery-annotations")
    message = Message(payload, format, header_end)
    if header_end != 0:
        _read_header(message)
    pos = header_end
    if code == MESSAGE_ANNOTATIONS:
        pos = section_end(payload, header_end)
        if payload.find(_OURS, header_end, pos) >= 0:
            message.special = True
        code = section_at(payload, pos)
    if code == PROPERTIES and not message.special and _field_count(payload, pos) >= _UP_TO_EXPIRY:
        message.special = True
    return message


def restore(payload: bytes, format: i64, special: bool, origin: i64) -> Message:
    """A message that was taken in before, as it was kept. Raises `DecodeError`."""
    header_end: i64 = 0
    if (format >> 8) == 0 and section_at(payload, 0) == HEADER:
        header_end = section_end(payload, 0)
    message = Message(payload, format, header_end)
    if header_end != 0:
        _read_header(message)
    message.special = special
    message.origin = origin
    return message


def derive(message: Message, payload: bytes, header_end: i64) -> Message:
    """Another form of the same message, with other bytes before the bare message."""
    other = Message(payload, message.format, header_end)
    other.durable = message.durable
    other.priority = message.priority
    other.ttl = message.ttl
    other.special = message.special
    other.origin = message.origin
    return other


def _read_header(message: Message) -> None:
    """Take durable, priority and ttl out of the header. Few headers differ from each other."""
    encoded = message.payload[: message.header_end]
    known = _headers.get(encoded)
    if known is None:
        known = message.header()
        if len(_headers) >= _HEADERS:
            _headers.clear()
        if len(encoded) <= _SHORT:
            _headers[encoded] = known
    message.durable = known.durable
    message.priority = known.priority
    ttl = known.ttl
    if ttl is not None:
        message.ttl = ttl
        message.special = True


def _field_count(payload: bytes, pos: i64) -> i64:
    """How many fields the properties at `pos` have; many if that takes a closer look."""
    if pos + 5 < len(payload) and payload[pos + 1] == 0x53:
        code = payload[pos + 3]
        if code == 0xC0:
            return i64(payload[pos + 5])
        if code == 0x45:
            return 0
    return _UP_TO_EXPIRY


def section_at(payload: bytes, pos: i64) -> i64:
    """The descriptor code of the section at `pos`; negative at the end or for an unknown one."""
    size: i64 = len(payload)
    if pos >= size:
        return _NOTHING
    if pos + 3 <= size and payload[pos] == 0 and payload[pos + 1] == 0x53:
        return i64(payload[pos + 2])
    reader = Reader(payload, pos, size)
    code = reader.read_descriptor("message")
    if code == -1:
        known = _SYMBOLS.get(reader.symbol)
        return _OTHER if known is None else known
    return code


def section_end(payload: bytes, pos: i64) -> i64:
    """Where the section that begins at `pos` ends. Raises `DecodeError` if it is cut off."""
    size: i64 = len(payload)
    if pos + 5 <= size and payload[pos + 1] == 0x53 and payload[pos + 3] == 0xC0:
        end: i64 = pos + 5 + i64(payload[pos + 4])
        if end <= size:
            return end
    reader = Reader(payload, pos, size)
    reader.read_descriptor("message")
    reader.skip_value("message")
    return reader.pos
