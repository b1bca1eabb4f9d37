"""Conversion of option values from text, with errors that name the option."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark_ferrymq.errors import AmqpOptionError

_SHOWN: Final = 200
# No number has more digits than the largest one.
_DURATION: Final = re.compile(r"([0-9]{1,19})\s*([a-z]*)")
_UNITS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_BYTES: Final = re.compile(r"([0-9]{1,19})\s*([kmgt]?)(i?b)?")
LONGEST: Final = (1 << 63) - 1
"""The largest number allowed in an option, and the largest offset."""


class Values:
    """The given options by name, in any case.

    Each method reads one option and raises `AmqpOptionError` with the option, its value and the
    allowed values. A missing option has its default.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def has(self, name: str) -> bool:
        """Return whether the option is given."""
        return name.lower() in self._given

    def given(self, names: Iterable[str]) -> list[str]:
        """Return the names that are given."""
        return [name for name in names if self.has(name)]

    def at_most_one(self, *names: str) -> str | None:
        """Return the name that is given; None if none is. Raise `AmqpOptionError` if several
        are."""
        given = self.given(names)
        if len(given) > 1:
            raise AmqpOptionError(
                f"the options {' and '.join(map(repr, given))} exclude each other: give one"
            )
        return given[0] if given else None

    def needs(self, name: str, other: str) -> None:
        """Raise `AmqpOptionError` if an option is given without another option that it needs."""
        if self.has(name) and not self.has(other):
            raise AmqpOptionError(f"the option {name!r} needs the option {other!r}")

    def text(self, name: str) -> str | None:
        """Return a text; None if the option is missing. Raise `AmqpOptionError` for an empty
        text."""
        value = self._given.get(name.lower())
        if value is not None and not value.strip():
            raise AmqpOptionError(f"option {name!r}: it is empty; leave it out, or give a value")
        return value

    def required(self, name: str) -> str:
        """Return a text that must be given."""
        value = self.text(name)
        if value is None:
            raise AmqpOptionError(f"the option {name!r} is missing")
        return value

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        """Return one of the allowed words, which may be given in any case."""
        value = self.text(name)
        if value is None:
            return default
        words = {word.lower(): word for word in allowed}
        word = words.get(value.strip().lower())
        if word is None:
            raise wrong(name, value, f"one of {', '.join(words.values())}")
        return word

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def number(self, name: str, minimum: int = 0, maximum: int = LONGEST) -> int | None:
        """Return an integer."""
        value = self.text(name)
        if value is None:
            return None
        return _within(name, value, _integer(value.strip()), minimum, maximum)

    def milliseconds(self, name: str, minimum: int = 0) -> int | None:
        """Return a duration in milliseconds; the value may have a unit (ms, s, m, h, d)."""
        value = self.text(name)
        if value is None:
            return None
        return _within(
            name,
            value,
            milliseconds_of(value),
            minimum,
            LONGEST,
            " of milliseconds, or such as 30s, 5m",
        )

    def size(self, name: str, minimum: int = 1, maximum: int = LONGEST) -> int | None:
        """Return a number of bytes; the value may have a unit (k, m, g: powers of 1024)."""
        value = self.text(name)
        if value is None:
            return None
        match = _BYTES.fullmatch(value.strip().lower())
        size = None
        if match is not None:
            size = int(match[1]) << (10 * " kmgt".index(match[2] or " "))
        return _within(name, value, size, minimum, maximum, " of bytes, or such as 64k, 10m, 1g")

    def json(self, name: str, shape: str) -> dict[str, object]:
        """Return a JSON object; `shape` is an example for the error message."""
        value = self.required(name)
        try:
            found = json.loads(value)
        except ValueError as error:
            raise AmqpOptionError(
                f"option {name!r}: {shown(value)} is not JSON ({error}); an example is {shape}"
            ) from None
        if not isinstance(found, dict):
            raise wrong(name, value, f"a JSON object such as {shape}")
        return found


def kafka_columns(given: Values) -> bool:
    """Return whether the columns are those of Kafka, by the option `columns`.

    Raises `AmqpOptionError` for an option that needs them.
    """
    if given.choice("columns", ("amqp", "kafka"), "amqp") == "kafka":
        return True
    if given.has("includeHeaders"):
        raise AmqpOptionError(
            "the option 'includeHeaders' needs the option 'columns' = kafka; without it, the column"
            " 'applicationProperties' has the headers of messages"
        )
    if given.has("topic"):
        raise AmqpOptionError(
            "the option 'topic' needs the option 'columns' = kafka; without it, the option"
            " 'address' names the node to write to"
        )
    return False


def milliseconds_of(text: str) -> int | None:
    """Parse a duration, such as ``250``, ``250ms``, ``5m`` or ``2 minutes``; None if it is not one.

    A number without a unit is milliseconds.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        return None
    unit = match[2]
    size = _UNITS.get(unit) or (_UNITS.get(unit[:-1]) if len(unit) > 4 else None)
    return None if size is None else int(match[1]) * size


def shown(value: object) -> str:
    """Return a value in the form for messages, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def wrong(name: str, value: object, allowed: str) -> AmqpOptionError:
    """Return the error for a value that is not allowed."""
    return AmqpOptionError(
        f"option {name!r}: {shown(value)} is not allowed; it has to be {allowed}"
    )


def _integer(text: str) -> int | None:
    try:
        return int(text) if text.isascii() else None
    except ValueError:
        return None


def _within(
    name: str, value: str, number: int | None, minimum: int, maximum: int, unit: str = ""
) -> int:
    if number is None or not minimum <= number <= maximum:
        bound = f", {minimum} or more" if maximum == LONGEST else f" from {minimum} to {maximum}"
        raise wrong(name, value, f"a number{unit}{bound}")
    return number
