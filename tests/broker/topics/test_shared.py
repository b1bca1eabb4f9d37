"""Several links to one subscription: the capabilities shared and global."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import TopicPolicy
from ferrymq_types.messaging import Source, TerminusDurability, TerminusExpiryPolicy
from tests.broker.harness import Client, Network, Receiver


def share(
    client: Client,
    name: str,
    *,
    everywhere: bool = True,
    durable: bool = False,
    credit: int = 100,
    topic: str = "news",
) -> Receiver:
    source = Source(
        address=topic,
        capabilities=["topic", "shared", "global"] if everywhere else ["topic", "shared"],
        durable=TerminusDurability.UNSETTLED_STATE if durable else TerminusDurability.NONE,
        expiry_policy=TerminusExpiryPolicy.NEVER if durable else TerminusExpiryPolicy.LINK_DETACH,
    )
    return client.receiver(topic, source=source, name=name, credit=credit)


def send(net: Network, *bodies: bytes) -> None:
    net.connect().sender("news").send(*bodies)


@pytest.mark.parametrize("durable", [False, True])
def test_links_compete(net: Network, topic: Topic, durable: bool) -> None:
    first = share(net.connect(), "group", durable=durable)
    second = share(net.connect(), "group|2", durable=durable)
    alone = net.connect().receiver("news", credit=100)
    send(net, b"1", b"2", b"3", b"4")
    assert sorted(first.bodies() + second.bodies()) == [b"1", b"2", b"3", b"4"]
    assert len(first.bodies()) == len(second.bodies()) == 2
    assert len(alone.bodies()) == 4
    assert sorted(first.remote_source.capabilities or []) == ["global", "shared", "topic"]


def test_without_global_only_the_own_container_shares(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="a")
    first = share(client, "group|1", everywhere=False)
    second = share(client, "group|2", everywhere=False)
    other = share(net.connect(container_id="b"), "group|1", everywhere=False)
    send(net, b"1", b"2")
    assert sorted(first.bodies() + second.bodies()) == [b"1", b"2"]
    assert other.bodies() == [b"1", b"2"]
    assert first.remote_source.capabilities is not None
    assert "global" not in first.remote_source.capabilities


def test_global_alone_means_nothing(net: Network, topic: Topic) -> None:
    source = Source(address="news", capabilities=["global"])
    answer = net.connect().receiver("news", source=source)
    assert answer.attached
    assert answer.remote_source.capabilities is None
    assert not topic.subscriptions()[0].shared


def test_one_that_is_not_durable_goes_with_its_last_link(net: Network, topic: Topic) -> None:
    first = share(net.connect(), "group|1")
    second = share(net.connect(), "group|2")
    first.close(closed=True)
    send(net, b"1")
    assert second.bodies() == [b"1"]
    second.close(closed=False)
    assert topic.subscriptions() == []


def test_a_durable_one_goes_when_the_last_link_is_closed(net: Network, topic: Topic) -> None:
    first = share(net.connect(), "group|1", durable=True)
    second = share(net.connect(), "group|2", durable=True)
    first.close(closed=True)
    assert len(topic.subscriptions()) == 1
    second.close(closed=False)
    send(net, b"1")
    third = share(net.connect(), "group|3", durable=True)
    assert third.bodies() == [b"1"]
    third.close(closed=True)
    assert topic.subscriptions() == []


def test_what_one_held_goes_to_the_others(net: Network, topic: Topic) -> None:
    quitter = net.connect()
    share(quitter, "group|1")
    send(net, b"1", b"2")
    second = share(net.connect(), "group|2")
    assert second.bodies() == []
    quitter.lose()
    assert second.bodies() == [b"1", b"2"]


def test_durable_and_other_ones_have_names_of_their_own(net: Network, topic: Topic) -> None:
    kept = share(net.connect(), "group", durable=True)
    passing = share(net.connect(), "group", durable=False)
    send(net, b"1")
    assert kept.bodies() == passing.bodies() == [b"1"]
    assert len(topic.subscriptions()) == 2


def test_a_client_that_does_not_share_is_refused(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="a")
    share(client, "mine", everywhere=False, durable=True)
    source = Source(address="news", expiry_policy=TerminusExpiryPolicy.NEVER)
    refused = net.connect(container_id="a").receiver("news", source=source, name="mine")
    assert refused.error is not None
    assert refused.error.condition == "amqp:precondition-failed"


def test_a_name_before_the_bar_is_needed(net: Network, topic: Topic) -> None:
    refused = share(net.connect(), "|1")
    assert refused.error is not None and refused.error.condition == "amqp:invalid-field"


def test_a_durable_one_in_use_stays_with_its_topic(net: Network, topic: Topic) -> None:
    other = net.space.create("sports", TopicPolicy())
    assert isinstance(other, Topic)
    first = share(net.connect(), "group", durable=True)
    refused = share(net.connect(), "group|2", durable=True, topic="sports")
    assert refused.error is not None and refused.error.condition == "amqp:precondition-failed"
    assert other.subscriptions() == []
    first.close(closed=False)
    assert share(net.connect(), "group|3", durable=True, topic="sports").attached
    assert topic.subscriptions() == []
    assert len(other.subscriptions()) == 1


def test_higher_priority_first(net: Network, topic: Topic) -> None:
    client = net.connect()
    low = share(client, "group|1")
    link = client.session.attach_receiver(
        "group|2",
        source=Source(address="news", capabilities=["shared", "global"]),
        properties={"priority": 5},
    )
    high = Receiver(client, link)
    client.links[link] = high
    net.run()
    high.credit(1)
    send(net, b"1", b"2")
    assert high.bodies() == [b"1"]
    assert low.bodies() == [b"2"]
