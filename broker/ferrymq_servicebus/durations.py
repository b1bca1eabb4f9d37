"""Durations of ISO 8601, as the vendor's tools write them: ``PT1M``, ``P14D``."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ferrymq_broker.config.units import MAX_DURATION, format_duration, parse_duration

_FORM: Final = re.compile(
    r"P(?:(\d{1,12})D)?(?:T(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,12}(?:\.\d{1,9})?)S)?)?"
)
# The milliseconds of each group of the form.
_UNITS: Final = (86_400_000, 3_600_000, 60_000, 1000)

# The longest duration of the vendor's services, which means that there is no limit.
FOREVER: Final = "P10675199DT2H48M5.4775807S"

_WRONG: Final = 'a duration is text of ISO 8601 like "PT1M" or "P14D", or like "30s"'


def milliseconds_of(value: object) -> int:
    """Return the milliseconds of a duration, rounded up; at most `MAX_DURATION`, which stands for
    no end.

    The text may also be in the form of the broker's configuration. Raises `ValueError`.
    """
    if not isinstance(value, str):
        raise ValueError(_WRONG)
    return _milliseconds(value.strip())


def text_of(milliseconds: int) -> str:
    """Return a duration for the text of an error."""
    return format_duration(milliseconds)


def write_duration(milliseconds: int) -> str:
    """Return the text of a duration; 0 and less mean no limit."""
    if milliseconds <= 0:
        return FOREVER
    days, rest = divmod(milliseconds, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds, thousandths = divmod(rest, 1000)
    fraction = f".{thousandths:03}".rstrip("0") if thousandths else ""
    time = f"{hours}H" if hours else ""
    time += f"{minutes}M" if minutes else ""
    time += f"{seconds}{fraction}S" if seconds or fraction else ""
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


@lru_cache(1024)
def _milliseconds(text: str) -> int:
    found = _FORM.fullmatch(text.upper())
    if found is None:
        try:
            return parse_duration(text)
        except ValueError:
            raise ValueError(_WRONG) from None
    if text[-1] in "PTpt":
        raise ValueError(_WRONG)
    total = Fraction(0)
    for amount, unit in zip(found.groups(), _UNITS, strict=True):
        if amount is not None:
            total += Fraction(amount) * unit
    return min(-int(-total // 1), MAX_DURATION)
