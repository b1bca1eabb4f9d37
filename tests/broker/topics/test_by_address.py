"""A topic may let a link declare the subscription that it names by its address."""

from __future__ import annotations

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from tests.broker.access.guarded import guarded, is_open, lacks, user
from tests.broker.harness import Network


def test_a_link_declares_the_subscription(net: Network) -> None:
    inner = QueuePolicy(sub_queues=("$Dead",))
    net.space.create("news", TopicPolicy(auto_subscribe=True, subscription=inner))
    client = net.connect()
    receiver = client.receiver("news::audit", credit=1)
    client.sender("news").send(b"a")
    assert receiver.bodies() == [b"a"]
    assert is_open(client.receiver("news::audit/$Dead", credit=1))
    client.close()
    net.connect().sender("news").send(b"b")
    assert net.connect().receiver("news::audit", credit=2).bodies() == [b"a", b"b"]


def test_some_names_are_not_for_that(net: Network) -> None:
    inner = QueuePolicy(sub_queues=("$Dead",))
    net.space.create("news", TopicPolicy(auto_subscribe=True, subscription=inner))
    client = net.connect()
    for name in ("other/$Dead", "a/b", "~x"):
        receiver = client.receiver(f"news::{name}")
        assert receiver.error is not None and receiver.error.condition == "amqp:not-found"


def test_it_takes_the_right_to_create() -> None:
    net = guarded("""
        [[topic]]
        name = "news"
        auto-subscribe = true
        [[rule]]
        who = "user:reader"
        may = ["receive"]
        where = "*"
        [[rule]]
        who = "user:maker"
        may = ["receive", "create"]
        where = "*"
        """)
    assert lacks(user(net, "reader").receiver("news::audit")) == "create at 'news::audit'"
    assert is_open(user(net, "maker").receiver("news::audit"))
    assert is_open(user(net, "reader").receiver("news::audit"))


def test_two_topics_may_declare_subscriptions_of_one_name(net: Network) -> None:
    for name in ("news", "weather"):
        topic = net.space.create(name, TopicPolicy())
        assert isinstance(topic, Topic)
        topic.declare_subscription("audit")
        with pytest.raises(BrokerError, match="already"):
            topic.declare_subscription("audit")
    client = net.connect()
    for name in ("news", "weather"):
        receiver = client.receiver(f"{name}::audit", credit=1)
        client.sender(name).send(name.encode())
        assert receiver.bodies() == [name.encode()]
    weather = net.space.nodes["weather"]
    assert isinstance(weather, Topic)
    weather.delete_subscription("audit")
    assert is_open(net.connect().receiver("news::audit", credit=1))
