"""The selection of streams: the options `subscribe`, `subscribePattern` and `assign`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.options.names import CHOOSING
from pyspark_ferrymq.options.option_values import Values, shown, wrong

_ASSIGN_SHAPE = '{"orders":[0,1]}'


@dataclass(frozen=True, slots=True)
class Selection:
    """The nodes to read: by name, or by a pattern that must match the whole name.

    `partitions` has the partitions of each node if only some are read.
    """

    option: str
    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Values) -> Selection:
        """Parse the options. Raises `AmqpOptionError`, also if none or more than one is given."""
        option = given.at_most_one(*CHOOSING)
        if option is None:
            raise AmqpOptionError(
                f"no option says what to read: give one of {', '.join(map(repr, CHOOSING))}"
            )
        if option == "subscribe":
            return cls(option, _names(given.required(option)))
        if option == "subscribePattern":
            pattern = given.required(option)
            try:
                re.compile(pattern)
            except re.error as error:
                raise wrong(option, pattern, f"a regular expression: {error}") from None
            return cls(option, pattern=pattern)
        partitions = _assigned(given)
        return cls(option, tuple(partitions), partitions=partitions)

    def matches(self, name: str) -> bool:
        """Return whether a node of this name is selected."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, name) is not None
        return name in self.names

    def reads(self, name: str, partition: int) -> bool:
        """Return whether this partition of a node is selected."""
        some = self.partitions.get(name)
        return some is None or partition in some

    def __str__(self) -> str:
        """Return the selection in the form of an option, for messages."""
        what = self.pattern if self.pattern is not None else ",".join(self.names)
        return f"{self.option} = {shown(what)}"


def _names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise wrong("subscribe", value, "names of streams, with commas in between")
    for name in names:
        if "::" in name:
            raise wrong(
                "subscribe", value, f"names of streams; partitions are chosen by assign ({name!r})"
            )
    return names


def _assigned(given: Values) -> dict[str, tuple[int, ...]]:
    value = given.required("assign")
    partitions: dict[str, tuple[int, ...]] = {}
    for name, numbers in given.json("assign", _ASSIGN_SHAPE).items():
        if (
            not isinstance(numbers, list)
            or not numbers
            or not all(type(number) is int and number >= 0 for number in numbers)
        ):
            raise wrong("assign", value, f"lists of partitions such as {_ASSIGN_SHAPE} ({name!r})")
        partitions[name] = tuple(sorted(set(numbers)))
    if not partitions:
        raise wrong("assign", value, f"lists of partitions such as {_ASSIGN_SHAPE}")
    return dict(sorted(partitions.items()))
