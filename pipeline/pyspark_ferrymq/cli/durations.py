"""Durations on the command line: ``500ms``, ``1s``, ``5m``, or in words, ``1 minute``."""

from __future__ import annotations

from typing import Final

import typer

from pyspark_ferrymq.options.option_values import milliseconds_of

_NAMED: Final[tuple[tuple[str, int], ...]] = (
    ("day", 86_400_000),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1000),
    ("millisecond", 1),
)


def duration(text: str) -> str:
    """Convert a duration, which may be zero, to Spark's form: ``1s`` to ``1 second``.

    Raises `typer.BadParameter` for anything else.
    """
    span = None if text.strip().isdecimal() else milliseconds_of(text)
    if span is None:
        raise typer.BadParameter(f"{text!r} is not a duration; examples: 500ms, 30s, 5m, 2h, 1d")
    name, size = next(unit for unit in _NAMED if span % unit[1] == 0 and (span or unit[1] == 1000))
    count = span // size
    return f"{count} {name}{'' if count == 1 else 's'}"


def span(text: str) -> str:
    """Convert a duration as `duration` does, and refuse zero."""
    words = duration(text)
    if words.startswith("0 "):
        raise typer.BadParameter(f"{text!r} has to be more than zero")
    return words


def seconds(text: str) -> float:
    """Convert a duration to seconds; a bare number is seconds. Raises `typer.BadParameter`."""
    try:
        count = float(text)
    except ValueError:
        milliseconds = milliseconds_of(text)
        count = -1.0 if milliseconds is None else milliseconds / 1000
    if not 0 <= count < 1e9:
        raise typer.BadParameter(f"{text!r} is not a duration; examples: 500ms, 30s, 5m")
    return count
