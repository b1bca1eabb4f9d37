"""Encoder from rows of record batches to messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from ferrymq.arrow.buffers import boolean_input, map_input, number_input, text_input
from ferrymq.arrow.schema import RAW, TYPES, ColumnError, hint
from ferrymq.arrow.wire.inputs import BooleanInput, MapInput, NumberInput, TextInput
from ferrymq.arrow.wire.rows import RowEncoder
from ferrymq.errors import EncodeError

IGNORED: Final = frozenset({"broker", "offset", "enqueuedTime", "deliveryCount", "firstAcquirer"})
"""Columns of a source that a sink ignores, so that rows that were read can be written back."""

# Columns that determine the destination of a message, besides the column `raw`.
_ROUTING: Final = frozenset({"address", "partition"})


class MessageEncoder:
    """Encoder of batches with this `schema`: a message for each row.

    `defaults` gives values, by the names of columns, for all rows where the schema has no such
    column. Messages are durable unless a column says otherwise. Raises `ColumnError` for a column
    that is unknown, repeated, of a wrong type or in conflict with another column.
    """

    def __init__(self, schema: pa.Schema, defaults: Mapping[str, object] | None = None) -> None:
        self.schema = schema
        names: list[str] = list(schema.names)
        for field in schema:
            if field.name not in TYPES:
                raise ColumnError(f"there is no column {field.name!r}{hint(field.name, TYPES)}")
            if names.count(field.name) > 1:
                raise ColumnError(f"the column {field.name!r} is there twice")
            _check_type(field)
        self._defaults: dict[str, pa.Scalar] = {}
        for name, value in (defaults or {}).items():
            if name not in TYPES:
                raise ColumnError(f"there is no column {name!r}{hint(name, TYPES)}")
            if name not in names:
                self._defaults[name] = _scalar(name, value)
                names.append(name)
        if RAW not in names and "body" not in names:
            raise ColumnError(
                f"a message needs a column 'body' (binary or string) or 'raw' (binary); there is"
                f" {', '.join(names) or 'none'}"
            )
        if RAW in names:
            others = [name for name in names if name not in _ROUTING | IGNORED | {RAW}]
            if others:
                raise ColumnError(
                    "the column 'raw' is the whole message, so there cannot be columns of parts of"
                    f" one beside it: {', '.join(others)}; drop these, or 'raw'"
                )

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the encoded message of each row.

        Raises `EncodeError`, which names the column and the row counted from 0, for a value that no
        message can have.
        """
        texts: dict[str, TextInput] = {}
        numbers: dict[str, NumberInput] = {}
        booleans: dict[str, BooleanInput] = {}
        maps: dict[str, MapInput] = {}
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, value in self._defaults.items():
            columns[name] = pa.repeat(value, batch.num_rows)
        for name, column in columns.items():
            if name in IGNORED or (column.null_count == len(column) and name != RAW):
                continue
            kind = TYPES[name]
            if pt.is_map(kind):
                maps[name] = map_input(column)
            elif pt.is_boolean(kind):
                booleans[name] = boolean_input(column)
            elif pt.is_string(kind) or pt.is_binary(kind):
                texts[name] = text_input(column)
            else:
                try:
                    numbers[name] = number_input(column)
                except pa.ArrowInvalid as error:
                    raise EncodeError(
                        name, f"a value that has no place in 64 bits: {error}"
                    ) from None
        return RowEncoder(batch.num_rows, texts, numbers, booleans, maps).encode()

    def addresses(self, batch: pa.RecordBatch) -> list[str | None] | None:
        """Return the column `address`, the destination of each row; None if there is none."""
        if "address" in self._defaults:
            return [self._defaults["address"].as_py()] * batch.num_rows
        if "address" not in self.schema.names:
            return None
        addresses: list[str | None] = batch.column("address").to_pylist()
        return addresses


def _check_type(field: pa.Field) -> None:
    """Raise `ColumnError` unless the type of the column is the one of its name, or an equivalent
    one."""
    wanted = TYPES[field.name]
    found = field.type
    allowed = str(wanted)
    if pt.is_binary(wanted):
        fits = pt.is_binary(found) or pt.is_large_binary(found) or pt.is_binary_view(found)
        if field.name == "body":
            allowed = "binary or string"
            fits = fits or _is_text(found)
    elif pt.is_string(wanted):
        fits = _is_text(found)
    elif pt.is_integer(wanted):
        allowed = "an integer"
        fits = pt.is_integer(found)
    elif pt.is_timestamp(wanted):
        allowed = "a timestamp with a time zone"
        fits = pt.is_timestamp(found) and found.tz is not None
    elif pt.is_map(wanted):
        fits = pt.is_map(found) and _is_text(found.key_type) and _is_text(found.item_type)
    else:
        fits = found == wanted
    if not fits:
        raise ColumnError(f"the column {field.name!r} is {found}; it has to be {allowed}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _scalar(name: str, value: object) -> pa.Scalar:
    kind = TYPES[name]
    if name == "body" and isinstance(value, str):
        value = value.encode()
    if isinstance(value, Mapping):
        value = list(value.items())
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise ColumnError(f"{value!r:.80} cannot be the column {name!r}, which is {kind}") from None
