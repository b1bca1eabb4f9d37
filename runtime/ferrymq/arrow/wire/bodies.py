"""JSON bodies as AMQP values: the inverse of `texts`, which turns values into JSON.

| JSON | AMQP |
|---|---|
| an integer | long, else ulong, else decimal128 |
| another number | double if the double has just these digits, else decimal128 |
| a string, `true`, `false`, `null` | string, boolean, null |
| an array, an object | list, map with strings as keys |

No digit is lost: ``1.10`` is a decimal, ``1.1`` a double. A decimal with the digits of a double is
spelled ``1.1E+0``, and below 0.000001 ``1.1E-007``, as no double is.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from json import JSONDecoder
from typing import Final

from ferrymq_codec.scalars import ULong

_INFINITY: Final = float("inf")


def value_of_json(text: str) -> object:
    """Return the value of a JSON text.

    Raises ValueError for invalid JSON, for a number whose exponent no decimal can have, and for an
    object with a repeated key; RecursionError for deep nesting.
    """
    value: object = _parse(text)
    return value


def _integer(digits: str) -> object:
    """Return a long, or the first of ulong and decimal128 that holds the integer; -0 is a
    decimal."""
    value = int(digits)
    if value == 0 and digits[0] == "-":
        return Decimal(digits)
    if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        return value
    return ULong(value) if 0 <= value <= 0xFFFF_FFFF_FFFF_FFFF else Decimal(value)


def _fraction(digits: str) -> object:
    """Return a double if it has the same digits, else a decimal."""
    number = float(digits)
    if repr(number) == digits:
        return number
    try:
        exact = Decimal(digits)
    except InvalidOperation:
        raise ValueError(f"{digits:.40} has an exponent that no decimal has") from None
    return number if _is_double(digits, number, exact) else exact


def json_of_decimal(value: Decimal) -> str:
    """Return a finite decimal as a number in JSON that is read as a decimal, unless it is an
    integer."""
    text = str(value)
    number = float(value)
    if text.lstrip("-").isdigit() or not (repr(number) == text or _is_double(text, number, value)):
        return text
    return text.replace("E-", "E-00") if "E" in text else f"{text}E+0"


def _is_double(digits: str, number: float, exact: Decimal) -> bool:
    """Return whether a text is that of a double although Python spells it differently.

    Java writes ``1.0E10``, people write ``1e10``; decimals are written ``1E+10``.
    """
    if (
        "E+" in digits
        or "E-00" in digits
        or number == _INFINITY
        or number == -_INFINITY
        or exact.is_zero()
    ):
        return False
    fraction = digits.lower().partition("e")[0].partition(".")[2]
    if fraction != "0" and fraction.endswith("0"):
        return False
    return exact == Decimal(repr(number))


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object, whose keys must differ."""
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r:.80} is there twice")
            seen.add(key)
    return members


_parse: Final = JSONDecoder(
    parse_int=_integer, parse_float=_fraction, object_pairs_hook=_members
).decode
