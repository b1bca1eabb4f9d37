"""A message of the broker as a content of AMQP 0-9-1: encoded properties and a body.

RabbitMQ documents the same conversion ("Inter-Protocol Property Conversions"). A message that was
published over AMQP 0-9-1 comes back with the properties that it had.
docs/broker/amqp-0-9-1-messages.md has the tables.

Most messages of a queue have the same sections in front of the body, so their conversion is cached.
"""

from __future__ import annotations

from typing import Final, final
from uuid import UUID

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_codec import codes
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.limits import SECTION_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_codec.value_reader import read_value
from ferrymq_codec_0_9_1 import letters
from ferrymq_codec_0_9_1.timestamps import EpochSeconds
from ferrymq_codec_0_9_1.writer import write_u16, write_u32
from ferrymq_rabbitmq.amqp_0_9_1.conversion.annotations import (
    BASIC_TYPE,
    BROKER_SETS,
    CARBON_COPY,
    EXCHANGE,
    EXTENSION,
    OTHER_HEADERS,
    OTHER_PROPERTIES,
    ROUTING_KEY,
)
from ferrymq_rabbitmq.amqp_0_9_1.conversion.cache_budget import MAX_ENTRY, CacheBudget
from ferrymq_rabbitmq.amqp_0_9_1.conversion.field_values import is_utf8
from ferrymq_rabbitmq.amqp_0_9_1.conversion.table_values import (
    take_text,
    write_field_value,
    write_sized,
)
from ferrymq_types.descriptors import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from ferrymq_types.messaging import decode_properties
from ferrymq_types_0_9_1.basic import BasicProperties, encode_basic_properties

DELIVERY_COUNT: Final = "x-delivery-count"
# The property `type` of a message whose body is sections of AMQP 1.0.
ENCODED_BODY: Final = "amqp-1.0"

_FIELD: Final = "message"
_NO_PROPERTIES: Final = b"\x00\x00"
_MAX_SHORT: Final = 255
_HEADERS: Final = 0x2000
_LETTER_LONG: Final = letters.INT64


@final
class Content:
    """A message for a consumer: its head and its body."""

    __slots__ = ("body", "head")

    def __init__(self, head: ConvertedHead, body: bytes) -> None:
        self.head: ConvertedHead = head
        self.body: bytes = body

    @property
    def properties(self) -> bytes:
        """The encoded properties."""
        return self.head.properties

    @property
    def exchange(self) -> str:
        """The exchange to which the message was published."""
        return self.head.exchange

    @property
    def routing_key(self) -> str:
        """The routing key with which the message was published."""
        return self.head.routing_key


@final
class ConvertedHead:
    """The properties for the sections in front of a body. `routed` is whether annotations say the
    exchange and the routing key; `place` is both of them as two short strings."""

    __slots__ = ("exchange", "place", "properties", "routed", "routing_key")

    def __init__(self, properties: bytes, routed: bool, exchange: str, routing_key: str) -> None:
        self.properties: bytes = properties
        self.routed: bool = routed
        self.exchange: str = exchange
        self.routing_key: str = routing_key
        self.place: bytes = short_string(exchange) + short_string(routing_key)


_heads: Final[dict[bytes, ConvertedHead]] = {}
_budget: Final = CacheBudget()


def content_of(message: BrokerMessage, address: str, failures: int) -> Content:
    """Return the message as it is delivered from the queue at `address`, after `failures` failed
    deliveries. The address is a short string: see `key_of`.

    Sections that are malformed are left out: a consumer cannot refuse a message.
    """
    payload = message.payload
    if message.opaque:
        return Content(ConvertedHead(_NO_PROPERTIES, True, "", address), payload)
    size: i64 = len(payload)
    at: i64 = message.header_end
    start: i64
    try:
        code = section_at(payload, at)
        while MESSAGE_ANNOTATIONS <= code <= APPLICATION_PROPERTIES:
            at = section_end(payload, at)
            code = section_at(payload, at)
        if code != DATA or section_end(payload, at) != size:
            return _unusual(message, address, failures, at)
        start = at + 5
        if payload[at + 1] != codes.SMALL_ULONG or payload[at + 3] != codes.BINARY8:
            reader = Reader(payload, at, size)
            reader.read_descriptor(_FIELD)
            start = size - len(reader.read_binary(_FIELD))
    except DecodeError:
        return _content(payload[:at], payload[at:], address, failures, False)
    if failures != 0:
        return _content(payload[:at], payload[start:], address, failures, False)
    sections = payload[:at]
    head = _heads.get(sections)
    if head is None:
        head = _convert(sections, 0, False)
        _keep(sections, head)
    return Content(_placed(head, address), payload[start:])


