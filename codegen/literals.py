"""Defaults and choice values: the XML's text as a Python value of the source type."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from uuid import UUID

from codegen.primitives import PRIMITIVES

Literal = bool | int | float | str | bytes | Decimal | UUID


def number(text: str) -> int | None:
    """A decimal or 0x integer, or None."""
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    return int(text, 16) if re.fullmatch(r"0[xX][0-9a-fA-F]+", text) else None


def parse(text: str, primitive: str) -> Literal:
    """The value `text` stands for in a primitive type.

    Raises `ValueError` saying why the type cannot hold it.
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
    try:
        if primitive in ("float", "double"):
            value = float(text)
            if not math.isfinite(value):
                raise ValueError
            return value
        if primitive.startswith("decimal"):
            return Decimal(text)
        if primitive == "uuid":
            return UUID(text)
    except (ValueError, InvalidOperation):
        raise ValueError(f'{primitive} cannot hold "{text}"') from None
    raise ValueError(f"a value of type {primitive} cannot be written in the XML")
