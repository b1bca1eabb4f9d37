"""Capabilities that name a kind of node, and what a consumer asks for itself."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_codec.scalars import Byte, Decimal32, Decimal64, Float32, Int, Symbol, UByte
from ferrymq_types.messaging import Source, Target
from tests.broker.harness import Endpoint, Network
from tests.broker.test_termini import refused


def properties_of(endpoint: Endpoint) -> dict[str, object]:
    attach = endpoint._link.remote_attach
    assert attach is not None
    return attach.properties or {}


def test_a_name_that_is_free_becomes_what_the_link_asks_for(net: Network) -> None:
    client = net.connect()
    client.receiver(None, source=Source(address="t", capabilities=["topic"]))
    client.sender(None, target=Target(address="q", capabilities=["queue"]))
    client.sender("default")
    kinds = {name: node.kind for name, node in net.space.nodes.items() if "::" not in name}
    assert kinds == {"t": "topic", "q": "queue", "default": "queue"}


@pytest.mark.parametrize(
    ("address", "capability"), [("q", "topic"), ("t", "queue"), ("s", "queue"), ("x", "queue")]
)
def test_a_contradiction_is_refused(net: Network, address: str, capability: str) -> None:
    net.space.create("q", QueuePolicy())
    net.space.create("t", TopicPolicy())
    net.space.create("s", StreamPolicy())
    net.space.create("x", ExchangePolicy())
    client = net.connect()
    receiver = client.receiver(None, source=Source(address=address, capabilities=[capability]))
    assert refused(receiver, "amqp:precondition-failed")
    sender = client.sender(None, target=Target(address=address, capabilities=[capability]))
    assert refused(sender, "amqp:precondition-failed")
    assert address in str(sender.error and sender.error.description)


@pytest.mark.parametrize("address", ["t", "s", "x"])
def test_who_publishes_to_many_publishes_to_a_topic(net: Network, address: str) -> None:
    net.space.create("t", TopicPolicy())
    net.space.create("s", StreamPolicy())
    net.space.create("x", ExchangePolicy())
    sender = net.connect().sender(None, target=Target(address=address, capabilities=["topic"]))
    assert sender.link.usable and sender.remote_target.capabilities == ["topic"]


def test_unknown_capabilities_do_not_come_back(net: Network) -> None:
    client = net.connect()
    receiver = client.receiver(None, source=Source(address="q", capabilities=["queue", "flying"]))
    assert receiver.remote_source.capabilities == ["queue"]
    sender = client.sender(None, target=Target(address="q", capabilities=["flying"]))
    assert sender.remote_target.capabilities is None


def test_links_are_offered_what_they_desire_and_can_have(net: Network) -> None:
    client = net.connect()
    net.space.create("s", StreamPolicy())
    desired = ["DELAYED_DELIVERY", "flying"]
    offered = {}
    for address in ("q", "s"):
        link = client.session.attach_sender(
            f"to-{address}", target=Target(address=address), desired_capabilities=desired
        )
        client.links[link] = Endpoint(client, link)
        net.run()
        assert link.remote_attach is not None
        offered[address] = link.remote_attach.offered_capabilities
    assert offered == {"q": ["DELAYED_DELIVERY"], "s": None}


@pytest.mark.parametrize(
    ("policy", "offered"),
    [
        (QueuePolicy(), True),
        (QueuePolicy(max_length=5), True),
        (QueuePolicy(max_length=5, overflow="block"), True),
        (QueuePolicy(max_length=5, overflow="drop-head"), False),
        (QueuePolicy(max_bytes=5, overflow="dead-letter", dead_letter="d"), False),
        (QueuePolicy(duplicate_window=1000), False),
        (QueuePolicy(last_value_key="key"), False),
        (QueuePolicy(groups=True), False),
        (TopicPolicy(), False),
    ],
)
def test_a_queue_offers_to_take_back_what_does_no_harm_there(
    net: Network, policy: QueuePolicy | TopicPolicy, offered: bool
) -> None:
    client = net.connect()
    net.space.create("back", policy)
    link = client.session.attach_sender(
        "back", target=Target(address="back"), desired_capabilities=["ferrymq:requeue"]
    )
    client.links[link] = Endpoint(client, link)
    net.run()
    assert link.remote_attach is not None
    expected = ["ferrymq:requeue"] if offered else None
    assert link.remote_attach.offered_capabilities == expected


# -- priority and exclusive use ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["priority", "rabbitmq:priority", "x-priority"])
@pytest.mark.parametrize(
    "value", [5, Int(5), UByte(5), Byte(5), 5.0, Float32(5), Decimal("5.0"), Decimal32(5)], ids=repr
)
def test_a_consumer_with_priority_goes_first(
    net: Network, name: str, value: float | Decimal
) -> None:
    client = net.connect()
    low = client.receiver("q", credit=9)
    high = client.receiver("q", credit=2, properties={name: value})
    assert properties_of(high) == {name: 5}
    client.sender("q").send(b"1", b"2", b"3")
    assert high.bodies() == [b"1", b"2"]
    assert low.bodies() == [b"3"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("5", "not a number"),
        (True, "not a number"),
        (None, "not a number"),
        (5.5, "must be a whole number"),
        (float("nan"), "must be a whole number"),
        (float("-inf"), "must be a whole number"),
        (Decimal("0.1"), "must be a whole number"),
        (Decimal64("sNaN"), "must be a whole number"),
        (2**31, "must fit into 32 bits"),
        (1e300, "must fit into 32 bits"),
        (Decimal("1e6000"), "must fit into 32 bits"),
    ],
    ids=repr,
)
def test_a_priority_that_is_none_is_refused(net: Network, value: object, why: str) -> None:
    receiver = net.connect().receiver("q", properties={"priority": value})
    assert refused(receiver, "amqp:invalid-field")
    assert receiver.error is not None
    description = str(receiver.error.description)
    assert "'priority'" in description and why in description


@pytest.mark.parametrize("how", ["property", "exclusive", "exclusive-consumer"])
def test_exclusive_use(net: Network, how: str) -> None:
    client, other = net.connect(), net.connect()
    if how == "property":
        alone = client.receiver("q", properties={"exclusive": True})
        assert properties_of(alone) == {"exclusive": True}
    else:
        alone = client.receiver(None, source=Source(address="q", capabilities=[how]))
        assert alone.remote_source.capabilities == [how]
    assert refused(other.receiver("q"), "amqp:resource-locked")
    # Who looks on takes nothing.
    assert other.receiver("q", mode="copy").link.usable
    alone.close()
    shared = other.receiver("q")
    assert shared.link.usable
    assert refused(client.receiver("q", properties={"exclusive": True}), "amqp:resource-locked")


def test_exclusive_use_is_taken_over_with_the_name_of_the_link(net: Network) -> None:
    """A client that lost its connection is not kept out by what is left of it."""
    exclusive: dict[str, object] = {"exclusive": True}
    one, two = (net.connect(container_id="worker") for _ in range(2))
    one.receiver("q", name="link", properties=exclusive)
    assert two.receiver("q", name="link", properties=exclusive).link.usable


def test_nodes_without_exclusive_use_refuse_it(net: Network) -> None:
    net.space.create("s", StreamPolicy())
    receiver = net.connect().receiver("s", properties={"exclusive": True})
    assert refused(receiver, "amqp:not-implemented")


@pytest.mark.parametrize("value", ["yes", 1, Symbol("true")], ids=repr)
def test_exclusive_is_a_boolean(net: Network, value: object) -> None:
    receiver = net.connect().receiver("q", properties={"exclusive": value})
    assert refused(receiver, "amqp:invalid-field")
    assert net.connect().receiver("q", properties={"exclusive": False}).link.usable


# -- distribution modes ------------------------------------------------------------------------


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize(("address", "mode"), [("t", "move"), ("s", "move"), ("q", "shred")])
def test_a_mode_the_node_does_not_have_is_refused(net: Network, address: str, mode: str) -> None:
    net.space.create("q", QueuePolicy())
    net.space.create("t", TopicPolicy())
    net.space.create("s", StreamPolicy())
    receiver = net.connect().receiver(address, mode=mode)
    assert refused(receiver, "amqp:not-implemented")


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize(("address", "mode"), [("t", "copy"), ("s", "copy"), ("q", "move")])
def test_the_mode_is_the_nodes_where_nobody_asks(net: Network, address: str, mode: str) -> None:
    net.space.create("q", QueuePolicy())
    net.space.create("t", TopicPolicy())
    net.space.create("s", StreamPolicy())
    assert net.connect().receiver(address).remote_source.distribution_mode == mode
