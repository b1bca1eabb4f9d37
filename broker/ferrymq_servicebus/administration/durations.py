"""Durations as XML Schema writes them, ``PT1M30S``, in milliseconds."""

from __future__ import annotations

import re
from typing import Final

from ferrymq_servicebus.administration.errors import HttpError

# The longest duration of the vendor's services, which means that there is no limit.
FOREVER: Final = "P10675199DT2H48M5.4775807S"
# A duration of at least so many milliseconds is no limit: about a thousand years.
_ENDLESS: Final = 365_000 * 86_400_000
_PATTERN: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,12})(?:\.(\d{1,9}))?S)?)?"
)


def read_duration(text: str) -> int:
    """Return the milliseconds of a duration; 0 for those that mean no limit. Raises `HttpError`
    (400)."""
    found = _PATTERN.fullmatch(text.strip())
    if found is None or len(text) < 3:
        raise HttpError(400, f"{text[:40]!r} is not a duration")
    days, hours, minutes, seconds, fraction = found.groups()
    whole = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60
    whole += int(seconds or 0)
    milliseconds = whole * 1000 + int((fraction or "0").ljust(3, "0")[:3])
    return 0 if milliseconds >= _ENDLESS else milliseconds


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
