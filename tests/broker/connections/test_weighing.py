"""What is decoded is weighed as it is in memory."""

from __future__ import annotations

import pytest

from ferrymq_broker.connections.weighing import ELEMENT, count_elements, weigh_attach
from ferrymq_codec.containers import Array, PairMap, Repeated
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Attach, Role


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (None, 0),
        ("text", 0),
        ([], 0),
        ([[], [], []], 3),
        ({"a": [1, 2]}, 4),
        (Described("x", [1, 2]), 4),
        (PairMap([([], 1)]), 2),
        (Array("uint", [1, 2, 3]), 3),
        (Array("null", Repeated(None, 1 << 32)), 1),
    ],
)
def test_every_value_counts(value: object, count: int) -> None:
    assert count_elements([value]) == count


def test_depth_is_no_matter() -> None:
    value: object = []
    for _ in range(100_000):
        value = [value]
    assert count_elements([value]) == 100_000


def test_the_maps_of_an_attach() -> None:
    attach = Attach(name="n", handle=0, role=Role.SENDER, properties={"a": 1})
    attach.source = Source(filter={"f": Described("f", "x")}, dynamic_node_properties={"b": 1})
    attach.target = Target(dynamic_node_properties={"c": 1})
    assert weigh_attach(attach) == ELEMENT * (2 + 4 + 2 + 2)
