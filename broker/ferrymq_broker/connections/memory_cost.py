"""The memory that a client's values take once they are decoded.

An empty list takes one byte on the wire and sixty in memory: limits that count only bytes would let
a client use sixty times as much.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from ferrymq_codec.containers import Array, PairMap, Repeated
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Modified, Rejected, Source, Target
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Attach

# Bytes of memory of a small value, with its place in a list or map.
ELEMENT: Final = 64
# Symbols that usual clients have in the lists of an attach; they are not counted.
USUAL_SYMBOLS: Final = 24
# Bytes of memory that a filter takes for each character of its text.
FILTER_CHARACTER: Final = 16


def cost_of_attach(attach: Attach) -> i64:
    """Return the memory of the maps and lists of an attach beyond their bytes, without its
    unsettled map."""
    source = attach.source
    target = attach.target
    values: list[object] = [attach.properties]
    symbols: i64 = _length(attach.offered_capabilities) + _length(attach.desired_capabilities)
    if isinstance(source, Source):
        values.append(source.filter)
        values.append(source.dynamic_node_properties)
        outcome = source.default_outcome
        if isinstance(outcome, TransactionalState):
            # The attach is refused for this outcome later.
            outcome = outcome.outcome
        if isinstance(outcome, Modified):
            values.append(outcome.message_annotations)
        elif isinstance(outcome, Rejected) and outcome.error is not None:
            values.append(outcome.error.info)
        symbols += _length(source.outcomes) + _length(source.capabilities)
    if isinstance(target, Target):
        values.append(target.dynamic_node_properties)
        symbols += _length(target.capabilities)
    if symbols < USUAL_SYMBOLS:
        symbols = USUAL_SYMBOLS
    return ELEMENT * (count_elements(values) + symbols - USUAL_SYMBOLS)


def cost_of_filters(attach: Attach) -> i64:
    """Return the memory of the filters of an attach once they are compiled.

    A selector of a few characters becomes several objects.
    """
    source = attach.source
    if not isinstance(source, Source) or source.filter is None:
        return 0
    weight: i64 = 0
    for value in source.filter.values():
        text = value.value if isinstance(value, Described) else value
        if isinstance(text, str):
            weight += FILTER_CHARACTER * len(text)
    return weight


def _length(symbols: list[str] | None) -> i64:
    return 0 if symbols is None else len(symbols)


def count_elements(values: list[object]) -> i64:
    """Return the number of these values and of the values inside them."""
    count: i64 = 0
    waiting = [value for value in values if value is not None]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            count += 2 * len(value)
            waiting.extend(value.keys())
            waiting.extend(value.values())
        elif isinstance(value, list):
            count += len(value)
            waiting.extend(value)
        elif isinstance(value, Described):
            count += 2
            waiting.append(value.value)
            waiting.append(value.descriptor)
        elif isinstance(value, PairMap):
            for key, item in value.items():
                count += 2
                waiting.append(key)
                waiting.append(item)
        elif isinstance(value, Array):
            items = value.items
            waiting.extend(value.descriptors)
            # A value that is repeated counts once.
            if isinstance(items, Repeated):
                count += 1
                waiting.append(items.value)
            else:
                count += len(items)
                waiting.extend(items)
    return count
