"""Durations and sizes: their texts for people, and their numbers for the broker.

In a file a duration is a number of seconds or text like ``"1h30m"``, and a size a number of bytes
or text like ``"10MiB"``. The broker counts in milliseconds and bytes. Plain numbers from management
are milliseconds too: they are read with the validation context `MACHINE`.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, ValidationInfo

# The validation context in which plain numbers are milliseconds and bytes.
MACHINE: Final = {"machine": True}

_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
# A hundred years, in milliseconds: such a duration added to the present time still fits.
MAX_DURATION: Final = 36_525 * 86_400_000
MAX_COUNT: Final = 2**62

_DURATION: Final = re.compile(r"(?:\d{1,15}(?:\.\d{1,9})?\s*(?:ms|s|m|h|d)\s*)+")
_DURATION_PART: Final = re.compile(r"([\d.]+)\s*(ms|s|m|h|d)")
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)")

_NO_DURATION: Final = 'a duration is a number of seconds or text like "500ms", "30s", "5m", "1h30m"'
_NO_SIZE: Final = 'a size is a number of bytes or text like "64KiB", "10MiB", "1GB"'

_TOO_LONG: Final = "a duration is at most 100 years"
_TOO_MUCH: Final = "the number is too large"


def parse_duration(value: object, machine: bool = False) -> int:
    """Return milliseconds. A plain number is in seconds, or with `machine` in milliseconds. Raises
    ValueError for a value that is not a duration.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if _DURATION.fullmatch(text) is None:
            raise ValueError(f"{_NO_DURATION}, not {value[:40]!r}")
        exact = sum(
            (Fraction(amount) * _MILLISECONDS[unit] for amount, unit in _parts(text)), Fraction(0)
        )
        return _bounded(math.ceil(exact), MAX_DURATION, _TOO_LONG)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{_NO_DURATION}, not {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{_NO_DURATION}, not {value}")
    milliseconds = value if machine else value * 1000
    return _bounded(math.ceil(milliseconds), MAX_DURATION, _TOO_LONG)


def _parts(text: str) -> list[tuple[str, str]]:
    return _DURATION_PART.findall(text)


def parse_size(value: object) -> int:
    """Return bytes. Raises ValueError for a value that is not a size."""
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip().lower())
        unit = None if found is None else _BYTES.get(found[2] or "b")
        if found is None or unit is None:
            raise ValueError(f"{_NO_SIZE}, not {value[:40]!r}")
        return _bounded(math.ceil(Fraction(found[1]) * unit), MAX_COUNT, _TOO_MUCH)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{_NO_SIZE}, not {type(value).__name__}")
    return _bounded(int(value), MAX_COUNT, _TOO_MUCH)


def _bounded(value: int, most: int, reason: str) -> int:
    if value < 0:
        raise ValueError("it cannot be negative")
    if value > most:
        raise ValueError(reason)
    return value


def _duration(value: object, info: ValidationInfo) -> int:
    return parse_duration(value, bool(info.context and info.context.get("machine")))


def _expiry(value: object, info: ValidationInfo) -> int:
    if value is False:
        return -1
    machine = bool(info.context and info.context.get("machine"))
    if machine and isinstance(value, int) and value == -1:
        return -1
    return parse_duration(value, machine)


# Milliseconds.
Duration = Annotated[int, BeforeValidator(_duration)]
# Milliseconds, or −1: ``false`` in the file.
Expiry = Annotated[int, BeforeValidator(_expiry)]
# Bytes.
Size = Annotated[int, BeforeValidator(parse_size)]
# A number of things; 0 means no limit.
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


def format_duration(milliseconds: int) -> str:
    """Return the shortest text that `parse_duration` reads as this number of milliseconds."""
    text = ""
    rest = milliseconds
    for unit in ("d", "h", "m", "s", "ms"):
        amount, rest = divmod(rest, _MILLISECONDS[unit])
        if amount:
            text += f"{amount}{unit}"
    return text or "0s"


def format_size(size: int) -> str:
    """Return the text, in the largest exact unit, that `parse_size` reads as this number of
    bytes."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"


def _seconds(value: object) -> object:
    """Parse a text as a duration; return a number as it is, for pydantic to check."""
    return parse_duration(value) / 1000 if isinstance(value, str) else value


def _bytes(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _share(value: object) -> object:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            percent = float(value.strip()[:-1])
        except ValueError:
            percent = -1.0
        if not 0 < percent <= 100:
            raise ValueError(f"a share is above 0% and at most 100%, not {value[:40]!r}")
        return f"{percent:g}%"
    return parse_size(value)


# Seconds, for timers of connections.
Seconds = Annotated[float, BeforeValidator(_seconds), Field(allow_inf_nan=False, le=1e9)]
# Bytes of a wire limit.
Bytes = Annotated[int, BeforeValidator(_bytes)]
# Bytes, or a part of something else: ``"40%"``.
Share = Annotated[int | str, BeforeValidator(_share)]


def share_of(share: int | str, whole: int) -> int:
    """Return how many bytes a `Share` of `whole` bytes is."""
    if isinstance(share, str):
        return int(whole * float(share[:-1]) / 100)
    return share
