"""Defaults and choice values: the XML's text as a Python value of the source type."""

from __future__ import annotations

import math
import re
import struct
from decimal import Context, Decimal, DecimalException, FloatOperation, Inexact, InvalidOperation
from typing import Final
from uuid import UUID

from ferrymq_codegen.amqp_1_0.primitives import PRIMITIVES

Literal = bool | int | float | str | bytes | Decimal | UUID

MAX_DIGITS: Final = 200
"""The highest length of a number's text; all numbers that a type can hold are shorter."""

_NUMBER: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?"
# Precision in digits, lowest and highest exponent of an integral coefficient (§1.6.13-15).
_DECIMALS: Final = {
    "decimal32": (7, -101, 90),
    "decimal64": (16, -398, 369),
    "decimal128": (34, -6176, 6111),
}
_EXACT: Final = Context(prec=2 * MAX_DIGITS, traps=[Inexact, InvalidOperation, FloatOperation])


def number(text: str) -> int | None:
    """Return a decimal or 0x integer, or None."""
    if len(text) > MAX_DIGITS:
        return None
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    return int(text, 16) if re.fullmatch(r"0[xX][0-9a-fA-F]+", text) else None


def parse(text: str, primitive: str) -> Literal:
    """Return the value that `text` stands for in a primitive type.

    Raises `ValueError`, whose text says why the type cannot hold the value.
    """
    bounds = PRIMITIVES[primitive].range
    if bounds is not None:
        value = number(text)
        if value is None:
            raise ValueError(f'"{text}" is not an integer, which {primitive} needs')
        if not bounds[0] <= value <= bounds[1]:
            raise ValueError(f"{primitive} cannot hold {text}")
        return value
    if primitive == "boolean":
        if text not in ("true", "false"):
            raise ValueError(f'"{text}" is not a boolean (true or false)')
        return text == "true"
    if primitive == "symbol":
        if not text.isascii():
            raise ValueError(f'symbol cannot hold "{text}": not ASCII')
        return text
    if primitive == "string":
        return text
    if primitive == "char":
        if len(text) != 1:
            raise ValueError(f'"{text}" is not one character, which char needs')
        return text
    return _rare(text, primitive)


def _rare(text: str, primitive: str) -> Literal:
    form = _DECIMALS.get(primitive)
    if form is not None:
        return _decimal(text, primitive, *form)
    if primitive in ("float", "double"):
        return _float(text, primitive)
    if primitive == "uuid":
        try:
            return UUID(text)
        except ValueError:
            raise ValueError(f'uuid cannot hold "{text}"') from None
    raise ValueError(f"a value of type {primitive} cannot be written in the XML")


def _float(text: str, primitive: str) -> float:
    """Return the nearest number of the type, as every reader of the XML computes it.

    Raises for a number that overflows, and for one other than zero that would become zero.
    """
    exact = _number(text, primitive)
    value = float(exact)
    if primitive == "float":
        try:
            (value,) = struct.unpack(">f", struct.pack(">f", value))
        except OverflowError:
            value = math.inf
    if not math.isfinite(value) or (value == 0) != (exact == 0):
        raise ValueError(f"{primitive} cannot hold {text}")
    return value


def _decimal(text: str, primitive: str, precision: int, lowest: int, top: int) -> Decimal:
    """Return the exact number, which the type must hold without rounding (AMQP 1.0 §1.6.13-15).

    `precision` is in digits; `lowest` and `top` bound the exponent of an integral coefficient.
    """
    value = _number(text, primitive)
    _, digits, exponent = value.normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    if value == 0:
        exponent = 0
    # Zeros may be appended to the coefficient where the exponent would be too large.
    room = precision - len(digits)
    if room < 0 or exponent < lowest or exponent > top + room:
        raise ValueError(f"{primitive} cannot hold {text}")
    return value


def _number(text: str, primitive: str) -> Decimal:
    if len(text) > MAX_DIGITS or not re.fullmatch(_NUMBER, text, re.ASCII):
        raise ValueError(f'"{text:.40}" is not a number, which {primitive} needs')
    try:
        return _EXACT.create_decimal(text)
    except DecimalException:
        raise ValueError(f"{primitive} cannot hold {text}") from None
