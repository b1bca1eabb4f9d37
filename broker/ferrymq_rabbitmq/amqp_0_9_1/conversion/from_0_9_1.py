"""A published message of AMQP 0-9-1 as the message that the broker's nodes keep.

    header | message-annotations | properties | application-properties | data

RabbitMQ documents the same conversion ("Inter-Protocol Property Conversions"). What AMQP 1.0 has no
place for is kept in annotations of our own, so that consumers of AMQP 0-9-1 get what was published;
docs/broker/amqp-0-9-1-messages.md has the tables.

Publishers send the same properties again and again, so what comes in front of the body is cached.
"""

from __future__ import annotations

from typing import Final, final
from uuid import UUID

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from ferrymq_broker.nodes.message import DEFAULT_PRIORITY, BrokerMessage
from ferrymq_codec import codes
from ferrymq_codec.compound import begin_composite, begin_map, end_list, end_map, write_descriptor
from ferrymq_codec.scalars import UByte
from ferrymq_codec.value_writer import write_value
from ferrymq_codec.writer import write_string, write_symbol, write_ubyte, write_uint
from ferrymq_codec_0_9_1 import letters
from ferrymq_codec_0_9_1.reader import FieldReader
from ferrymq_codec_0_9_1.tables import read_table, skip_table, write_table
from ferrymq_codec_0_9_1.timestamps import to_seconds
from ferrymq_rabbitmq.amqp_0_9_1.conversion.annotations import (
    BASIC_TYPE,
    BROKER_SETS,
    CARBON_COPY,
    EXCHANGE,
    EXTENSION,
    OTHER_HEADERS,
    OTHER_PROPERTIES,
    ROUTING_KEY,
    USED,
)
from ferrymq_rabbitmq.amqp_0_9_1.conversion.cache_budget import MAX_ENTRY, CacheBudget
from ferrymq_rabbitmq.amqp_0_9_1.conversion.field_values import FIELD, FieldValues
from ferrymq_types.descriptors import APPLICATION_PROPERTIES, DATA, HEADER, MESSAGE_ANNOTATIONS
from ferrymq_types.messaging import Properties, encode_properties
from ferrymq_types_0_9_1.basic import BasicProperties, read_basic_properties

_PERSISTENT: Final = 2
_TRANSIENT: Final = 1
_URN: Final = "urn:uuid:"
_MAX_TTL: Final = 0xFFFFFFFF
# The latest creation-time in seconds.
_MAX_SECONDS: Final = 0x7FFFFFFFFFFFFFFF // 1000

# Bits of the property flags.
_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_HEADERS: Final = 0x2000

# The beginning of the data section, by the number of bytes of the body.
_DATA_STARTS: Final = [
    bytes((codes.DESCRIBED, codes.SMALL_ULONG, DATA, codes.BINARY8, size)) for size in range(256)
]
_LONG_DATA: Final = bytes((codes.DESCRIBED, codes.SMALL_ULONG, DATA, codes.BINARY32))


@final
class PublishedHead:
    """The sections in front of the body, and what a `BrokerMessage` says about them."""

    __slots__ = ("durable", "header_end", "priority", "sections", "special", "ttl")

    def __init__(self, sections: bytes, header_end: i64) -> None:
        self.sections: bytes = sections
        self.header_end: i64 = header_end
        self.durable: bool = False
        self.priority: u8 = DEFAULT_PRIORITY
        self.ttl: i64 = -1
        self.special: bool = False


_heads: Final[dict[tuple[bytes, str, str], PublishedHead]] = {}
_budget: Final = CacheBudget()


def message_of(
    properties: bytes, body: bytes, exchange: str, routing_key: str, origin: int
) -> BrokerMessage:
    """Return the message with these encoded properties, which was published to `exchange`.

    `origin` is the number of the connection. Raises `DecodeError` if the properties are malformed.
    """
    key = (properties, exchange, routing_key)
    head = _heads.get(key)
    if head is None:
        head = _convert(properties, exchange, routing_key)
        size: i64 = len(properties) + len(head.sections) + len(exchange) + len(routing_key)
        if size <= MAX_ENTRY:
            if not _budget.fits(size):
                _heads.clear()
                _budget.reset()
            _budget.add(size)
            _heads[key] = head
    length: i64 = len(body)
    if length < 256:
        payload = b"".join((head.sections, _DATA_STARTS[length], body))
    else:
        payload = b"".join((head.sections, _LONG_DATA, int(length).to_bytes(4, "big"), body))
    message = BrokerMessage(payload, 0, head.header_end)
    message.durable = head.durable
    message.priority = head.priority
    message.ttl = head.ttl
    message.special = head.special
    message.origin = origin
    return message


