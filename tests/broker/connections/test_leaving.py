"""What a link leaves behind: a detach, a close, an error and a loss are different ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ferrymq_broker.values.policy import TopicPolicy
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import (
    Accepted,
    Modified,
    Rejected,
)
from tests.broker.harness import Client, Network, header, text
from tests.broker.lasting import lasting_source
from tests.broker.test_termini import refused

if TYPE_CHECKING:
    from tests.broker.harness import Receiver


@pytest.fixture
def net() -> Network:
    net = Network()
    net.space.create("t", TopicPolicy())
    return net


def subscribe(client: Client, outcomes: list[str] | None = None) -> Receiver:
    source = lasting_source("t", outcomes=outcomes)
    return client.receiver(None, source=source, credit=9, name="subscription")


@pytest.mark.parametrize(
    ("how", "stays"), [("detach", True), ("end", True), ("lose", True), ("close", False)]
)
def test_a_durable_subscription_ends_with_a_close_alone(
    net: Network, how: str, stays: bool
) -> None:
    client = net.connect(container_id="reader")
    receiver = subscribe(client)
    if how == "lose":
        client.lose()
    elif how == "end":
        client.session.end()
        net.run()
    else:
        receiver.close(how == "close")
    net.connect().sender("t").send(b"x")
    again = subscribe(net.connect(container_id="reader"))
    assert again.bodies() == ([b"x"] if stays else [])


def test_a_durable_subscription_outlives_a_mistake_of_its_client(net: Network) -> None:
    client = net.connect(container_id="reader")
    receiver = subscribe(client, ["amqp:accepted:list"])
    net.connect().sender("t").send(b"x")
    receiver.settle(Rejected())
    assert receiver.error is not None and receiver.error.condition == "amqp:not-allowed"
    assert subscribe(client).bodies() == [b"x"]


def test_a_durable_subscription_is_taken_over_from_a_dead_connection(net: Network) -> None:
    subscribe(net.connect(container_id="reader"))
    net.connect().sender("t").send(b"x")
    second = subscribe(net.connect(container_id="reader"))
    assert second.link.usable and second.bodies() == [b"x"]


def test_a_subscriber_takes_what_it_was_given(net: Network) -> None:
    """It is granted copy, and its messages are its own all the same: nothing comes twice."""
    client = net.connect(container_id="reader")
    receiver = subscribe(client)
    assert receiver.remote_source.distribution_mode == "copy"
    net.connect().sender("t").send(b"a", b"b")
    a, b = receiver.take()
    receiver.settle(Accepted(), a)
    receiver.settle(Modified(delivery_failed=True), b)
    (again,) = receiver.take()
    assert text(again.payload) == b"b" and header(again.payload).delivery_count == 1


def test_a_refused_attach_leaves_no_subscription(net: Network) -> None:
    client = net.connect(container_id="reader")
    source = lasting_source(
        "t", filter={"colour": Described(Symbol("example:colour-filter:string"), "blue")}
    )
    demand: dict[str, object] = {"ferrymq:require-filters": True}
    first = client.receiver(None, source=source, name="subscription", properties=demand)
    assert refused(first, "amqp:not-implemented")
    net.connect().sender("t").send(b"x")
    assert subscribe(client).bodies() == []


def test_a_refused_attach_leaves_the_subscription_there_was(net: Network) -> None:
    client = net.connect(container_id="reader")
    subscribe(client).close(closed=False)
    net.connect().sender("t").send(b"x")
    pair: dict[str, object] = {"paired": True}
    source = lasting_source("t")
    again = client.receiver(None, source=source, name="subscription", properties=pair)
    assert refused(again, "amqp:not-implemented")
    assert subscribe(client).bodies() == [b"x"]
