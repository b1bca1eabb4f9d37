"""Values of AMQP as JSON: what the command line prints, and what the HTTP API answers."""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from ferrymq_codec.containers import Array, PairMap, Repeated
from ferrymq_codec.scalars import Described, Timestamp


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
