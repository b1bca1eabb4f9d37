"""Encoder from the buffers of columns to messages, one for each row."""

from __future__ import annotations

from typing import Final, NoReturn, final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from ferrymq.arrow.wire.bodies import value_of_json
from ferrymq.arrow.wire.inputs import (
    BooleanInput,
    MapInput,
    NumberInput,
    TextInput,
    unsigned,
)
from ferrymq_codec import codes
from ferrymq_codec.compound import begin_composite, begin_map, descriptor_bytes, end_list, end_map
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.values import write_value
from ferrymq_codec.writer import symbol_bytes
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

_DATA: Final = descriptor_bytes(DATA)
_VALUE: Final = descriptor_bytes(AMQP_VALUE)
_SEQUENCE: Final = descriptor_bytes(AMQP_SEQUENCE)
_NO_BODY: Final = _VALUE + bytes((codes.NULL,))
# A header whose only field says durable.
_DURABLE: Final = descriptor_bytes(HEADER) + bytes((codes.LIST8, 2, 1, codes.TRUE))
_KEY: Final = symbol_bytes("x-opt-partition-key")
_PARTITION: Final = symbol_bytes("x-opt-partition") + bytes((codes.INT,))

_MAX_UINT: Final = 0xFFFF_FFFF
_MAX_INT: Final = 0x7FFF_FFFF
_PRIORITY: Final = 4


