"""What a client's words weigh once they are decoded.

An empty list has one byte on the wire and sixty in memory: whoever only counts bytes can be made to
keep sixty times as many.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from ferrymq_codec.containers import Array, PairMap, Repeated
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Attach

# Bytes of memory of a small value, with its place in what holds it.
ELEMENT: Final = 64


def weigh_attach(attach: Attach) -> i64:
    """What its maps weigh beyond their bytes, without its unsettled map."""
    source = attach.source
    target = attach.target
    values: list[object] = [attach.properties]
    if isinstance(source, Source):
        values.append(source.filter)
        values.append(source.dynamic_node_properties)
    if isinstance(target, Target):
        values.append(target.dynamic_node_properties)
    return ELEMENT * count_elements(values)


def count_elements(values: list[object]) -> i64:
    """How many values there are in these and in what they hold."""
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
            # The same value many times over is one.
            if isinstance(items, Repeated):
                count += 1
                waiting.append(items.value)
            else:
                count += len(items)
                waiting.extend(items)
    return count
