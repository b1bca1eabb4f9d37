"""An attach that is refused at one of its steps leaves nothing of what the steps before did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferrymq_broker.connections.attach_properties import REQUIRE_FILTERS
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import DeleteOnClose, Source, Target, TerminusDurability
from tests.broker.harness import Client, Endpoint, Network

Attach = Callable[[Client], Endpoint]


def source(**fields: object) -> Attach:
    """A client that asks for messages of a new queue."""
    asked = Source(address="new", **fields)  # type: ignore[arg-type]
    return lambda client: client.receiver(None, source=asked)


def target(properties: dict[str, object] | None = None, **fields: object) -> Attach:
    """A client that brings messages for a new queue."""
    asked = Target(address="new", **fields)  # type: ignore[arg-type]
    return lambda client: client.sender(None, target=asked, properties=properties)


def dynamic(client: Client) -> Endpoint:
    """A client that asks for a node of its own, and for a filter that there is none of."""
    asked = Source(
        dynamic=True,
        filter={"unheard-of": Described("example:unheard-of", 1)},
        dynamic_node_properties={"lifetime-policy": DeleteOnClose()},
    )
    return client.receiver(None, source=asked, properties={REQUIRE_FILTERS: True})


# The step at which each of them is refused.
REFUSED: dict[str, Attach] = {
    "read the source": source(outcomes=["amqp:unheard-of"]),
    "read the target": target(dynamic_node_properties={"lifetime-policy": DeleteOnClose()}),
    "negotiate a source": source(capabilities=["temporary-topic"]),
    "negotiate a target": target({"delivery-mode": "some-time"}),
    "open a source": source(distribution_mode="sideways"),
    "open a dynamic node": dynamic,
    "open a target": target({"paired": True}),
    "restore a source": source(durable=TerminusDurability.UNSETTLED_STATE, timeout=60),
    "restore a target": target(timeout=60),
}


@pytest.mark.parametrize("step", REFUSED)
def test_a_refused_attach_leaves_nothing(step: str) -> None:
    net = Network()
    shared = net.broker.shared
    shared.termini.per_user = 1
    kept = net.connect().sender("q", name="kept", target=Target(address="q", timeout=60))
    client = net.connect()
    nodes, names, termini = set(net.space.nodes), len(shared.names), len(shared.termini)
    refused = REFUSED[step](client)
    assert refused.detached and refused.error is not None, "it was not refused"
    assert set(net.space.nodes) == nodes
    assert (len(shared.names), len(shared.termini)) == (names, termini)
    assert not client.handler.parts.allowance._sizes
    assert not len(client.handler.links.dynamic_nodes)
    assert not kept.detached


def test_a_link_that_is_refused_behind_its_name_leaves_the_name_free() -> None:
    net = Network()
    first, second = net.connect(container_id="c"), net.connect(container_id="c")
    before = first.receiver("q", name="one")
    asked = Source(address="q", distribution_mode="sideways")
    refused = second.receiver(None, source=asked, name="one")
    assert refused.error is not None and refused.error.condition == "amqp:not-implemented"
    # The name was taken before the node was asked.
    assert before.error is not None and before.error.condition == "amqp:link:stolen"
    assert len(net.broker.shared.names) == 0
    assert second.receiver("q", name="one").link.usable
