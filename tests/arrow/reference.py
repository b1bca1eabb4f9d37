"""The same columns made the plain way: every message decoded as a whole, value by value."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from ferrymq.arrow import schema_of
from ferrymq.chunks import Chunk
from ferrymq.errors import DecodeError
from ferrymq.message import Message
from ferrymq_codec.containers import Array, PairMap
from ferrymq_codec.scalars import Described, Timestamp
from ferrymq_types.messaging import AmqpSequence, Data

_POSITION_KEYS = {
    "x-opt-offset",
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-partition",
    "x-opt-partition-key",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of_chunk(chunk: Chunk, address: str | None, partition: int | None) -> list[dict[str, Any]]:
    rows = []
    for i in range(len(chunk)):
        row = row_of(chunk.payload(i), chunk.format(i))
        row["address"] = address
        row["partition"] = partition
        row["offset"] = chunk.offset(i)
        row["enqueuedTime"] = _micros(chunk.time(i))
        rows.append(row)
    return rows


def rows_of_messages(
    payloads: Sequence[bytes], address: str | None, partition: int | None
) -> list[dict[str, Any]]:
    rows = []
    for payload in payloads:
        row = row_of(payload, 0)
        row["address"] = address
        if row.get("partition") is None:
            row["partition"] = partition
        rows.append(row)
    return rows


def batch_of(rows: list[dict[str, Any]], columns: Sequence[str]) -> pa.RecordBatch:
    schema = schema_of(columns)
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def row_of(payload: bytes, message_format: int) -> dict[str, Any]:
    row: dict[str, Any] = {"raw": payload, "body": payload}
    if message_format != 0:
        row["bodyType"] = "foreign"
        return row
    try:
        message = Message.decode(payload)
    except DecodeError:
        row["bodyType"] = "malformed"
        return row
    kind: str | None = None
    body: bytes | None = None
    sections = message.body_sections
    if sections and isinstance(sections[0], Data):
        kind, body = "data", message.body
    elif sections:
        kind = "sequence" if isinstance(sections[0], AmqpSequence) else "value"
        body = _json(message.body).encode()
    row.update(bodyType=kind, body=body)
    row.update(
        durable=message.durable,
        priority=min(message.priority, 127),
        ttl=None if message.header is None else message.header.ttl,
        deliveryCount=message.delivery_count,
        firstAcquirer=message.first_acquirer,
        messageId=_text(message.message_id),
        correlationId=_text(message.correlation_id),
        userId=message.user_id,
        to=message.to,
        subject=message.subject,
        replyTo=message.reply_to,
        contentType=message.content_type,
        contentEncoding=message.content_encoding,
        absoluteExpiryTime=_micros(message.absolute_expiry_time),
        creationTime=_micros(message.creation_time),
        groupId=message.group_id,
        groupSequence=message.group_sequence,
        replyToGroupId=message.reply_to_group_id,
        applicationProperties=_pairs(message._application_properties, ()),
        messageAnnotations=_pairs(message._message_annotations, _POSITION_KEYS),
        deliveryAnnotations=_pairs(message._delivery_annotations, ()),
        footer=_pairs(message._footer, ()),
    )
    annotations = message.message_annotations
    row["partitionKey"] = _text(annotations.get("x-opt-partition-key"))
    partition = _number(annotations.get("x-opt-partition"))
    if partition is not None and 0 <= partition < 1 << 31:
        row["partition"] = partition
    offset = _number(annotations.get("x-opt-sequence-number"))
    row["offset"] = _number(annotations.get("x-opt-offset")) if offset is None else offset
    time = annotations.get("x-opt-enqueued-time")
    row["enqueuedTime"] = _micros(time) if isinstance(time, Timestamp) else None
    return row


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    if isinstance(value, (bool, Timestamp)):
        return None
    if isinstance(value, int) and 0 <= value < 1 << 63:
        return int(value)
    return None


def _micros(milliseconds: int | None) -> int | None:
    if milliseconds is None:
        return None
    value = milliseconds * 1000
    return value if -(1 << 63) <= value < 1 << 63 else None


def _pairs(
    section: Mapping[Any, object] | None, left_out: Collection[str]
) -> list[tuple[str, str | None]] | None:
    if section is None:
        return None
    return [(str(key), _text(value)) for key, value in section.items() if key not in left_out]


def _text(value: object) -> str | None:
    """A value as a string: strings as they are, others as JSON without quotes."""
    if value is None:
        return None
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)
    plain = _plain(value)
    return plain if isinstance(plain, str) else _json(value)


def _json(value: object) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        return _decimal(value)
    plain = _plain(value)
    if isinstance(plain, list):
        return "[" + ",".join(_json(item) for item in plain) + "]"
    if isinstance(plain, dict):
        members = plain.items()
    elif isinstance(plain, PairMap):
        members = plain.items()  # type: ignore[assignment]
    else:
        return json.dumps(plain, ensure_ascii=False)
    return (
        "{" + ",".join(f"{json.dumps(_key(k), ensure_ascii=False)}:{_json(v)}" for k, v in members)
    ) + "}"


def _decimal(value: Decimal) -> str:
    """With an exponent where the digits are those of a double, which has none like it."""
    text = str(value)
    if value.as_tuple().exponent == 0 or "E+" in text or str(value.normalize()) != text:
        # Other digits than a double is written with.
        if not text.endswith(".0"):
            return text
    if Decimal(repr(float(value))) != value or (not value and text not in ("0.0", "-0.0")):
        return text
    return text.replace("E-", "E-00") if "E-" in text else text + "E+0"


def _key(value: object) -> str:
    text = _text(value)
    return "null" if text is None else text


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, dict, list, PairMap)):
        return value
    if isinstance(value, Timestamp):
        try:
            moment = _EPOCH + timedelta(milliseconds=int(value))
        except OverflowError:
            return int(value)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if isinstance(value, Decimal):
        return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Array):
        return [_described(value.descriptors, item) for item in value.items]
    if isinstance(value, Described):
        return {"descriptor": value.descriptor, "value": value.value}
    raise TypeError(type(value).__name__)


def _described(descriptors: Sequence[object], item: object) -> object:
    for descriptor in reversed(descriptors):
        item = Described.reserved(descriptor, item)
    return item
