"""Sorting the entities of a QUERY by an attribute, in steps."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from ferrymq_broker.management.sliced_query import Steps

# A value in an order for values of all types: missing ones, numbers, texts and others.
_Order: TypeAlias = tuple[int, float, str]

# The entities that are sorted, or taken from the sorted ones, in one step.
_STEP: Final = 500


def sorted_part(
    identities: list[str],
    value: Callable[[str], object],
    descending: bool,
    start: int,
    stop: int,
) -> Steps[list[str]]:
    """Return the identities from `start` to before `stop`, sorted by a value. Equal ones keep their
    order; those without a value come last."""
    missing = -1 if descending else 3
    parts: list[list[tuple[_Order, str]]] = []
    for at in range(0, len(identities), _STEP):
        part = [
            (_order(value(identity), missing), identity) for identity in identities[at : at + _STEP]
        ]
        part.sort(key=_first, reverse=descending)
        parts.append(part)
        yield None
    found: list[str] = []
    merged: Iterable[tuple[_Order, str]] = heapq.merge(*parts, key=_first, reverse=descending)
    for at, (_, identity) in enumerate(merged):
        if at >= stop:
            break
        if at >= start:
            found.append(identity)
        if at % _STEP == _STEP - 1:
            yield None
    return found


def _first(pair: tuple[_Order, str]) -> _Order:
    return pair[0]


def _order(value: object, missing: int) -> _Order:
    if value is None:
        return missing, 0.0, ""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return (1, 0.0, value) if isinstance(value, str) else (2, 0.0, str(value))
