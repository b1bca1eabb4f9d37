"""Dynamic nodes live as long as they were asked to (AMQP 1.0 §3.5.10–13)."""

from __future__ import annotations

from typing import Any

import pytest

from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import (
    Accepted,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.registry import typed
from tests.broker.harness import Client, Network, Receiver, Sender
from tests.broker.test_termini import refused

POLICIES = [
    DeleteOnClose(),
    DeleteOnNoLinks(),
    DeleteOnNoMessages(),
    DeleteOnNoLinksOrMessages(),
]
WAYS = ["close", "detach", "end", "lose"]


def source(policy: object = None, capabilities: list[str] | None = None) -> Source:
    properties = None if policy is None else {"lifetime-policy": policy}
    return Source(dynamic=True, dynamic_node_properties=properties, capabilities=capabilities)


def create(client: Client, policy: object) -> tuple[Receiver, str]:
    receiver = client.receiver(None, source=source(policy))
    address = receiver.remote_source.address
    assert address is not None
    return receiver, address


def leave(client: Client, link: Receiver | Sender, how: str) -> None:
    if how == "lose":
        client.lose()
    elif how == "end":
        client.session.end()
        client.net.run()
    else:
        link.close(how == "close")


def policy_of(properties: dict[str, object] | None) -> object:
    assert properties is not None
    policy = properties["lifetime-policy"]
    return typed(policy) if isinstance(policy, Described) else policy


@pytest.mark.spec("3.5.10", "3.5.11", "3.5.12", "3.5.13")
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_the_policy_comes_back(net: Network, policy: Any) -> None:
    client = net.connect()
    receiver, _ = create(client, policy)
    assert policy_of(receiver.remote_source.dynamic_node_properties) == policy
    target = Target(dynamic=True, dynamic_node_properties={"lifetime-policy": policy})
    sender = client.sender(None, target=target)
    assert policy_of(sender.remote_target.dynamic_node_properties) == policy


@pytest.mark.spec("3.5.10")
def test_without_a_policy_the_node_goes_with_its_link(net: Network) -> None:
    receiver = net.connect().receiver(None, source=source())
    assert policy_of(receiver.remote_source.dynamic_node_properties) == DeleteOnClose()


@pytest.mark.spec("3.5.10")
@pytest.mark.parametrize("how", WAYS)
def test_on_close(net: Network, how: str) -> None:
    owner, other = net.connect(), net.connect()
    receiver, address = create(owner, DeleteOnClose())
    sender = other.sender(address)
    sender.send(b"x")
    leave(owner, receiver, how)
    assert address not in net.space.nodes
    assert sender.error is not None and sender.error.condition == "amqp:resource-deleted"


@pytest.mark.spec("3.5.11")
@pytest.mark.parametrize("how", WAYS)
def test_on_no_links(net: Network, how: str) -> None:
    owner, other = net.connect(), net.connect()
    receiver, address = create(owner, DeleteOnNoLinks())
    sender, reader = other.sender(address), other.receiver(address)
    sender.send(b"x")
    leave(owner, receiver, how)
    assert address in net.space.nodes
    sender.close()
    assert address in net.space.nodes
    leave(other, reader, how)
    assert address not in net.space.nodes


@pytest.mark.spec("3.5.12")
@pytest.mark.parametrize("how", WAYS)
def test_on_no_messages(net: Network, how: str) -> None:
    owner, other = net.connect(), net.connect()
    receiver, address = create(owner, DeleteOnNoMessages())
    sender = other.sender(address)
    sender.send(b"a")
    # As long as the link is there that it was made for, it may be empty.
    receiver.credit(1)
    receiver.settle(Accepted())
    assert address in net.space.nodes
    sender.send(b"b")
    leave(owner, receiver, how)
    assert address in net.space.nodes
    reader = other.receiver(address, credit=1)
    reader.settle(Accepted())
    assert address not in net.space.nodes
    assert sender.detached and reader.detached


@pytest.mark.spec("3.5.12")
@pytest.mark.parametrize("how", WAYS)
def test_on_no_messages_an_empty_node_goes_with_its_link(net: Network, how: str) -> None:
    owner, other = net.connect(), net.connect()
    receiver, address = create(owner, DeleteOnNoMessages())
    sender = other.sender(address)
    leave(owner, receiver, how)
    assert address not in net.space.nodes and sender.detached


@pytest.mark.spec("3.5.13")
@pytest.mark.parametrize("how", WAYS)
def test_on_no_links_or_messages(net: Network, how: str) -> None:
    owner, other = net.connect(), net.connect()
    receiver, address = create(owner, DeleteOnNoLinksOrMessages())
    sender = other.sender(address)
    sender.send(b"x")
    sender.close()
    leave(owner, receiver, how)
    assert address in net.space.nodes, "there is a message"
    reader = other.receiver(address, credit=1)
    reader.settle(Accepted())
    assert address in net.space.nodes, "there is a link"
    reader.close()
    assert address not in net.space.nodes


@pytest.mark.spec("3.5.13")
def test_on_no_links_or_messages_the_last_message_may_go_last(net: Network) -> None:
    client = net.connect()
    receiver, address = create(client, DeleteOnNoLinksOrMessages())
    client.sender(address).send(b"x")
    receiver.credit(1)
    receiver.close()
    client.lose()
    assert address in net.space.nodes
    other = net.connect()
    reader = other.receiver(address, credit=1, default_outcome=Accepted())
    reader.close()
    assert address not in net.space.nodes


@pytest.mark.spec("broker-2.3.13")
def test_the_node_is_gone_before_the_detach_is_answered(net: Network) -> None:
    client = net.connect()
    receiver, address = create(client, DeleteOnClose())
    there: list[bool] = []
    original = client.handler.output._write

    def watch(data: bytes) -> None:
        there.append(address in net.space.nodes)
        original(data)

    client.handler.output._write = watch
    receiver.close()
    assert there and not any(there)


@pytest.mark.parametrize("capability", ["topic", "temporary-topic"])
def test_a_capability_makes_it_a_topic(net: Network, capability: str) -> None:
    client = net.connect()
    first = client.receiver(None, source=source(capabilities=[capability]), credit=9)
    address = str(first.remote_source.address)
    assert net.space.nodes[address].kind == "topic"
    assert capability in (first.remote_source.capabilities or [])
    second = client.receiver(address, credit=9)
    client.sender(address).send(b"x")
    assert first.bodies() == second.bodies() == [b"x"]
    first.close()
    assert address not in net.space.nodes and second.detached


@pytest.mark.parametrize("capability", ["queue", "temporary-queue"])
def test_a_capability_makes_it_a_queue(net: Network, capability: str) -> None:
    client = net.connect()
    sender = client.sender(None, target=Target(dynamic=True, capabilities=[capability]))
    assert net.space.nodes[str(sender.remote_target.address)].kind == "queue"
    assert sender.remote_target.capabilities == [capability]


@pytest.mark.spec("3.5.9")
def test_the_answer_tells_how_the_node_distributes(net: Network) -> None:
    client = net.connect()
    wanted: dict[str, object] = {"supported-dist-modes": Symbol("copy")}
    queue = client.receiver(None, source=Source(dynamic=True, dynamic_node_properties=wanted))
    answered = queue.remote_source.dynamic_node_properties
    assert answered is not None
    modes = answered["supported-dist-modes"]
    assert isinstance(modes, Array) and list(modes.items) == ["move", "copy"]
    topic = client.receiver(
        None,
        source=Source(dynamic=True, dynamic_node_properties=wanted, capabilities=["topic"]),
    )
    answered = topic.remote_source.dynamic_node_properties
    assert answered is not None
    modes = answered["supported-dist-modes"]
    assert isinstance(modes, Array) and list(modes.items) == ["copy"]


@pytest.mark.spec("3.5.9")
def test_a_topic_that_is_to_move_messages_is_refused(net: Network) -> None:
    client = net.connect()
    wanted: dict[str, object] = {"supported-dist-modes": Array("symbol", ["move", "copy"])}
    asked = Source(dynamic=True, dynamic_node_properties=wanted, capabilities=["topic"])
    assert refused(client.receiver(None, source=asked), "amqp:not-implemented")
    assert net.space.nodes == {}


def test_a_refused_link_leaves_no_node(net: Network) -> None:
    client = net.connect()
    asked = Source(dynamic=True, distribution_mode="shred")
    assert refused(client.receiver(None, source=asked), "amqp:not-implemented")
    pair: dict[str, object] = {"paired": True}
    assert refused(client.sender(None, target=Target(dynamic=True), properties=pair),
                   "amqp:not-implemented")  # fmt: skip
    assert net.space.nodes == {}
    assert not len(client.handler.links.dynamic_nodes)


@pytest.mark.parametrize("policy", POLICIES[:2], ids=lambda policy: type(policy).__name__)
def test_who_takes_over_the_link_does_not_get_the_node_that_went_with_it(
    net: Network, policy: object
) -> None:
    owner, thief = (net.connect(container_id="c") for _ in range(2))
    target = Target(dynamic=True, dynamic_node_properties={"lifetime-policy": policy})
    sender = owner.sender(None, target=target, name="link")
    address = sender.remote_target.address
    stolen = thief.sender(address, name="link")
    assert sender.detached and refused(stolen, "amqp:not-found")
    receiver = owner.receiver(None, source=source(policy), name="link")
    stolen_back = thief.receiver(receiver.remote_source.address, name="link")
    assert receiver.detached and refused(stolen_back, "amqp:not-found")
    assert not net.space.nodes


def test_a_topic_goes_when_the_last_subscription_with_messages_does(net: Network) -> None:
    client = net.connect()
    sender = client.sender(
        None,
        target=Target(
            dynamic=True,
            capabilities=["topic"],
            dynamic_node_properties={"lifetime-policy": DeleteOnNoLinksOrMessages()},
        ),
    )
    address = sender.remote_target.address
    assert address is not None
    kept = Source(
        address=address,
        expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
        durable=TerminusDurability.CONFIGURATION,
        timeout=5,
    )
    receiver = client.receiver(None, source=kept)
    sender.send(b"kept")
    receiver.close(closed=False)
    sender.close()
    net.advance(4)
    assert address in net.space.nodes
    net.advance(2)
    assert address not in net.space.nodes
