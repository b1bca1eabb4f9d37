"""The filters of a source, read together (AMQP 1.0 §3.5.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter

# Where a reader of a stream begins: what `StreamPosition.kind` can be.
FIRST: Final = 0
LAST: Final = 1
NEXT: Final = 2
OFFSET: Final = 3
TIME: Final = 4


@final
class StreamPosition:
    """Where to begin in a stream.

    `kind` is one of the five above: at the first record there is, at the last one, behind it, at an
    offset, at a time. `value` is the offset, or milliseconds since the epoch. `inclusive` says
    whether a record right at it is wanted.
    """

    __slots__ = ("kind", "value", "inclusive")

    def __init__(self, kind: i64, value: i64 = 0, inclusive: bool = True) -> None:
        self.kind: i64 = kind
        self.value: i64 = value
        self.inclusive = inclusive


@final
class FilterSet:
    """What a source's filter-set asks for, as far as it is understood.

    `predicate` is what messages have to pass, None if all do. `position` is where to begin, None
    without a word on it; `position_name` is the name of that filter in the set. `granted` is what
    the answer may list: the node that knows no positions calls `decline_position`. `refused` are
    the names of the others.

    Some clients write a position as a selector on the offsets of messages. `position_filters` says
    that it is such a one: what begins there needs not look at them, and what does not has `instead`
    for its predicate.
    """

    __slots__ = (
        "predicate",
        "position",
        "position_name",
        "position_filters",
        "instead",
        "granted",
        "refused",
    )

    def __init__(self) -> None:
        self.predicate: Filter | None = None
        self.position: StreamPosition | None = None
        self.position_name = ""
        self.position_filters = False
        self.instead: Filter | None = None
        self.granted: dict[str, object] = {}
        self.refused: list[str] = []

    def decline_position(self) -> None:
        """The node has no positions to begin at: it goes without, or looks at every message."""
        if self.position is None:
            return
        self.position = None
        if self.position_filters:
            self.predicate = self.instead
        else:
            self.granted.pop(self.position_name, None)
            self.refused.append(self.position_name)
