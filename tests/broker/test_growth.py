"""What clients can make the broker keep, and what bounds it."""

from __future__ import annotations

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.exchanges.exchange import MAX_BINDINGS, Exchange
from ferrymq_broker.nodes.message import MAX_ANNOTATIONS
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, TopicPolicy
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    MessageAnnotations,
    Modified,
    Properties,
    Rejected,
)
from tests.broker.harness import Network, encode, message_annotations, text
from tests.broker.lasting import lasting_source
from tests.broker.management.asker import Asker


@pytest.fixture
def asker(net: Network) -> Asker:
    """A client of the management node."""
    install(net.space, net.broker)
    return Asker(net)


@pytest.fixture
def small() -> Network:
    """A broker in which there may be three nodes."""
    return Network(max_nodes=3)


@pytest.mark.spec("3.4.5")
def test_links_that_are_gone_are_no_longer_kept_from_a_message(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    stays = client.receiver("q", credit=1)
    elsewhere = Modified(undeliverable_here=True)
    stays.settle(elsewhere)
    for _ in range(300):
        comes = client.receiver("q", credit=1)
        assert comes.bodies() == [b"a"]
        comes.settle(elsewhere)
        comes.close()
    entry = net.queue("q").entries.default_level.first
    assert entry is not None and entry.excluded is not None
    assert len(entry.excluded) < 100
    stays.credit(5)
    assert stays.take() == []
    assert client.receiver("q", credit=1).bodies() == [b"a"]


def test_links_that_are_gone_and_take_only_small_messages_are_forgotten(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a" * 1000)
    stays = client.receiver("q", credit=1, max_message_size=500)
    for _ in range(300):
        comes = client.receiver("q", credit=1, max_message_size=500)
        assert comes.take() == []
        comes.close()
    entry = net.queue("q").entries.default_level.first
    assert entry is not None and entry.excluded is not None
    assert len(entry.excluded) < 100
    assert stays.take() == []


@pytest.mark.spec("3.4.5")
def test_a_message_does_not_grow_with_every_delivery(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1000)
    for number in range(100):
        (delivery,) = receiver.take()
        key = f"x-opt-{number}"
        delivery.settle(Modified(message_annotations={key: "y" * 2000, "x-opt-last": number}))
        net.run()
    (delivery,) = receiver.take()
    assert text(delivery.payload) == b"a"
    assert len(delivery.payload) <= MAX_ANNOTATIONS + 100
    kept = message_annotations(delivery.payload)
    assert "x-opt-0" in kept and "x-opt-99" not in kept
    # All of a disposition, or nothing.
    last = kept["x-opt-last"]
    assert f"x-opt-{last}" in kept
    assert net.queue("q").bytes == net.broker.agenda.held < MAX_ANNOTATIONS + 100


def test_annotations_of_a_producer_may_be_longer_and_do_not_become_so(net: Network) -> None:
    client = net.connect()
    long: dict[str | int, object] = {"x-opt-a": "y" * (MAX_ANNOTATIONS + 1000)}
    sent = encode(MessageAnnotations(value=dict(long)), Data(value=b"a"))
    client.sender("q").send_encoded(sent)
    receiver = client.receiver("q", credit=10)
    receiver.settle(Modified(message_annotations={"x-opt-b": 1}))
    (delivery,) = receiver.take()
    assert message_annotations(delivery.payload) == long
    # What makes them shorter is welcome.
    delivery.settle(Modified(message_annotations={"x-opt-a": "short"}))
    net.run()
    (delivery,) = receiver.take()
    assert message_annotations(delivery.payload) == {"x-opt-a": "short"}


def test_there_are_as_many_durable_subscriptions_as_nodes(small: Network) -> None:
    small.space.create("news", TopicPolicy())
    source = lasting_source("news")
    client = small.connect(container_id="reader")
    for number in range(3):
        assert client.receiver("news", source=source, name=f"s{number}").attached
        client.engine.close()
        small.run()
        client = small.connect(container_id="reader")
    refused = client.receiver("news", source=source, name="s3")
    assert refused.error is not None
    assert refused.error.condition == "amqp:resource-limit-exceeded"
    # Those there are can be come back to, and others are no concern of the limit.
    assert not client.receiver("news", source=source, name="s1").detached
    assert not client.receiver("news", name="plain").detached


def test_an_exchange_has_a_limit_of_bindings(net: Network) -> None:
    exchange = net.space.create("x", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    net.declare("q")
    for number in range(MAX_BINDINGS):
        exchange.bind("q", str(number))
    with pytest.raises(BrokerError, match="bindings already"):
        exchange.bind("q", "one more")
    assert not exchange.bind("q", "0")
    exchange.unbind("q", "0")
    assert exchange.bind("q", "one more")


def test_a_binding_has_a_limit_of_arguments(net: Network) -> None:
    exchange = net.space.create("x", ExchangePolicy(type="headers"))
    assert isinstance(exchange, Exchange)
    net.declare("q")
    with pytest.raises(BrokerError, match="at most 65536 are allowed"):
        exchange.bind("q", "", {"a": "y" * 70_000})
    assert exchange.bind("q", "", {"a": "y" * 60_000})


def test_links_that_come_and_go_while_their_client_does_not_read_leave_nothing(
    net: Network,
) -> None:
    client = net.connect()
    client.pause()
    for number in range(50):
        sender = client.sender("q", name=f"s{number}")
        receiver = client.receiver("q", name=f"r{number}", credit=1)
        sender.close()
        receiver.close()
    handler = client.handler
    assert (
        not handler.output.unsupplied and not handler.output.stalled and not handler.output.windowed
    )
    client.resume()
    sender = client.sender("q")
    assert sender.link.credit > 0


@pytest.mark.parametrize("to", ["x::key", "x", "news"])
def test_single_messages_through_other_nodes_leave_nothing_at_a_bounded_queue(
    net: Network, to: str
) -> None:
    exchange = net.space.create("x", ExchangePolicy(type="fanout"))
    topic = net.space.create("news", TopicPolicy())
    assert isinstance(exchange, Exchange) and isinstance(topic, Topic)
    bounded = QueuePolicy(max_length=100, overflow="block")
    net.declare("q", bounded)
    exchange.bind("q")
    topic.declare_subscription("s", None, bounded)
    queue = net.queue("q") if to != "news" else topic.subscription("s").queue
    client = net.connect()
    relay = client.sender(None)
    for _ in range(100):
        sent = relay.send_sections(Properties(to=to), Data(value=b"a"))
        assert isinstance(sent.remote_state, Accepted)
    assert len(queue.fronts or []) <= 1 and len(queue.waiting_for_room or ()) <= 1
    # Full is full, for them as well.
    sent = relay.send_sections(Properties(to=to), Data(value=b"a"))
    assert isinstance(sent.remote_state, Rejected)
    receiver = client.receiver(queue.address, credit=1)
    receiver.settle(Accepted())
    sent = relay.send_sections(Properties(to=to), Data(value=b"a"))
    assert isinstance(sent.remote_state, Accepted)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("kind", ["queue", "topic", "stream", "exchange"])
def test_messages_that_come_with_the_end_of_their_node_are_not_kept(
    net: Network, asker: Asker, kind: str, settled: bool
) -> None:
    asker.ask("CREATE", kind, "node")
    sender = asker.client.sender("node")
    held = net.broker.agenda.held
    deletion: dict[str, object] = {"operation": "DELETE", "type": kind, "name": "node"}
    # In one read: the node is gone when the broker comes to the second message.
    asker.sender.link.send(encode(ApplicationProperties(deletion)), settled=True)
    sent = sender.link.send(encode(Data(value=b"late")), settled=settled)
    net.run()
    assert "node" not in net.space.nodes
    assert sender.error is not None and sender.error.condition == "amqp:resource-deleted"
    assert not isinstance(sent.remote_state, Accepted)
    assert net.broker.agenda.held == held
    assert net.broker.counters.messages_dropped == (1 if settled else 0)


def test_the_answer_to_the_deletion_of_the_queue_for_the_answers_is_not_kept(
    net: Network, asker: Asker
) -> None:
    net.declare("answers")
    held = net.broker.agenda.held
    asked = Properties(message_id="1", reply_to="answers")
    deletion: dict[str, object] = {"operation": "DELETE", "type": "queue", "name": "answers"}
    sent = asker.sender.send_sections(asked, ApplicationProperties(deletion))
    assert isinstance(sent.remote_state, Accepted)
    assert "answers" not in net.space.nodes
    assert net.broker.agenda.held == held