def _convert(properties: bytes, exchange: str, routing_key: str) -> PublishedHead:
    start, end = _header_table(properties)
    if start < 0:
        fields = read_basic_properties(FieldReader(properties))
        return _encode(fields, b"", -1, 0, exchange, routing_key)
    # The headers are converted from their bytes: values of Python would have lost their types.
    flags: int = (properties[0] << 8 | properties[1]) & ~_HEADERS
    others = flags.to_bytes(2, "big") + properties[2 : start - 4] + properties[end:]
    fields = read_basic_properties(FieldReader(others))
    return _encode(fields, properties, start, end, exchange, routing_key)


def _header_table(properties: bytes) -> tuple[i64, i64]:
    """Return where the content of the headers begins and ends; −1 and 0 without headers."""
    r = FieldReader(properties)
    flags = r.read_short("basic.property-flags")
    if flags & _HEADERS == 0:
        return -1, 0
    if flags & _CONTENT_TYPE != 0:
        r.take(r.read_octet("basic.content-type"), "basic.content-type")
    if flags & _CONTENT_ENCODING != 0:
        r.take(r.read_octet("basic.content-encoding"), "basic.content-encoding")
    start = r.pos + 4
    skip_table(r, FIELD)
    return start, r.pos


def _encode(
    fields: BasicProperties, data: bytes, start: i64, end: i64, exchange: str, routing_key: str
) -> PublishedHead:
    """Return the sections for `fields` and for the headers from `start` to `end` in `data`; a
    negative `start` stands for a message without headers."""
    others: dict[object, object] = {}
    w = BytesWriter()
    ttl = _write_header(w, fields, others)
    header_end: i64 = len(w)

    write_descriptor(w, MESSAGE_ANNOTATIONS)
    mark = begin_map(w)
    count: i64 = 4
    write_symbol(w, EXCHANGE, EXCHANGE)
    write_string(w, exchange, EXCHANGE)
    write_symbol(w, ROUTING_KEY, ROUTING_KEY)
    write_string(w, routing_key, ROUTING_KEY)
    if fields.type is not None:
        write_symbol(w, BASIC_TYPE, BASIC_TYPE)
        write_string(w, fields.type, BASIC_TYPE)
        count += 2
    headers: _Headers | None = None
    special = False
    if start >= 0:
        at: i64 = len(w)
        headers = _Headers(w)
        if not headers.convert(data, start, end):
            # The codec keeps the last value of a name that stands twice.
            w.truncate(at)
            unique = BytesWriter()
            write_table(unique, read_table(FieldReader(data, start - 4, end), FIELD), FIELD)
            headers = _Headers(w)
            table = unique.getvalue()
            headers.convert(table, 4, len(table))
        count += headers.annotations
        special = headers.special
    properties = _properties(fields, others)
    if others:
        write_symbol(w, OTHER_PROPERTIES, OTHER_PROPERTIES)
        write_value(w, others, OTHER_PROPERTIES)
        count += 2
    end_map(w, mark, count)

    if properties is not None:
        encode_properties(w, properties)
    if headers is not None:
        headers.write_application(w)
    head = PublishedHead(w.getvalue(), header_end)
    head.durable = fields.delivery_mode == _PERSISTENT
    if fields.priority is not None:
        head.priority = u8(fields.priority)
    head.ttl = ttl
    head.special = special or ttl >= 0
    return head


def _write_header(w: BytesWriter, fields: BasicProperties, others: dict[object, object]) -> i64:
    """Append the header (AMQP 1.0 §3.2.1), nothing if all is default; return the ttl, −1 without.

    A property that is not set is null, so that it can be told from one with the default value.
    """
    ttl: i64 = -1
    expiration = fields.expiration
    if expiration is not None:
        if expiration.isascii() and expiration.isdigit() and len(expiration) <= 20:
            number = int(expiration)
            if number <= _MAX_TTL:
                ttl = number
        if ttl < 0:
            others["expiration"] = expiration
    mode = fields.delivery_mode
    priority = fields.priority
    said = mode in (_PERSISTENT, _TRANSIENT)
    if mode is not None and not said:
        others["delivery-mode"] = UByte(mode)
    count: i64 = 3 if ttl >= 0 else 2 if priority is not None else 1 if said else 0
    if count == 0:
        return ttl
    mark = begin_composite(w, HEADER)
    w.append((codes.TRUE if mode == _PERSISTENT else codes.FALSE) if said else codes.NULL)
    if count > 1:
        if priority is None:
            w.append(codes.NULL)
        else:
            write_ubyte(w, priority, "header.priority")
    if count > 2:
        write_uint(w, int(ttl), "header.ttl")
    end_list(w, mark, count)
    return ttl


