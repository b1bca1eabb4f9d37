"""A topic drops a message that came before, for all its subscriptions."""

from __future__ import annotations

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Properties, Rejected
from tests.broker.harness import Network, Sender
from tests.broker.lifecycle.letters import bodies, browse, send
from tests.broker.recovery.kit import send as send_durable
from tests.broker.recovery.kit import stored, stored_network
from tests.broker.topics.test_rules import asker_of

WINDOW = TopicPolicy(duplicate_window=10_000)


def declared(net: Network, policy: TopicPolicy = WINDOW) -> Topic:
    topic = net.space.create("news", policy)
    assert isinstance(topic, Topic)
    topic.declare_subscription("a")
    return topic


def send_as(sender: Sender, id: str, body: bytes) -> None:
    delivery = send(sender, body, properties=Properties(message_id=id))
    assert isinstance(delivery.remote_state, Accepted)


def test_a_newer_subscription_sees_no_second_copy(net: Network) -> None:
    topic = declared(net)
    sender = net.connect().sender("news")
    send_as(sender, "1", b"first")
    topic.declare_subscription("b")
    send_as(sender, "1", b"second")
    send_as(sender, "2", b"third")
    assert bodies(net, "news::a") == [b"first", b"third"]
    assert bodies(net, "news::b") == [b"third"]
    figures = topic.figures()
    assert (figures["published"], figures["duplicates"]) == (2, 1)


def test_the_window_ends_and_the_oldest_ids_leave(net: Network) -> None:
    declared(net, TopicPolicy(duplicate_window=10_000, duplicate_limit=2))
    sender = net.connect().sender("news")
    for id in ("1", "2", "3", "1"):
        send_as(sender, id, id.encode())
    assert browse(net, "news::a") == [b"1", b"2", b"3", b"1"]
    net.advance(11)
    send_as(sender, "1", b"again")
    assert browse(net, "news::a")[4:] == [b"again"]


def test_a_dead_letter_is_not_its_own_duplicate(net: Network) -> None:
    topic = net.space.create("news", WINDOW)
    assert isinstance(topic, Topic)
    topic.declare_subscription("a", policy=QueuePolicy(dead_letter="news"))
    client = net.connect()
    send_as(client.sender("news"), "1", b"x")
    client.receiver("news::a", credit=1).settle(Rejected())
    assert topic.duplicated == 0 and topic.published == 2


def test_ids_outlive_the_broker_and_end_with_the_topic() -> None:
    net = stored_network()
    topic = declared(net)
    (sent,) = send_durable(
        net.connect().sender("news"), b"first", properties=Properties(message_id="1")
    )
    assert isinstance(sent.remote_state, Accepted)
    net.restart()
    sender = net.connect().sender("news")
    send_durable(sender, b"second", properties=Properties(message_id="1"))
    assert browse(net, "news::a") == [b"first"]
    restored = net.space.nodes["news"]
    assert isinstance(restored, Topic) and restored.duplicated == 1
    assert topic is not restored
    net.space.remove(restored)
    net.finish()
    net.restart()
    assert not stored(net)


def test_management_sets_the_window(net: Network) -> None:
    declared(net, TopicPolicy())
    asker = asker_of(net)
    assert asker.ask("UPDATE", "topic", "news", {"duplicate-window": 5000}).status == 200
    sender = net.connect().sender("news")
    send_as(sender, "1", b"a")
    send_as(sender, "1", b"b")
    assert asker.ask("READ", "topic", "news").map()["duplicates"] == 1
    assert asker.ask("UPDATE", "topic", "news", {"duplicate-window": 0}).status == 200
    send_as(sender, "1", b"c")
    assert browse(net, "news::a") == [b"a", b"c"]
