"""AMQP values in JSON, without loss.

Null, booleans, longs, doubles, strings, lists, and maps with string keys are the same in JSON.
Binaries are ``{"$binary": base64}``, symbols ``{"$symbol": text}``, everything else
``{"$amqp": base64 of the encoded value}``.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Final

from librt.strings import BytesWriter

from ferrymq_broker.store.errors import StoreError
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Symbol
from ferrymq_codec.value_reader import read_value
from ferrymq_codec.value_writer import write_value

BINARY: Final = "$binary"
SYMBOL: Final = "$symbol"
AMQP: Final = "$amqp"


def portable(value: object) -> object:
    """Return the JSON form of a value."""
    # Compare types exactly: a uint is an int in Python, but another type in AMQP.
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if isinstance(value, float) and kind is float and math.isfinite(value):
        return value
    if isinstance(value, list):
        return [portable(item) for item in value]
    if isinstance(value, dict) and all(type(key) is str and key[:1] != "$" for key in value):
        return {key: portable(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return {BINARY: base64.b64encode(value).decode()}
    if isinstance(value, Symbol):
        return {SYMBOL: str(value)}
    w = BytesWriter()
    write_value(w, value, "value")
    return {AMQP: base64.b64encode(w.getvalue()).decode()}


def original(value: object) -> object:
    """Return the value of a result of `portable`. Raises `StoreError`."""
    if isinstance(value, list):
        return [original(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key == BINARY:
            return binary(inner)
        if key == SYMBOL:
            return Symbol(str(inner))
        if key == AMQP:
            return _decoded(binary(inner))
    return {key: original(item) for key, item in value.items()}


def binary(text: object) -> bytes:
    """Decode base64. Raises `StoreError`."""
    if not isinstance(text, str):
        raise StoreError(f"base64 is needed, not {str(text)[:40]!r}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise StoreError(f"the text is not base64: {error}") from None


def _decoded(encoded: bytes) -> object:
    try:
        reader = Reader(encoded)
        value = read_value(reader, "value")
    except DecodeError as error:
        raise StoreError(f"the bytes are not an AMQP value: {error}") from error
    if reader.remaining():
        raise StoreError("there is more than one AMQP value")
    return value