@final
class RowEncoder:
    """Encoder of `count` rows, whose columns are given by name and kind."""

    __slots__ = (
        "_count",
        "_raw",
        "_body",
        "_body_type",
        "_durable",
        "_priority",
        "_ttl",
        "_partition_key",
        "_partition",
        "_message_id",
        "_user_id",
        "_to",
        "_subject",
        "_reply_to",
        "_correlation_id",
        "_content_type",
        "_content_encoding",
        "_absolute_expiry_time",
        "_creation_time",
        "_group_id",
        "_group_sequence",
        "_reply_to_group_id",
        "_application_properties",
        "_message_annotations",
        "_delivery_annotations",
        "_footer",
    )

    def __init__(
        self,
        count: i64,
        texts: dict[str, TextInput],
        numbers: dict[str, NumberInput],
        booleans: dict[str, BooleanInput],
        maps: dict[str, MapInput],
    ) -> None:
        self._count: i64 = count
        self._raw = texts.get("raw")
        self._body = texts.get("body")
        self._body_type = texts.get("bodyType")
        self._durable = booleans.get("durable")
        self._priority = numbers.get("priority")
        self._ttl = numbers.get("ttl")
        self._partition_key = texts.get("partitionKey")
        self._partition = numbers.get("partition")
        self._message_id = texts.get("messageId")
        self._user_id = texts.get("userId")
        self._to = texts.get("to")
        self._subject = texts.get("subject")
        self._reply_to = texts.get("replyTo")
        self._correlation_id = texts.get("correlationId")
        self._content_type = texts.get("contentType")
        self._content_encoding = texts.get("contentEncoding")
        self._absolute_expiry_time = numbers.get("absoluteExpiryTime")
        self._creation_time = numbers.get("creationTime")
        self._group_id = texts.get("groupId")
        self._group_sequence = numbers.get("groupSequence")
        self._reply_to_group_id = texts.get("replyToGroupId")
        self._application_properties = maps.get("applicationProperties")
        self._message_annotations = maps.get("messageAnnotations")
        self._delivery_annotations = maps.get("deliveryAnnotations")
        self._footer = maps.get("footer")

    def encode(self) -> list[bytes]:
        """Return the message of each row. Raises `EncodeError`, which names the column and the
        row."""
        messages: list[bytes] = []
        raw = self._raw
        w = BytesWriter()
        row: i64 = 0
        while row < self._count:
            if raw is not None:
                if not raw.has(row):
                    _fail("raw", row, "null is no message")
                messages.append(raw.get(row))
            else:
                self._message(w, row)
                messages.append(w.getvalue())
                w.truncate(0)
            row += 1
        return messages

    def _message(self, w: BytesWriter, row: i64) -> None:
        if self._durable is None and self._priority is None and self._ttl is None:
            w.write(_DURABLE)
        else:
            self._header(w, row)
        if self._delivery_annotations is not None:
            annotations = self._delivery_annotations
            _annotations(w, annotations, row, DELIVERY_ANNOTATIONS, "deliveryAnnotations")
        self._annotations(w, row)
        self._properties(w, row)
        properties = self._application_properties
        if properties is not None:
            code: u8 = APPLICATION_PROPERTIES
            _entries(w, properties, row, code, codes.STRING8, "applicationProperties")
        self._write_body(w, row)
        if self._footer is not None:
            _annotations(w, self._footer, row, FOOTER, "footer")

    def _header(self, w: BytesWriter, row: i64) -> None:
        durable = True if self._durable is None else self._durable.get(row, True)
        priority = _uint(self._priority, row, 255, "priority")
        if priority < 0:
            priority = _PRIORITY
        ttl = _uint(self._ttl, row, _MAX_UINT, "ttl")
        mark = begin_composite(w, HEADER)
        w.append(codes.TRUE if durable else codes.FALSE)
        count: i64 = 1
        if ttl >= 0 or priority != _PRIORITY:
            w.append(codes.UBYTE)
            w.append(u8(priority))
            count = 2
        if ttl >= 0:
            w.append(codes.UINT)
            write_i32_be(w, unsigned(ttl))
            count = 3
        end_list(w, mark, count)

    def _annotations(self, w: BytesWriter, row: i64) -> None:
        annotations = self._message_annotations
        key = self._partition_key
        partition = (
            -1 if self._partition is None else _uint(self._partition, row, _MAX_INT, "partition")
        )
        has_key = key is not None and key.has(row)
        if partition < 0 and not has_key:
            if annotations is not None:
                _annotations(w, annotations, row, MESSAGE_ANNOTATIONS, "messageAnnotations")
            return
        w.append(codes.DESCRIBED)
        w.append(codes.SMALL_ULONG)
        w.append(MESSAGE_ANNOTATIONS)
        mark = begin_map(w)
        count: i64 = 0
        if annotations is not None:
            count = _write_entries(w, annotations, row, codes.SYMBOL8, "messageAnnotations", True)
        if key is not None and has_key:
            w.write(_KEY)
            key.write(w, row, codes.STRING8)
            count += 2
        if partition >= 0:
            w.write(_PARTITION)
            write_i32_be(w, i32(partition))
            count += 2
        end_map(w, mark, count)

    def _properties(self, w: BytesWriter, row: i64) -> None:
        start: i64 = len(w)
        mark = begin_composite(w, PROPERTIES)
        count: i64 = 0
        count = _text(w, self._message_id, row, codes.STRING8, 0, count)
        count = _text(w, self._user_id, row, codes.BINARY8, 1, count)
        count = _text(w, self._to, row, codes.STRING8, 2, count)
        count = _text(w, self._subject, row, codes.STRING8, 3, count)
        count = _text(w, self._reply_to, row, codes.STRING8, 4, count)
        count = _text(w, self._correlation_id, row, codes.STRING8, 5, count)
        count = _symbol(w, self._content_type, row, 6, count, "contentType")
        count = _symbol(w, self._content_encoding, row, 7, count, "contentEncoding")
        count = _time(w, self._absolute_expiry_time, row, 8, count)
        count = _time(w, self._creation_time, row, 9, count)
        count = _text(w, self._group_id, row, codes.STRING8, 10, count)
        sequence = _uint(self._group_sequence, row, _MAX_UINT, "groupSequence")
        if sequence >= 0:
            _nulls(w, 11 - count)
            w.append(codes.UINT)
            write_i32_be(w, unsigned(sequence))
            count = 12
        count = _text(w, self._reply_to_group_id, row, codes.STRING8, 12, count)
        if count == 0:
            w.truncate(start)
        else:
            end_list(w, mark, count)

    def _write_body(self, w: BytesWriter, row: i64) -> None:
        body = self._body
        kinds = self._body_type
        kind = kinds.get(row) if kinds is not None and kinds.has(row) else b"data"
        there = body is not None and body.has(row)
        if kind == b"data" and there and body is not None:
            w.write(_DATA)
            body.write(w, row, codes.BINARY8)
            return
        encoding = self._content_encoding
        if encoding is not None and encoding.has(row):
            _fail("contentEncoding", row, "only a body of data can have an encoding")
        if not there or body is None:
            w.write(_NO_BODY)
        elif kind == b"value":
            _write_json(w, _from_json(body.get(row), row), row, False)
        elif kind == b"sequence":
            value = _from_json(body.get(row), row)
            if not isinstance(value, list):
                _fail("body", row, "a sequence is an array in JSON")
            _write_json(w, value, row, True)
        else:
            shown = repr(kind.decode("utf-8", "replace"))
            _fail(
                "bodyType",
                row,
                f"{shown} is none of data, value and sequence; such messages are written as they"
                " are with the column raw",
            )


def _write_json(w: BytesWriter, value: object, row: i64, sequence: bool) -> None:
    w.write(_SEQUENCE if sequence else _VALUE)
    try:
        write_value(w, value, "body")
    except EncodeError as error:
        _fail("body", row, error.reason)


