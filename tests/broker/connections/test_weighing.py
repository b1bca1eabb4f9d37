"""What is decoded is weighed as it is in memory."""

from __future__ import annotations

import pytest

from ferrymq_broker.connections.memory_cost import (
    ELEMENT,
    FILTER_CHARACTER,
    USUAL_SYMBOLS,
    cost_of_attach,
    cost_of_filters,
    count_elements,
)
from ferrymq_codec.containers import Array, PairMap, Repeated
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Modified, Rejected, Source, Target
from ferrymq_types.transport import Attach, Error, Role


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
    assert cost_of_attach(attach) == ELEMENT * (2 + 4 + 2 + 2)


def test_the_outcome_of_a_source() -> None:
    attach = Attach(name="n", handle=0, role=Role.RECEIVER)
    attach.source = Source(default_outcome=Modified(message_annotations={"a": [1, 2]}))
    assert cost_of_attach(attach) == ELEMENT * 4
    attach.source = Source(
        default_outcome=Rejected(error=Error(condition="amqp:internal-error", info={"a": 1}))
    )
    assert cost_of_attach(attach) == ELEMENT * 2


@pytest.mark.parametrize("where", ["offered", "desired", "outcomes", "source", "target"])
def test_symbols_above_the_usual_number(where: str) -> None:
    symbols = ["x"] * USUAL_SYMBOLS
    attach = Attach(name="n", handle=0, role=Role.RECEIVER)
    if where == "offered":
        attach.offered_capabilities = symbols
    elif where == "desired":
        attach.desired_capabilities = symbols
    elif where == "target":
        attach.target = Target(capabilities=symbols)
    else:
        attach.source = Source(
            outcomes=symbols if where == "outcomes" else None,
            capabilities=symbols if where == "source" else None,
        )
    assert cost_of_attach(attach) == 0
    symbols.append("one more")
    assert cost_of_attach(attach) == ELEMENT


def test_a_filter_weighs_what_it_is_made_into() -> None:
    attach = Attach(name="n", handle=0, role=Role.RECEIVER)
    assert cost_of_filters(attach) == 0
    attach.source = Source(filter={"f": Described("f", "a = 1"), "g": "b = 22", "h": None})
    assert cost_of_filters(attach) == FILTER_CHARACTER * 11
