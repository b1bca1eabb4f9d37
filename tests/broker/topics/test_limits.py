"""Bounds of subscriptions and of their number; topics that go unused."""

from __future__ import annotations

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Source, TerminusExpiryPolicy
from tests.broker.harness import Network, Sender


def declare(net: Network, policy: TopicPolicy) -> Topic:
    topic = net.space.create("news", policy)
    assert isinstance(topic, Topic)
    return topic


def bounded(overflow: str, dead_letter: str = "") -> TopicPolicy:
    return TopicPolicy(
        subscription=QueuePolicy(max_length=2, overflow=overflow, dead_letter=dead_letter)
    )


def test_a_full_subscription_costs_itself_alone(net: Network) -> None:
    topic = declare(net, bounded("reject"))
    client = net.connect()
    slow = client.receiver("news")
    quick = client.receiver("news", credit=100)
    sender = client.sender("news")
    for body in (b"1", b"2", b"3"):
        [sent] = sender.send(body)
        assert isinstance(sent.remote_state, Accepted)
        quick_bodies = quick.bodies()
        quick.settle(Accepted())
        assert quick_bodies == [body]
    slow.credit(100)
    assert slow.bodies() == [b"1", b"2"]
    assert topic.refused == 1
    assert sorted(s.refused for s in topic.subscriptions()) == [0, 1]


def test_drop_head_keeps_the_newest(net: Network) -> None:
    declare(net, bounded("drop-head"))
    client = net.connect()
    slow = client.receiver("news")
    client.sender("news").send(b"1", b"2", b"3")
    slow.credit(100)
    assert slow.bodies() == [b"2", b"3"]


def test_dead_letter_saves_the_oldest(net: Network) -> None:
    declare(net, bounded("dead-letter", "dead"))
    client = net.connect()
    slow = client.receiver("news")
    dead = client.receiver("dead", credit=10)
    client.sender("news").send(b"1", b"2", b"3")
    slow.credit(100)
    assert slow.bodies() == [b"2", b"3"]
    assert dead.bodies() == [b"1"]


def send_what_goes(sender: Sender, most: int) -> int:
    """Send as long as there is credit; how many messages that were."""
    count = 0
    while count < most and sender.link.credit:
        count += 1
        sender.send(b"%d" % count)
    return count


def test_block_makes_senders_wait_for_the_slowest(net: Network) -> None:
    topic = declare(net, bounded("block"))
    client = net.connect()
    slow = client.receiver("news")
    quick = client.receiver("news", credit=100)
    sender = net.connect().sender("news")
    assert send_what_goes(sender, 10) == 2
    quick.settle(Accepted())
    assert sender.link.credit == 0
    slow.credit(1)
    assert sender.link.credit == 0
    slow.settle(Accepted())
    assert send_what_goes(sender, 10) == 1
    slow.credit(10)
    slow.settle(Accepted())
    assert send_what_goes(sender, 10) == 1  # the quick one holds a message now
    quick.settle(Accepted())
    assert send_what_goes(sender, 10) == 1
    assert topic.refused == 0


def test_senders_go_on_when_the_blocking_subscription_goes(net: Network) -> None:
    declare(net, bounded("block"))
    client = net.connect()
    slow = client.receiver("news")
    sender = net.connect().sender("news")
    assert send_what_goes(sender, 10) == 2
    slow.close()
    assert send_what_goes(sender, 100) == 100


def test_no_more_subscriptions_than_allowed(net: Network) -> None:
    topic = declare(net, TopicPolicy(max_subscriptions=2))
    client = net.connect()
    first = client.receiver("news")
    client.receiver("news")
    third = client.receiver("news")
    assert third.error is not None
    assert third.error.condition == "amqp:resource-limit-exceeded"
    first.close()
    assert client.receiver("news").attached
    assert len(topic.subscriptions()) == 2


def test_an_unused_topic_goes(net: Network) -> None:
    net.run()
    net.broker.begin_pass(net.now)
    topic = declare(net, TopicPolicy(auto_delete=10_000))
    net.broker.finish_pass()
    client = net.connect()
    net.advance(9)
    sender = client.sender("news")
    net.advance(100)
    assert not topic.deleted
    sender.close()
    net.advance(9)
    assert net.space.find("news") is topic
    net.advance(2)
    assert net.space.find("news") is None
    assert topic.deleted


def test_a_durable_subscription_is_a_use(net: Network) -> None:
    topic = declare(net, TopicPolicy(auto_delete=10_000))
    client = net.connect(container_id="reader")
    source = Source(address="news", expiry_policy=TerminusExpiryPolicy.NEVER)
    client.receiver("news", source=source, name="mine").close(closed=False)
    net.advance(1000)
    assert net.space.find("news") is topic
    client.receiver("news", source=source, name="mine").close(closed=True)
    net.advance(11)
    assert net.space.find("news") is None


def test_subscriptions_can_go_unused_too(net: Network) -> None:
    topic = declare(net, TopicPolicy(subscription=QueuePolicy(auto_delete=5000)))
    client = net.connect(container_id="reader")
    source = Source(address="news", expiry_policy=TerminusExpiryPolicy.NEVER)
    reader = client.receiver("news", source=source, name="mine")
    net.advance(100)
    assert len(topic.subscriptions()) == 1
    reader.close(closed=False)
    net.advance(6)
    assert topic.subscriptions() == []
    client.sender("news").send(b"m")
    assert net.space.durables == {}


def test_what_management_sees(net: Network) -> None:
    topic = declare(net, TopicPolicy())
    declared = topic.declare_subscription("audit")
    client = net.connect(container_id="reader")
    reader = client.receiver("news", name="link")
    client.sender("news").send(b"m")
    shown = topic.describe()
    assert (shown["name"], shown["type"], shown["subscriptions"]) == ("news", "topic", 2)
    assert (shown["published"], shown["messages"]) == (1, 2)
    audit, other = (s.describe() for s in topic.subscriptions())
    assert (audit["name"], audit["address"]) == ("audit", "news::audit")
    assert (audit["declared"], audit["shared"], audit["global"]) == (True, True, True)
    assert (other["container"], other["link-name"], other["links"]) == ("reader", "link", 1)
    assert (other["durable"], other["available"]) == (False, 1)
    with pytest.raises(BrokerError):
        topic.declare_subscription("audit")
    topic.delete_subscription(declared.name)
    topic.delete_subscription(str(other["name"]))
    net.finish()
    assert reader.error is not None and reader.error.condition == "amqp:resource-deleted"
    with pytest.raises(BrokerError):
        topic.delete_subscription("audit")


def test_another_policy_counts_at_once(net: Network) -> None:
    topic = declare(net, TopicPolicy())
    net.broker.begin_pass(net.now)
    topic.change_policy(TopicPolicy(auto_delete=5000, max_subscriptions=1))
    net.broker.finish_pass()
    client = net.connect()
    reader = client.receiver("news")
    assert client.receiver("news").error is not None
    net.advance(10)
    assert not topic.deleted
    reader.close()
    net.advance(4)
    topic.change_policy(TopicPolicy())
    net.advance(100)
    assert net.space.find("news") is topic
    topic.change_policy(TopicPolicy(auto_delete=1000))
    net.broker.finish_pass()
    net.advance(2)
    assert net.space.find("news") is None