def short_string(text: str) -> bytes:
    """Return the encoded form of a text that is a short string."""
    raw = text.encode()
    return bytes((len(raw),)) + raw


def _placed(head: ConvertedHead, address: str) -> ConvertedHead:
    """Return the head; if it does not say where the message was published, with the address."""
    return head if head.routed else ConvertedHead(head.properties, True, "", address)


def key_of(address: str) -> str:
    """Return the routing key of messages of other publishers in the queue at `address`: its name,
    or nothing if that is too long for a routing key. An alias may lead to such a queue."""
    return address if _is_short(address) else ""


def _keep(sections: bytes, head: ConvertedHead) -> None:
    size: i64 = len(sections) + len(head.properties) + 2 * len(head.place)
    if size <= MAX_ENTRY:
        if not _budget.fits(size):
            _heads.clear()
            _budget.reset()
        _budget.add(size)
        _heads[sections] = head


def _content(sections: bytes, body: bytes, address: str, failures: i64, encoded: bool) -> Content:
    return Content(_placed(_convert(sections, failures, encoded), address), body)


def _unusual(message: BrokerMessage, address: str, failures: i64, at: i64) -> Content:
    """Return the content of a message whose body, from `at` on, is not one data section."""
    payload = message.payload
    size: i64 = len(payload)
    sections = [payload[:at]]
    bodies: list[bytes] = []
    kind: i64 = 0
    try:
        while at < size:
            code = section_at(payload, at)
            end = section_end(payload, at)
            if DATA <= code <= AMQP_VALUE:
                kind = code
                bodies.append(payload[at:end])
            elif code in (PROPERTIES, APPLICATION_PROPERTIES):
                # Some clients write a null body before them.
                sections.append(payload[at:end])
            elif code != FOOTER:
                break
            at = end
    except DecodeError:
        # The rest cannot be read.
        pass
    head = b"".join(sections)
    if kind == DATA and len(bodies) == 1:
        reader = Reader(bodies[0])
        try:
            reader.read_descriptor(_FIELD)
            return _content(head, reader.read_binary(_FIELD), address, failures, False)
        except DecodeError:
            pass
    return _content(head, b"".join(bodies), address, failures, kind != 0)


def _convert(sections: bytes, failures: i64, encoded: bool) -> ConvertedHead:
    """Convert the sections in front of a body. `encoded` is whether the body is sections, too."""
    head = _Head()
    if failures > 0:
        head.add_count(failures)
    at: i64 = 0
    size: i64 = len(sections)
    while at < size:
        try:
            code = section_at(sections, at)
            end = section_end(sections, at)
        except DecodeError:
            break
        reader = Reader(sections, at, end)
        reader.budget = SECTION_ELEMENTS
        try:
            reader.read_descriptor(_FIELD)
            if code == HEADER:
                head.read_header(reader)
            elif code == MESSAGE_ANNOTATIONS:
                head.read_annotations(reader)
            elif code == PROPERTIES:
                head.read_properties(reader)
            elif code == APPLICATION_PROPERTIES:
                head.read_application(reader)
        except DecodeError:
            # What has been read of the section so far is kept.
            head.repair()
        at = end
    if head.routed and head.fields.priority == 0 and not head.says_priority:
        # The publisher has set no priority, which counts as 0.
        head.fields.priority = None
    if encoded:
        head.fields.type = ENCODED_BODY
    return ConvertedHead(head.encode(), head.routed, head.exchange, head.routing_key)


