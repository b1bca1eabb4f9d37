"""Capitals in the addresses of entities do not matter."""

from __future__ import annotations

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_servicebus.entities import queue_policy, topic_policy
from ferrymq_servicebus.entity_names import EntityNames
from tests.broker.harness import Network


def test_every_part_of_an_address_has_its_spelling(net: Network) -> None:
    net.space.create("Orders", queue_policy({}))
    names = EntityNames(net.space)
    topic = net.space.create("News", topic_policy({}))
    assert isinstance(topic, Topic)
    topic.declare_subscription("Audit")
    for asked, spelled in {
        "Orders": "Orders",
        "ORDERS": "Orders",
        "orders/$deadletterqueue": "Orders/$DeadLetterQueue",
        "orders/$TRANSFER/$deadletterqueue": "Orders/$Transfer/$DeadLetterQueue",
        "news": "News",
        "NEWS::audit": "News::Audit",
        "news::AUDIT/$deadLetterQueue": "News::Audit/$DeadLetterQueue",
        "news::Other": "News::Other",
        "news::Other/$deadletterqueue": "News::Other/$DeadLetterQueue",
        "Nothing": "Nothing",
        "Nothing/$deadletterqueue": "Nothing/$DeadLetterQueue",
        "Nothing::Part": "Nothing::Part",
        "::x": "::x",
    }.items():
        assert names.spelled(asked) == spelled
        assert names.spelled(spelled) == spelled


def test_nodes_that_come_and_go(net: Network) -> None:
    names = EntityNames(net.space)
    assert names.spelled("a") == "a"
    net.declare("A", QueuePolicy())
    net.declare("a", QueuePolicy())
    assert (names.spelled("a"), names.spelled("A")) == ("a", "A")
    net.space.remove(net.queue("a"))
    assert names.spelled("a") == "A"
    net.space.remove(net.queue("A"))
    assert names.spelled("a") == "a"