def _properties(fields: BasicProperties, others: dict[object, object]) -> Properties | None:
    """Return the properties (AMQP 1.0 §3.2.4), None if all are null; add to `others` what they
    cannot hold."""
    content_type = fields.content_type
    if content_type is not None and not content_type.isascii():
        others["content-type"] = content_type
        content_type = None
    content_encoding = fields.content_encoding
    if content_encoding is not None and not content_encoding.isascii():
        others["content-encoding"] = content_encoding
        content_encoding = None
    creation_time: int | None = None
    timestamp = fields.timestamp
    if timestamp is not None:
        seconds = timestamp if isinstance(timestamp, int) else to_seconds(timestamp)
        if seconds <= _MAX_SECONDS:
            creation_time = seconds * 1000
        else:
            others["timestamp"] = str(int(seconds))
    if fields.reserved is not None:
        others["cluster-id"] = fields.reserved
    message_id = fields.message_id
    correlation_id = fields.correlation_id
    user_id = fields.user_id
    if (
        message_id is None
        and correlation_id is None
        and user_id is None
        and content_type is None
        and content_encoding is None
        and creation_time is None
        and fields.reply_to is None
        and fields.app_id is None
    ):
        return None
    return Properties(
        message_id=None if message_id is None else _id(message_id),
        user_id=None if user_id is None else user_id.encode(),
        reply_to=fields.reply_to,
        correlation_id=None if correlation_id is None else _id(correlation_id),
        content_type=content_type,
        content_encoding=content_encoding,
        creation_time=creation_time,
        group_id=fields.app_id,
    )


def _id(text: str) -> UUID | str:
    """Return the UUID that is written as a URN, else the text (AMQP 1.0 §3.2.11)."""
    if len(text) != 45 or not text.startswith(_URN):
        return text
    try:
        value = UUID(text[len(_URN) :])
    except ValueError:
        return text
    # Other ways to write the UUID would come back in this way.
    return value if _URN + str(value) == text else text


@final
class _Headers:
    """The headers of a message. Those that begin with ``x-`` become annotations, which are appended
    to `w`; the number of their keys and values is `annotations`. `special` is whether the broker
    may have to act upon one of them."""

    __slots__ = (
        "_application",
        "_application_mark",
        "_applications",
        "_other_mark",
        "_others",
        "_rest",
        "_w",
        "annotations",
        "special",
    )

    def __init__(self, w: BytesWriter) -> None:
        self._w = w
        self.annotations: i64 = 0
        self.special: bool = False
        self._application = BytesWriter()
        write_descriptor(self._application, APPLICATION_PROPERTIES)
        self._application_mark = begin_map(self._application)
        self._applications: i64 = 0
        # Headers for which there is no other place; made when the first one comes.
        self._rest: BytesWriter | None = None
        self._other_mark: i64 = 0
        self._others: i64 = 0

    def convert(self, data: bytes, start: i64, end: i64) -> bool:
        """Convert the content of a table; return false if a name stands twice in it. Raises
        `DecodeError`."""
        values = FieldValues(data, start, end)
        r = values.reader
        seen: set[str] = set()
        while r.pos < r.end:
            name = r.read_short_string(FIELD)
            if r.pos >= r.end:
                r.fail(FIELD, f"{name!r:.80} has no value")
            if name in seen:
                return False
            seen.add(name)
            w = self._place(name, i64(data[r.pos]))
            values.convert(w)
        if values.repeated:
            return False
        rest = self._rest
        if rest is not None:
            end_map(rest, self._other_mark, self._others)
            write_symbol(self._w, OTHER_HEADERS, OTHER_HEADERS)
            self._w.write(rest.getvalue())
            self.annotations += 2
        return True

    def _place(self, name: str, letter: i64) -> BytesWriter:
        """Return where a header belongs, after its name has been written there."""
        if name.startswith(EXTENSION):
            if name.isascii() and name not in USED and not name.startswith(BROKER_SETS):
                if name.startswith("x-opt-"):
                    self.special = True
                self.annotations += 2
                write_symbol(self._w, name, FIELD)
                return self._w
        elif letter != letters.TABLE and letter != letters.ARRAY:
            if name == "BCC":
                return BytesWriter()
            self._applications += 2
            write_string(self._application, name, FIELD)
            return self._application
        elif name == "CC":
            self.annotations += 2
            write_symbol(self._w, CARBON_COPY, FIELD)
            return self._w
        elif name == "BCC":
            # Consumers must not see it.
            return BytesWriter()
        rest = self._rest
        if rest is None:
            rest = self._rest = BytesWriter()
            self._other_mark = begin_map(rest)
        self._others += 2
        write_string(rest, name, FIELD)
        return rest

    def write_application(self, w: BytesWriter) -> None:
        """Append the application-properties (AMQP 1.0 §3.2.5); empty ones tell that there are
        headers."""
        if self._applications > 0 or self.annotations == 0:
            end_map(self._application, self._application_mark, self._applications)
            w.write(self._application.getvalue())