@final
class _Head:
    """The properties of a content, filled section by section."""

    __slots__ = (
        "_names",
        "_safe",
        "_table",
        "exchange",
        "fields",
        "has_headers",
        "routed",
        "routing_key",
        "says_priority",
    )

    def __init__(self) -> None:
        self.fields: BasicProperties = BasicProperties()
        self.has_headers: bool = False
        self.routed: bool = False
        # Whether a publisher of AMQP 0-9-1 has set a priority of 0.
        self.says_priority: bool = False
        self.exchange: str = ""
        self.routing_key: str = ""
        # The content of the table of headers, and the names in it.
        self._table = BytesWriter()
        self._names: set[bytes] = set()
        # The length of the table with whole headers only.
        self._safe: i64 = 0

    def repair(self) -> None:
        """Drop what has been written of a header that turned out to be malformed."""
        self._table.truncate(self._safe)

    def add_count(self, failures: i64) -> None:
        """Add the header with the number of failed deliveries."""
        name = DELIVERY_COUNT.encode()
        self._begin(name)
        self._table.append(_LETTER_LONG)
        write_u32(self._table, 0)
        write_u32(self._table, failures)
        self._safe = len(self._table)

    def read_header(self, r: Reader) -> None:
        """Read durable, priority and ttl, as far as the header says them."""
        outer = r.end
        count = r.enter_list("header")
        fields = self.fields
        if count > 0 and not r.take_null():
            fields.delivery_mode = 2 if r.read_boolean("header.durable") else 1
        if count > 1 and not r.take_null():
            fields.priority = int(r.read_ubyte("header.priority"))
        if count > 2 and not r.take_null():
            fields.expiration = str(int(r.read_uint("header.ttl")))
        r.end = outer

    def read_annotations(self, r: Reader) -> None:
        """Read the annotations whose names begin with ``x-``."""
        outer = r.end
        count = r.enter_map("message-annotations")
        r.charge(count, "message-annotations")
        for _ in range(count // 2):
            code = r.peek_code("message-annotations")
            if code == codes.SYMBOL8 or code == codes.SYMBOL32:
                name = r.read_symbol("message-annotations")
                if name.startswith(EXTENSION):
                    self._read_annotation(r, name)
                    continue
            else:
                r.skip_value("message-annotations")
            r.skip_value("message-annotations")
        r.end = outer

    def _read_annotation(self, r: Reader, name: str) -> None:
        if name == EXCHANGE:
            text = _text(r)
            if text is not None and _is_short(text):
                self.exchange = text
                self.routed = True
        elif name == ROUTING_KEY:
            text = _text(r)
            if text is not None and _is_short(text):
                self.routing_key = text
        elif name == BASIC_TYPE:
            text = _text(r)
            if text is not None and _is_short(text):
                self.fields.type = text
        elif name == CARBON_COPY:
            self._add(b"CC", r)
        elif name == OTHER_PROPERTIES:
            self._read_others(read_value(r, name))
        elif name == OTHER_HEADERS:
            code = r.peek_code(name)
            if code == codes.MAP8 or code == codes.MAP32:
                self.has_headers = True
                self._read_map(r)
            else:
                r.skip_value(name)
        elif name.startswith(BROKER_SETS):
            r.skip_value(name)
        else:
            self._add(name.encode(), r)

    def read_application(self, r: Reader) -> None:
        """Read the application-properties; there are headers even if there is none."""
        self.has_headers = True
        self._read_map(r)

    def _read_map(self, r: Reader) -> None:
        outer = r.end
        count = r.enter_map("headers")
        r.charge(count, "headers")
        for _ in range(count // 2):
            self._add(take_text(r), r)
        r.leave(outer, "headers")

    def _add(self, name: bytes, r: Reader) -> None:
        """Add a header with the next value; not a second one with the name."""
        if len(name) > _MAX_SHORT or name in self._names or not is_utf8(name):
            r.skip_value("headers")
            return
        self._begin(name)
        if write_field_value(self._table, r):
            self._safe = len(self._table)
        else:
            self._table.truncate(self._safe)

    def _begin(self, name: bytes) -> None:
        self._names.add(name)
        self.has_headers = True
        self._table.append(u8(len(name)))
        self._table.write(name)

    def _add_id(self, name: bytes, value: int | UUID | bytes | str) -> str | None:
        """Return an identifier as a short string; None if it has become a header."""
        if isinstance(value, UUID):
            return f"urn:uuid:{value}"
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, str):
            if _is_short(value):
                return value
            letter, raw = letters.STRING, value.encode()
        else:
            letter, raw = letters.BYTES, value
        if name not in self._names:
            self._begin(name)
            write_sized(self._table, letter, raw)
            self._safe = len(self._table)
        return None

    def read_properties(self, r: Reader) -> None:
        """Read the properties that AMQP 0-9-1 has, too."""
        properties = decode_properties(r)
        fields = self.fields
        if properties.message_id is not None:
            fields.message_id = self._add_id(b"x-message-id", properties.message_id)
        if properties.correlation_id is not None:
            fields.correlation_id = self._add_id(b"x-correlation-id", properties.correlation_id)
        user_id = properties.user_id
        if user_id is not None and len(user_id) <= _MAX_SHORT:
            try:
                fields.user_id = user_id.decode()
            except UnicodeDecodeError:
                pass
        if properties.reply_to is not None and _is_short(properties.reply_to):
            fields.reply_to = properties.reply_to
        content_type = properties.content_type
        if content_type is not None and _is_short(content_type):
            fields.content_type = str(content_type)
        content_encoding = properties.content_encoding
        if content_encoding is not None and _is_short(content_encoding):
            fields.content_encoding = str(content_encoding)
        creation_time = properties.creation_time
        if creation_time is not None and creation_time >= 0:
            fields.timestamp = int(creation_time) // 1000
        if properties.group_id is not None and _is_short(properties.group_id):
            fields.app_id = properties.group_id

    def _read_others(self, others: object) -> None:
        """Set the properties for which AMQP 1.0 has no place; the publisher may be one of AMQP 1.0,
        so they are checked."""
        if not isinstance(others, dict):
            return
        fields = self.fields
        for name, value in others.items():
            if name == "delivery-mode" and isinstance(value, int) and 0 <= value <= 255:
                fields.delivery_mode = int(value)
            elif name == "priority":
                self.says_priority = True
            if not isinstance(value, str) or not _is_short(value):
                continue
            if name == "content-type":
                fields.content_type = value
            elif name == "content-encoding":
                fields.content_encoding = value
            elif name == "expiration":
                fields.expiration = value
            elif name == "cluster-id":
                fields.reserved = value
            elif name == "timestamp" and value.isascii() and value.isdigit() and len(value) <= 20:
                seconds = int(value)
                if seconds < 1 << 64:
                    fields.timestamp = EpochSeconds(seconds)

    def encode(self) -> bytes:
        """Return the encoded properties."""
        fields = self.fields
        w = BytesWriter()
        encode_basic_properties(w, fields)
        encoded = w.getvalue()
        if not self.has_headers:
            return encoded
        # The headers follow the content-encoding.
        at: i64 = 2
        if fields.content_type is not None:
            at += 1 + i64(encoded[at])
        if fields.content_encoding is not None:
            at += 1 + i64(encoded[at])
        table = self._table.getvalue()
        result = BytesWriter()
        write_u16(result, i64(encoded[0]) << 8 | i64(encoded[1]) | _HEADERS)
        result.write(encoded[2:at])
        write_u32(result, len(table))
        result.write(table)
        result.write(encoded[at:])
        return result.getvalue()


def _text(r: Reader) -> str | None:
    """Read a value; return it if it is a string."""
    value = read_value(r, _FIELD)
    return str(value) if isinstance(value, str) else None


def _is_short(text: str) -> bool:
    """Return whether the text fits a short string."""
    return len(text) <= _MAX_SHORT and (text.isascii() or len(text.encode()) <= _MAX_SHORT)
