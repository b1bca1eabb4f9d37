"""Values in selectors, and their comparison (JMS 2.0 §3.8.1).

Values are numbers, strings, booleans and binary values; None stands for NULL. All integer types of
AMQP are int; float, double and decimals are float; timestamps are milliseconds since the epoch;
symbols, chars and UUIDs are strings.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final
from uuid import UUID

from mypy_extensions import i64

# The results of conditions.
FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2

# The comparison operators. The first two need no order.
EQ: Final = 0
NE: Final = 1
LT: Final = 2
LE: Final = 3
GT: Final = 4
GE: Final = 5


def plain(value: object) -> object:
    """Convert a value of a message to one of the kinds above. Other values stay as they are."""
    if value is None or isinstance(value, (str, int, float, bytes)):
        return value
    if isinstance(value, Decimal):
        return None if value.is_nan() else float(value)
    if isinstance(value, UUID):
        return str(value)
    return value


def compare(op: i64, left: object, right: object) -> i64:
    """Compare two values: ``left op right``.

    The result is unknown if either is NULL, and false if they are of different kinds or cannot be
    ordered. Exact and approximate numbers are of one kind, and so are strings and the binary values
    of their UTF-8. Strings are ordered by code points.
    """
    if left is None or right is None:
        return UNKNOWN
    if isinstance(left, str):
        if isinstance(right, str):
            return _holds(op, left == right, left < right)
        if isinstance(right, bytes) and op <= NE:
            return _truth((left.encode("utf-8", "surrogatepass") == right) == (op == EQ))
        return FALSE
    if isinstance(left, bool):
        if isinstance(right, bool) and op <= NE:
            return _truth((left is right) == (op == EQ))
        return FALSE
    if isinstance(left, (int, float)):
        if isinstance(right, bool) or not isinstance(right, (int, float)):
            return FALSE
        return _compare_numbers(op, left, right)
    if isinstance(left, bytes) and op <= NE:
        if isinstance(right, bytes):
            return _truth((left == right) == (op == EQ))
        if isinstance(right, str):
            return _truth((right.encode("utf-8", "surrogatepass") == left) == (op == EQ))
    return FALSE


def same(left: object, right: object) -> bool:
    """Return whether two values are equal and of one kind. NULL equals nothing."""
    return compare(EQ, plain(left), plain(right)) == TRUE


def _truth(value: bool) -> i64:
    return TRUE if value else FALSE


def _holds(op: i64, equal: bool, less: bool) -> i64:
    """Return the result of a comparison from the order of the two values."""
    if op == EQ:
        return _truth(equal)
    if op == NE:
        return _truth(not equal)
    if op == LT:
        return _truth(less)
    if op == LE:
        return _truth(less or equal)
    if op == GT:
        return _truth(not less and not equal)
    return _truth(not less)


def _compare_numbers(op: i64, left: int | float, right: int | float) -> i64:
    if isinstance(left, int) and isinstance(right, int):
        # The most common case. Compiled code needs no general comparison here.
        return _holds(op, left == right, left < right)
    if left != left or right != right:
        # NaN is not equal to anything and has no order.
        return _truth(op == NE)
    return _holds(op, left == right, left < right)
