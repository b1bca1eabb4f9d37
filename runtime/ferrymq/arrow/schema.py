"""The columns that messages become, with the types that Spark has for them.

Every column may be null. Name the wanted columns in any order; `schema_of` gives the
Arrow schema.

| column | type | from |
|---|---|---|
| `body` | binary | the body: data as it is, values and sequences as JSON |
| `bodyType` | string | `data`, `value` or `sequence`; `foreign`, `malformed` |
| `address`, `partition`, `offset`, `enqueuedTime` | | where and when the record is in its stream |
| `partitionKey` | string | the message annotation `x-opt-partition-key` |
| `messageId` … `replyToGroupId` | | properties (AMQP 1.0 §3.2.4) |
| `durable` … `firstAcquirer` | | header (§3.2.1), with its defaults |
| `applicationProperties` … `footer` | map of strings | the sections of these names |
| `broker` | string | the id that the broker tells of itself |
| `raw` | binary | the message as it was published |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

import pyarrow as pa

_BINARY: Final = pa.binary()
_STRING: Final = pa.string()
_TIME: Final = pa.timestamp("us", tz="UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())

TYPES: Final[dict[str, pa.DataType]] = {
    "body": _BINARY,
    "bodyType": _STRING,
    "address": _STRING,
    "partition": pa.int32(),
    "offset": pa.int64(),
    "enqueuedTime": _TIME,
    "partitionKey": _STRING,
    "messageId": _STRING,
    "correlationId": _STRING,
    "userId": _BINARY,
    "to": _STRING,
    "subject": _STRING,
    "replyTo": _STRING,
    "contentType": _STRING,
    "contentEncoding": _STRING,
    "absoluteExpiryTime": _TIME,
    "creationTime": _TIME,
    "groupId": _STRING,
    "groupSequence": pa.int64(),
    "replyToGroupId": _STRING,
    "durable": pa.bool_(),
    "priority": pa.int8(),
    "ttl": pa.int64(),
    "deliveryCount": pa.int64(),
    "firstAcquirer": pa.bool_(),
    "applicationProperties": _MAP,
    "messageAnnotations": _MAP,
    "deliveryAnnotations": _MAP,
    "footer": _MAP,
    "broker": _STRING,
    "raw": _BINARY,
}
"""The type of each column."""

RAW: Final = "raw"
"""The column with the message as it was published."""

POSITION: Final = ("address", "partition", "offset", "enqueuedTime")
"""Columns with the position and time of a record in its stream."""

BROKER: Final = "broker"
"""The column with the id that the broker tells of itself, for readers of several brokers."""

METADATA: Final = tuple(name for name in TYPES if name not in (BROKER, RAW))
"""All columns but `BROKER` and `RAW`."""

DEFAULT: Final = (
    "body",
    *POSITION,
    "messageId",
    "subject",
    "contentType",
    "applicationProperties",
)
"""The default columns."""


class ColumnError(ValueError):
    """A column that is unknown, repeated or of a wrong type."""


def schema_of(columns: Iterable[str] = DEFAULT) -> pa.Schema:
    """Return the Arrow schema of the columns, in their order.

    Equal to what Spark makes of the same columns with the time zone UTC. Raises `ColumnError`.
    """
    names = tuple(columns)
    check_names(names)
    return pa.schema([pa.field(name, TYPES[name]) for name in names])


def check_names(names: Sequence[str]) -> None:
    """Raise `ColumnError` for an unknown or repeated column name."""
    seen: set[str] = set()
    for name in names:
        if name not in TYPES:
            raise ColumnError(f"there is no column {name!r}{hint(name, TYPES)}")
        if name in seen:
            raise ColumnError(f"the column {name!r} is there twice")
        seen.add(name)


def hint(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown name, and all known names, for an error message."""
    names = list(known)
    by_lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), by_lower, n=1)
    guess = f"; did you mean {by_lower[close[0]]!r}?" if close else ""
    return f"{guess} (columns: {', '.join(names)})"
