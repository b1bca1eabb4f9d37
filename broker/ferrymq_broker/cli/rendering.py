"""Messages as text and as JSON."""

from __future__ import annotations

import json
from typing import Final

from ferrymq import Message
from ferrymq_broker.json_values import plain as plain
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
