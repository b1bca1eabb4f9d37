"""A worker's check of a message."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ferrymq import Message
from pyspark_ferrymq.traffic.bodies import FIELDS, LARGEST, SCHEMA

BAD_JSON = "shop:bad-json"
MISSING_FIELD = "shop:missing-field"
OVERSIZED = "shop:oversized"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a message. Without a condition another worker may be able to process it."""

    condition: str | None
    description: str


def judge(message: Message) -> Fault | None:
    """Return the fault of a message, None if a worker can process it."""
    schema = message.application_properties.get("schema")
    if schema != SCHEMA:
        return Fault(None, f"schema {schema!r} is newer than this worker, which knows {SCHEMA}")
    body = message.body
    if not isinstance(body, bytes):
        return Fault(BAD_JSON, f"not bytes, but {type(body).__name__}")
    if len(body) > LARGEST:
        return Fault(OVERSIZED, f"{len(body) // 1024} KiB of at most {LARGEST // 1024}")
    try:
        value = json.loads(body)
    except ValueError:
        return Fault(BAD_JSON, "the body ends in the middle")
    if not isinstance(value, dict):
        return Fault(BAD_JSON, "the body is not an object")
    for name in ("kind", *FIELDS.get(str(value.get("kind")), ())):
        if name not in value:
            return Fault(MISSING_FIELD, f"the field {name!r} is missing")
    return None