def _from_json(data: bytes, row: i64) -> object:
    try:
        return value_of_json(data.decode("utf-8"))
    except UnicodeDecodeError:
        _fail("body", row, "not UTF-8, and JSON has to be")
    except RecursionError:
        _fail("body", row, "nested too deeply")
    except ValueError as error:
        _fail("body", row, f"not JSON: {error}")


def _uint(column: NumberInput | None, row: i64, most: i64, name: str) -> i64:
    """Return the number of a row, -1 if it has none. Raises `EncodeError` outside 0 to `most`."""
    if column is None or not column.has(row):
        return -1
    value = column.get(row)
    if value < 0 or value > most:
        _fail(name, row, f"{value} is not between 0 and {most}")
    return value


def _nulls(w: BytesWriter, count: i64) -> None:
    while count > 0:
        w.append(codes.NULL)
        count -= 1


def _text(
    w: BytesWriter, column: TextInput | None, row: i64, code: u8, index: i64, count: i64
) -> i64:
    """Write the field `index` of a list with `count` fields so far; return the new count."""
    if column is None or not column.has(row):
        return count
    _nulls(w, index - count)
    column.write(w, row, code)
    return index + 1


def _symbol(
    w: BytesWriter, column: TextInput | None, row: i64, index: i64, count: i64, name: str
) -> i64:
    if column is None or not column.has(row):
        return count
    _check_ascii(column, row, row, name)
    if index == 7 and column.get(row) == b"identity":
        _fail(name, row, "identity is said by leaving it out")
    return _text(w, column, row, codes.SYMBOL8, index, count)


def _time(w: BytesWriter, column: NumberInput | None, row: i64, index: i64, count: i64) -> i64:
    """Write a timestamp, given in µs."""
    if column is None or not column.has(row):
        return count
    _nulls(w, index - count)
    w.append(codes.TIMESTAMP)
    write_i64_be(w, column.get(row) // 1000)
    return index + 1


def _annotations(w: BytesWriter, column: MapInput, row: i64, code: u8, name: str) -> None:
    _entries(w, column, row, code, codes.SYMBOL8, name)


def _entries(w: BytesWriter, column: MapInput, row: i64, code: u8, key: u8, name: str) -> None:
    """Write a section that is a map, unless the map is empty."""
    if column.start(row) == column.end(row):
        return
    w.append(codes.DESCRIBED)
    w.append(codes.SMALL_ULONG)
    w.append(code)
    mark = begin_map(w)
    end_map(w, mark, _write_entries(w, column, row, key, name, False))


def _write_entries(
    w: BytesWriter, column: MapInput, row: i64, code: u8, name: str, placed: bool
) -> i64:
    """Write the entries of a row; return the number of keys and values together.

    With `placed` the row has columns for partition or key, which entries must not repeat.
    """
    first = column.start(row)
    end = column.end(row)
    keys = column.keys
    items = column.items
    seen: i64 = 0
    twice = False
    at = first
    while at < end:
        if code == codes.SYMBOL8:
            _check_ascii(keys, at, row, name)
            key = keys.get(at)
            if placed and (key == b"x-opt-partition" or key == b"x-opt-partition-key"):
                shown = key.decode("ascii")
                _fail(name, row, f"the key {shown!r} has a column of its own in this row")
            if key == b"rejected" and name == "deliveryAnnotations":
                _fail(name, row, "rejected has to be an error, and a string is none")
        start = keys.start(at)
        stop = keys.end(at)
        bit: i64 = 1
        if stop > start:
            number = stop - start + 3 * i64(keys.data[start]) + 7 * i64(keys.data[stop - 1])
            bit = 1 << ((number + 13 * i64(keys.data[(start + stop) // 2])) % 62)
        twice = twice or seen & bit != 0
        seen |= bit
        keys.write(w, at, code)
        if items.has(at):
            items.write(w, at, codes.STRING8)
        else:
            w.append(codes.NULL)
        at += 1
    if twice:
        _check_keys(keys, first, end, row, name)
    return 2 * (end - first)


def _check_keys(keys: TextInput, first: i64, end: i64, row: i64, name: str) -> None:
    seen: set[bytes] = set()
    at = first
    while at < end:
        key = keys.get(at)
        if key in seen:
            _fail(name, row, f"the key {key.decode('utf-8', 'replace')!r} is there twice")
        seen.add(key)
        at += 1


def _check_ascii(column: TextInput, at: i64, row: i64, name: str) -> None:
    data = column.data
    i = column.start(at)
    end = column.end(at)
    while i < end:
        if i64(data[i]) > 127:
            shown = column.get(at).decode("utf-8", "replace")
            _fail(name, row, f"{shown!r:.80} is not ASCII, and a symbol has to be")
        i += 1


def _fail(name: str, row: i64, reason: str) -> NoReturn:
    raise EncodeError(name, f"row {row}: {reason}")
