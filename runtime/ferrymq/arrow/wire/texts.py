"""Values as texts: how a column of strings shows what AMQP has other types for.

| AMQP | as JSON |
|---|---|
| null, boolean | `null`, `true`, `false` |
| ubyte … ulong, byte … long | a number |
| float, double | a number, the shortest that reads as the same double; `"NaN"`, `"Infinity"` |
| decimals | a number with all its digits, such as `1.10` or `1.1E+0`; `"NaN"`, `"Infinity"` |
| string, symbol, char | a string |
| binary | a string, base64 |
| uuid | a string, such as `"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"` |
| timestamp | a string, such as `"2026-01-02T03:04:05.678Z"`; in ms outside years 1 to 9999 |
| list, array | an array |
| map | an object; keys that are not strings become their text |
| described | an object of `descriptor` and `value` |

The *text* of a value is the same without quotes around it: a string as it is, `true`, `12`. JSON
has no spaces between tokens and no escapes that it can do without.
"""

from __future__ import annotations

from binascii import b2a_base64
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from json import JSONEncoder
from typing import Final, final
from uuid import UUID

from mypy_extensions import i64

from ferrymq.arrow.wire.bodies import json_of_decimal
from ferrymq_codec.containers import Array, PairMap
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.limits import MAX_ELEMENTS
from ferrymq_codec.scalars import Described, Timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INFINITY: Final = float("inf")
# Room without a limit.
ENDLESS: Final = 0x7FFF_FFFF_FFFF_FFFF
_quote: Final = JSONEncoder(ensure_ascii=False).encode


def text_of(value: object, room: i64 = ENDLESS) -> str | None:
    """Return the text of a value as the codec reads it; None for null. Raises as `json_of` does."""
    if value is None:
        return None
    number = _number(value)
    if number is not None:
        return number
    string = _string(value)
    return json_of(value, room) if string is None else string


def json_of(value: object, room: i64 = ENDLESS) -> str:
    """Return a value as JSON. Raises `DecodeError` if it has more than `room` characters, and for
    arrays with more elements than may be read at once.

    A message of a few bytes can lead to a very long text: it can have four thousand million
    elements without bytes of their own, the descriptor of an array applies to each element, and
    each level of maps as keys of maps doubles the backslashes.
    """
    renderer = _Renderer(room)
    renderer.add(value)
    return "".join(renderer.parts)


def timestamp_text(milliseconds: int) -> str | None:
    """Return a time in ms since the Unix epoch in ISO 8601; None outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds")[:23] + "Z"


def uuid_text(data: bytes) -> str:
    """Return the 16 bytes of a uuid in hexadecimal digits and dashes."""
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def binary_text(data: bytes) -> str:
    """Return bytes in base64 (RFC 4648 §4), with padding."""
    return b2a_base64(data, newline=False).decode("ascii")


@final
class _Renderer:
    """Renderer of one value to JSON of at most `room` characters: `parts` is the text so far."""

    __slots__ = ("parts", "_left", "_room")

    def __init__(self, room: i64) -> None:
        self.parts: list[str] = []
        self._left: i64 = MAX_ELEMENTS
        self._room: i64 = room

    def _put(self, text: str) -> None:
        self._room -= len(text)
        if self._room < 0:
            raise DecodeError(0, "columns", "a value whose text would be too long")
        self.parts.append(text)

    def add(self, value: object) -> None:
        if value is None:
            self._put("null")
            return
        if isinstance(value, Decimal) and value.is_finite():
            self._put(json_of_decimal(value))
            return
        number = _number(value)
        if number is not None:
            self._put(number)
            return
        string = _string(value)
        if string is not None:
            self._put(_quote(string))
        elif isinstance(value, list):
            self._put("[")
            first = True
            for item in value:
                if not first:
                    self._put(",")
                first = False
                self.add(item)
            self._put("]")
        elif isinstance(value, (dict, PairMap)):
            self._members(list(value.items()))
        elif isinstance(value, Array):
            self._array(value)
        elif isinstance(value, Described):
            self._described(value)
        else:
            raise TypeError(f"{type(value).__name__} is no value of AMQP")

    def _members(self, members: list[tuple[object, object]]) -> None:
        self._put("{")
        first = True
        for key, value in members:
            if not first:
                self._put(",")
            first = False
            text = text_of(key, self._room)
            self._put(_quote("null" if text is None else text))
            self._put(":")
            self.add(value)
        self._put("}")

    def _array(self, array: Array) -> None:
        count = len(array)
        if count > self._left:
            raise DecodeError(0, "columns", f"arrays of more than {MAX_ELEMENTS} elements")
        self._left -= count
        descriptors = array.descriptors
        self._put("[")
        first = True
        for item in array:
            if not first:
                self._put(",")
            first = False
            value = item
            for descriptor in reversed(descriptors):
                value = Described.reserved(descriptor, value)
            self.add(value)
        self._put("]")

    def _described(self, value: Described) -> None:
        self._put('{"descriptor":')
        self.add(value.descriptor)
        self._put(',"value":')
        self.add(value.value)
        self._put("}")


def _number(value: object) -> str | None:
    """Return the JSON text of a number or a boolean; None for other values."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, Timestamp):
        milliseconds = int(value)
        return str(milliseconds) if timestamp_text(milliseconds) is None else None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        number = float(value)
        finite = number == number and number != _INFINITY and number != -_INFINITY
        return repr(number) if finite else None
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    return None


def _string(value: object) -> str | None:
    """Return the JSON text of a value that becomes a string; None for other values."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return binary_text(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Timestamp):
        return timestamp_text(int(value))
    if isinstance(value, float):
        number = float(value)
        if number != number:
            return "NaN"
        return "Infinity" if number > 0 else "-Infinity"
    if isinstance(value, Decimal):
        if value.is_nan():
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    return None
