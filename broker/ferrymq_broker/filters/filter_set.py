"""The filter-set of a source, parsed (AMQP 1.0 §3.5.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_codec.scalars import Described, Symbol

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter

# The values of `StreamPosition.kind`: where a reader of a stream begins.
FIRST: Final = 0
LAST: Final = 1
NEXT: Final = 2
OFFSET: Final = 3
TIME: Final = 4

# The descriptor of a filter that asks for a session of a queue.
SESSION_FILTER: Final = Symbol("ferrymq:session")


@final
class StreamPosition:
    """A position at which to begin reading a stream.

    `kind` is one of the five constants above: at the first record, at the last record, after the
    last record, at an offset, at a time. `value` is the offset, or milliseconds since the epoch.
    `inclusive` says whether a record exactly at the position is included.
    """

    __slots__ = ("kind", "value", "inclusive")

    def __init__(self, kind: i64, value: i64 = 0, inclusive: bool = True) -> None:
        self.kind: i64 = kind
        self.value: i64 = value
        self.inclusive: bool = inclusive


@final
class FilterSet:
    """The known filters of a source's filter-set.

    Messages have to pass `predicate`; None lets all pass. `position` is the position at which to
    begin in a stream; None if no filter sets it. `position_name` is the name of that filter in the
    set. `granted` has the filters to list in the answer; a node without positions calls
    `decline_position`. `refused` has the names of the other filters.

    Some clients write a position as a selector that compares the offsets of messages. Then
    `position_filters` is True: a node that begins at the position need not compare the offsets, and
    a node that does not uses `instead` as its predicate.

    `session_name` is the name of the filter that asks for a session, empty if there is none, and
    `session` the id of the session, None for the next free one. That filter is refused unless the
    node calls `grant_session`.
    """

    __slots__ = (
        "predicate",
        "position",
        "position_name",
        "position_filters",
        "instead",
        "session",
        "session_name",
        "granted",
        "refused",
    )

    def __init__(self) -> None:
        self.predicate: Filter | None = None
        self.position: StreamPosition | None = None
        self.position_name: str = ""
        self.position_filters: bool = False
        self.instead: Filter | None = None
        self.session: str | None = None
        self.session_name: str = ""
        self.granted: dict[str, object] = {}
        self.refused: list[str] = []

    def grant_session(self, id: str) -> None:
        """List the session that the link has got in the answer."""
        name = self.session_name
        if name in self.refused:
            self.refused.remove(name)
        self.granted[name] = Described(SESSION_FILTER, id)

    def decline_predicate(self) -> None:
        """Refuse all filters that select messages."""
        self.refused.extend(self.granted)
        self.granted.clear()
        self.predicate = None

    def decline_position(self) -> None:
        """Remove the position, because the node has no positions. A selector that set the position
        filters messages instead."""
        if self.position is None:
            return
        self.position = None
        if self.position_filters:
            self.predicate = self.instead
        else:
            self.granted.pop(self.position_name, None)
            self.refused.append(self.position_name)
