"""A topic gives each message to every subscription, and to nobody if there is none."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Data, Header, Properties, Released, Source, Target
from tests.broker.harness import Network, header


def declare(net: Network, policy: TopicPolicy | None = None) -> Topic:
    topic = net.space.create("news", policy or TopicPolicy())
    assert isinstance(topic, Topic)
    return topic


def test_every_subscriber_gets_every_message(net: Network) -> None:
    declare(net)
    publisher = net.connect()
    sender = publisher.sender("news")
    readers = [net.connect().receiver("news", credit=10) for _ in range(3)]
    sent = sender.send(b"a", b"b")
    assert [reader.bodies() for reader in readers] == [[b"a", b"b"]] * 3
    assert all(isinstance(delivery.remote_state, Accepted) for delivery in sent)


def test_nobody_there_is_no_error(net: Network) -> None:
    topic = declare(net)
    client = net.connect()
    [sent] = client.sender("news").send(b"lost")
    assert isinstance(sent.remote_state, Accepted)
    assert client.receiver("news", credit=10).bodies() == []
    assert topic.published == 1
    assert topic.message_count() == 0


def test_a_subscriber_gets_what_comes_after_it(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("news")
    sender.send(b"before")
    reader = client.receiver("news", credit=10)
    sender.send(b"after")
    assert reader.bodies() == [b"after"]


def test_a_message_is_stored_once_however_many_want_it(net: Network) -> None:
    declare(net)
    client = net.connect()
    readers = [client.receiver("news") for _ in range(50)]
    client.sender("news").send(b"x" * 1000)
    assert 1000 < net.broker.agenda.held < 1100
    for reader in readers:
        reader.close()
    assert net.broker.agenda.held == 0


def test_what_one_does_with_a_message_is_its_own_affair(net: Network) -> None:
    declare(net)
    client = net.connect()
    first = client.receiver("news", credit=1)
    second = client.receiver("news", credit=1)
    client.sender("news").send(b"m")
    first.settle(Released())
    first.credit(1)
    assert first.bodies() == [b"m"]
    assert not header(first.deliveries[0].payload).first_acquirer
    assert second.bodies() == [b"m"]
    second.settle(Accepted())
    second.credit(1)
    assert second.bodies() == []


def test_a_slow_subscriber_stalls_nobody(net: Network) -> None:
    topic = declare(net)
    client = net.connect()
    client.receiver("news")
    quick = net.connect().receiver("news", credit=10_000)
    stuck = net.connect()
    stuck.receiver("news", credit=10_000)
    stuck.pause()
    sender = client.sender("news")
    for _ in range(20):
        sender.send(*[b"x"] * 100)
    assert len(quick.bodies()) == 2000
    assert sorted(s.queue.available for s in topic.subscriptions())[-1] == 2000
    stuck.resume()


@pytest.mark.spec("3.5.7")
def test_a_subscriber_is_granted_copy_and_not_move(net: Network) -> None:
    declare(net)
    client = net.connect()
    assert client.receiver("news").remote_source.distribution_mode == "copy"
    asked = client.receiver("news", mode="copy", credit=10)
    assert asked.remote_source.distribution_mode == "copy"
    mover = client.receiver("news", mode="move")
    assert mover.error is not None
    assert mover.error.condition == "amqp:not-implemented"
    client.sender("news").send(b"m")
    assert asked.bodies() == [b"m"]
    asked.settle(Accepted())
    asked.credit(10)
    assert asked.bodies() == []


def test_a_plain_subscription_goes_with_its_link(net: Network) -> None:
    topic = declare(net)
    client = net.connect()
    for how in ("close", "detach", "lose"):
        other = net.connect()
        reader = other.receiver("news", credit=1)
        assert reader.remote_source.expiry_policy.value == "link-detach"
        assert len(topic.subscriptions()) == 1
        if how == "lose":
            other.lose()
        else:
            reader.close(closed=how == "close")
        assert topic.subscriptions() == []
    client.sender("news").send(b"m")
    assert topic.message_count() == 0


def test_the_answer_says_that_it_is_a_topic(net: Network) -> None:
    declare(net)
    client = net.connect()
    source = Source(address="news", capabilities=["topic"])
    assert client.receiver("news", source=source).remote_source.capabilities == ["topic"]
    target = Target(address="news", capabilities=["topic"])
    assert client.sender("news", target=target).remote_target.capabilities == ["topic"]


def test_the_policy_of_subscriptions_is_that_of_their_queues(net: Network) -> None:
    declare(net, TopicPolicy(subscription=QueuePolicy(message_ttl=5000)))
    client = net.connect()
    reader = client.receiver("news")
    sender = client.sender("news")
    sender.send(b"old")
    net.advance(6)
    sender.send(b"new")
    reader.credit(10)
    assert reader.bodies() == [b"new"]


def test_priority_orders_within_a_subscription(net: Network) -> None:
    declare(net)
    client = net.connect()
    reader = client.receiver("news")
    sender = client.sender("news")
    sender.send_sections(Header(priority=1), Data(value=b"low"))
    sender.send_sections(Header(priority=9), Data(value=b"high"))
    reader.credit(10)
    assert reader.bodies() == [b"high", b"low"]


def test_the_anonymous_terminus_reaches_a_topic(net: Network) -> None:
    declare(net)
    client = net.connect()
    reader = client.receiver("news", credit=10)
    sent = client.sender(None).send_sections(Properties(to="news"), Data(value=b"m"))
    assert isinstance(sent.remote_state, Accepted)
    assert reader.bodies() == [b"m"]


def test_deleting_a_topic_ends_its_links(net: Network) -> None:
    topic = declare(net)
    client = net.connect()
    reader = client.receiver("news", credit=10)
    sender = client.sender("news")
    net.space.remove(topic)
    for node in (reader, sender):
        client.net.broker.finish_pass()
        net.run()
        assert node.error is not None
        assert node.error.condition == "amqp:resource-deleted"
    assert topic.subscriptions() == []
