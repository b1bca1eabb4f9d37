"""Positions in streams, in the notations of several families of clients."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.expressions import Comparison, Literal
from ferrymq_broker.filters.filter import Filter
from ferrymq_broker.filters.filter_set import FIRST, LAST, NEXT, OFFSET, TIME, StreamPosition
from ferrymq_broker.filters.identifiers import Annotation
from ferrymq_broker.filters.selector import Selector
from ferrymq_broker.filters.values import GE, GT
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_codec.scalars import Timestamp

_WORDS: Final[dict[str, int]] = {"first": FIRST, "last": LAST, "next": NEXT}

# Annotations whose comparison in a selector means a position, and the kind of that position.
_ANNOTATIONS: Final[dict[str, int]] = {
    "x-opt-offset": OFFSET,
    "x-opt-sequence-number": OFFSET,
    "x-opt-enqueued-time": TIME,
}
_GREATEST: Final = 0x7FFF_FFFF_FFFF_FFFF


def position_of(value: object) -> StreamPosition:
    """Parse a position: ``first``, ``last``, ``next``, an offset or a timestamp.

    Raises `BrokerError` (amqp:invalid-field) for anything else.
    """
    if isinstance(value, str):
        kind = _WORDS.get(value)
        if kind is not None:
            return StreamPosition(kind)
    elif isinstance(value, Timestamp):
        return StreamPosition(TIME, int(value))
    elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _GREATEST:
        return StreamPosition(OFFSET, int(value))
    raise BrokerError(
        "amqp:invalid-field",
        f"a position is first, last, next, an offset or a timestamp, not {value!r:.60}",
    )


@final
class Since:
    """A selector that means a position in a stream.

    With ``amqp.annotation.x-opt-offset > '42'`` a stream begins at `position`. Other nodes filter
    by `predicate`, which is None if the position is the start or the end.
    """

    __slots__ = ("position", "predicate")

    def __init__(self, position: StreamPosition, predicate: Filter | None) -> None:
        self.position: StreamPosition = position
        self.predicate: Filter | None = predicate


def since(selector: Selector, words: dict[object, int]) -> Since | None:
    """Return the position that a selector means; None if it means something else.

    `words` are constants that stand for the start or the end of the stream in place of an offset.
    """
    comparison = selector.condition
    if not isinstance(comparison, Comparison) or (comparison.op != GT and comparison.op != GE):
        return None
    left = comparison.left
    right = comparison.right
    if not isinstance(left, Annotation) or not isinstance(right, Literal):
        return None
    kind = _ANNOTATIONS.get(left.name)
    if kind is None:
        return None
    bound = right.constant
    inclusive = comparison.op == GE
    if kind == OFFSET and bound in words:
        return Since(StreamPosition(words[bound]), None)
    number = _number(bound)
    if number is None:
        return None
    return Since(StreamPosition(kind, number, inclusive), _After(left.name, number, inclusive))


def _number(value: object) -> int | None:
    """Return a number that may be written as a string, as some clients write offsets."""
    if isinstance(value, str):
        if not 0 < len(value) <= 19 or not value.isascii() or not value.isdecimal():
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _GREATEST:
        return None
    return value


@final
class _After(Filter):
    """A filter that passes messages whose annotation is a number after a given one."""

    __slots__ = ("name", "bound", "inclusive")

    def __init__(self, name: str, bound: i64, inclusive: bool) -> None:
        super().__init__(f"after {name} {bound} {inclusive}")
        self.name = name
        self.bound: i64 = bound
        self.inclusive = inclusive

    def matches(self, message: BrokerMessage) -> bool:
        """Compare as numbers. A message without the annotation does not pass."""
        number = _number(view_of(message).message_annotations.get(self.name))
        if number is None:
            return False
        return number > self.bound or (self.inclusive and number == self.bound)
