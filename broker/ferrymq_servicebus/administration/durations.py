"""Durations as XML Schema writes them, ``PT1M30S``."""

from __future__ import annotations

from typing import Final

# The longest duration of the vendor's services, which means that there is no limit.
FOREVER: Final = "P10675199DT2H48M5.4775807S"


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
