"""Messages as text and as JSON."""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from ferrymq import Message
from ferrymq_codec.containers import Array, PairMap, Repeated
from ferrymq_codec.scalars import Described, Timestamp
from ferrymq_types.messaging import AmqpSequence, Data

# The fields of `Message`, their names in JSON (those of the specification), and their defaults.
_FIELDS: Final[tuple[tuple[str, str, object], ...]] = (
    ("durable", "durable", False),
    ("priority", "priority", 4),
    ("ttl", "ttl", None),
    ("first_acquirer", "first-acquirer", False),
    ("delivery_count", "delivery-count", 0),
    ("message_id", "message-id", None),
    ("user_id", "user-id", None),
    ("to", "to", None),
    ("subject", "subject", None),
    ("reply_to", "reply-to", None),
    ("correlation_id", "correlation-id", None),
    ("content_type", "content-type", None),
    ("content_encoding", "content-encoding", None),
    ("absolute_expiry_time", "absolute-expiry-time", None),
    ("creation_time", "creation-time", None),
    ("group_id", "group-id", None),
    ("group_sequence", "group-sequence", None),
    ("reply_to_group_id", "reply-to-group-id", None),
    ("message_annotations", "message-annotations", {}),
    ("application_properties", "application-properties", {}),
    ("footer", "footer", {}),
)


def as_text(message: Message) -> str:
    """Return the body: text as it is, everything else as JSON."""
    body = message.body
    if isinstance(body, str):
        return body
    if isinstance(body, bytes):
        try:
            return body.decode()
        except UnicodeDecodeError:
            return f"({len(body)} bytes)"
    return json.dumps(plain(body), ensure_ascii=False)


def as_json(message: Message) -> str:
    """Return the message as one line of JSON.

    Fields at their defaults are left out. Bytes that are not UTF-8 become ``{"base64": "..."}``.
    """
    value: dict[str, object] = {}
    for attribute, name, default in _FIELDS:
        field = getattr(message, attribute)
        if attribute == "ttl" and message.header is not None:
            # JSON has the fields of the specification: this one is in milliseconds.
            field = message.header.ttl
        if field != default:
            value[name] = plain(field)
    sections = message.body_sections
    if sections:
        first = sections[0]
        if isinstance(first, Data):
            value["body-type"] = "data"
        else:
            value["body-type"] = "sequence" if isinstance(first, AmqpSequence) else "value"
    value["body"] = plain(message.body)
    return json.dumps(value, ensure_ascii=False)


def plain(value: object) -> object:
    """Return the closest JSON value."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        return _moment(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Described):
        return {"descriptor": plain(value.descriptor), "value": plain(value.value)}
    if isinstance(value, PairMap):
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, Array) and isinstance(value.items, Repeated):
        # These elements take no bytes, so there may be billions of them.
        one = [plain(item) for item in itertools.islice(value.items, 1)]
        return {"count": len(value), "element": one[0] if one else None}
    try:
        return [plain(item) for item in value]  # type: ignore[attr-defined]
    except TypeError:
        return str(value)


def _key(key: object) -> str:
    simple = plain(key)
    return simple if isinstance(simple, str) else json.dumps(simple)


def _moment(value: Timestamp) -> object:
    try:
        return value.to_datetime().isoformat()
    except (OverflowError, ValueError):
        return int(value)
