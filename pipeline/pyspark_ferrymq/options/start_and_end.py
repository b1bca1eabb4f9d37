"""The start and the end of reading: offsets, timestamps, or an offset from a checkpoint.

Offsets are written as in Spark's Kafka connector: ``earliest``, ``latest``, or
``{"orders":{"0":23,"1":-1}}``, in which -2 is the earliest and -1 the latest. The offset of a
query's checkpoint is also allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.offsets import EARLIEST, LATEST, Offset, OffsetError
from pyspark_ferrymq.options.option_values import LONGEST, Values, wrong

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")
# Examples allowed in all uses of an option, and the special offsets of an option.
_SHAPES: Final = {
    "startingOffsets": '{"orders":{"0":23,"1":-2}}',
    "endingOffsets": '{"orders":{"0":23,"1":-1}}',
}
_PLACES: Final = {
    "startingOffsets": "-2 for the earliest, or in a query -1 for the latest",
    "endingOffsets": "-1 for the latest",
}
_STARTING_TIMES: Final = "startingOffsetsByTimestamp"
_ENDING_TIMES: Final = "endingOffsetsByTimestamp"
_TIMES_SHAPE: Final = '{"orders":{"0":1767225600000,"1":1767225600000}}'
_WORDS: Final = {"startingOffsets": "earliest, latest", "endingOffsets": "latest"}


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The first record, or the end after the last record."""

    place: Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record appended at this time, in milliseconds since the epoch, or later.

    `otherwise` says what to do with a partition without such a record.
    """

    time: int
    otherwise: Literal["error", "latest"]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """As `AtTime`, with a time for each partition of each stream."""

    option: str
    times: dict[str, dict[int, int]]
    otherwise: Literal["error", "latest"]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition of each stream; `EARLIEST` and `LATEST` are allowed too."""

    option: str
    offsets: dict[str, dict[int, int]]

    @property
    def places(self) -> str:
        """The special numbers that the option allows instead of an offset, for messages."""
        return _PLACES[self.option]


@dataclass(frozen=True, slots=True)
class AtCheckpoint:
    """The offset from a query's checkpoint."""

    option: str
    offset: Offset


Bound: TypeAlias = AtEnd | AtTime | AtTimes | AtOffsets | AtCheckpoint


def starting(given: Values) -> Bound | None:
    """Return the start; None if no option sets it. Raises `AmqpOptionError`."""
    option = given.at_most_one("startingOffsets", "startingTimestamp", _STARTING_TIMES)
    if not given.has(_STARTING_TIMES):
        given.needs("startingOffsetsByTimestampStrategy", "startingTimestamp")
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    otherwise: Literal["error", "latest"] = "latest" if strategy == "latest" else "error"
    if option == "startingTimestamp":
        return AtTime(_time(given, option), otherwise)
    if option == _STARTING_TIMES:
        return AtTimes(option, _numbers(given, option, _TIMES_SHAPE, 0, "a time"), otherwise)
    return None if option is None else _offsets(given, option)


def ending(given: Values) -> Bound | None:
    """Return the end; None if no option sets it. Raises `AmqpOptionError`."""
    option = given.at_most_one("endingOffsets", "endingTimestamp", _ENDING_TIMES)
    if option == "endingTimestamp":
        return AtTime(_time(given, option), "latest")
    if option == _ENDING_TIMES:
        return AtTimes(option, _numbers(given, option, _TIMES_SHAPE, 0, "a time"), "latest")
    if option is None:
        return None
    bound = _offsets(given, option)
    if bound == AtEnd("earliest"):
        raise wrong(option, given.text(option), f"latest, or JSON such as {_SHAPES[option]}")
    if isinstance(bound, AtOffsets):
        for name, partition in _placed(bound, EARLIEST):
            raise wrong(
                option,
                given.text(option),
                f"an offset, or -1 for the latest; {name}::{partition} has -2, the earliest",
            )
    return bound


def check_batch(start: Bound | None) -> None:
    """Raise `AmqpOptionError` for a start after which a batch has no records to read."""
    if start == AtEnd("latest"):
        raise wrong(
            "startingOffsets",
            "latest",
            f"earliest, or JSON such as {_SHAPES['startingOffsets']}, as this is a batch",
        )
    if isinstance(start, AtOffsets):
        for name, partition in _placed(start, LATEST):
            raise AmqpOptionError(
                f"option 'startingOffsets': {name}::{partition} has -1, the latest, which is not"
                " allowed in a batch; it has to be an offset, or -2 for the earliest"
            )


def _placed(bound: AtOffsets, place: int) -> list[tuple[str, int]]:
    return [
        (name, partition)
        for name, offsets in bound.offsets.items()
        for partition, offset in offsets.items()
        if offset == place
    ]


def _time(given: Values, option: str) -> int:
    time = given.number(option)
    assert time is not None
    return time


def _offsets(given: Values, option: str) -> Bound:
    value = given.required(option)
    word = value.strip().lower()
    shape = _SHAPES[option]
    if word == "earliest":
        return AtEnd("earliest")
    if word == "latest":
        return AtEnd("latest")
    if not word.startswith("{"):
        raise wrong(option, value, f"{_WORDS[option]}, or JSON such as {shape}")
    found = given.json(option, shape)
    if "streams" in found and "v" in found:
        try:
            return AtCheckpoint(option, Offset.from_json(found))
        except OffsetError as error:
            raise AmqpOptionError(f"option {option!r}: {error}") from None
    what = f"an offset, or {_PLACES[option]}"
    return AtOffsets(option, _numbers(given, option, shape, EARLIEST, what))


def _numbers(
    given: Values, option: str, shape: str, least: int, what: str
) -> dict[str, dict[int, int]]:
    """Return a number for each partition of each stream, from JSON such as `shape`."""
    value = given.required(option)
    found: dict[str, dict[int, int]] = {}
    for name, partitions in given.json(option, shape).items():
        if not isinstance(partitions, dict):
            raise wrong(option, value, f"JSON such as {shape} ({name!r})")
        found[name] = {}
        for number, each in partitions.items():
            # Numbers as in JSON: otherwise "0" and "00" would be the same partition.
            if not _NUMBER.fullmatch(number):
                raise wrong(option, value, f"JSON such as {shape} ({name!r}: {number!r})")
            if type(each) is not int or not least <= each <= LONGEST:
                raise wrong(option, value, f"{what} ({name}::{number})")
            found[name][int(number)] = each
    return found
