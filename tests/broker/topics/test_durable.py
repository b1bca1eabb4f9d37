"""Subscriptions that are kept, found again by user, container-id and link name."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import TopicPolicy
from ferrymq_types.messaging import (
    Accepted,
    Source,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from tests.broker.harness import Client, Network, Receiver
from tests.broker.lasting import lasting_source
from tests.support.known_users import KnownUsers


def subscribe(
    client: Client, name: str = "mine", address: str = "news", credit: int = 10
) -> Receiver:
    source = lasting_source(address)
    return client.receiver(address, source=source, name=name, credit=credit)


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize("how", ["detach", "close connection", "lose"])
def test_it_collects_while_nobody_is_there(net: Network, topic: Topic, how: str) -> None:
    client = net.connect(container_id="reader")
    reader = subscribe(client)
    if how == "detach":
        reader.close(closed=False)
    elif how == "lose":
        client.lose()
    else:
        client.close()
    net.connect().sender("news").send(b"a", b"b")
    net.advance(1_000_000)
    again = subscribe(net.connect(container_id="reader"))
    assert again.bodies() == [b"a", b"b"]
    assert len(topic.subscriptions()) == 1


def test_closing_the_link_is_unsubscribing(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="reader")
    subscribe(client).close(closed=True)
    assert topic.subscriptions() == []
    net.connect().sender("news").send(b"a")
    assert subscribe(client).bodies() == []


def test_what_was_held_comes_back_to_the_same_subscriber(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="reader")
    reader = subscribe(client)
    net.connect().sender("news").send(b"a", b"b", b"c")
    reader.settle(Accepted(), reader.deliveries[0])
    reader.close(closed=False)
    assert subscribe(client).bodies() == [b"b", b"c"]


def test_others_do_not_find_it(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="reader")
    subscribe(client).close(closed=False)
    net.connect().sender("news").send(b"a")
    assert subscribe(net.connect(container_id="reader 2")).bodies() == []
    assert subscribe(client, name="other").bodies() == []
    assert subscribe(client).bodies() == [b"a"]


def test_users_have_their_own() -> None:
    from ferrymq.engine.sasl import Plain

    net = Network(authenticator=KnownUsers({"ann": "1", "bob": "2"}, False, True))
    net.space.create("news", TopicPolicy())
    ann = net.connect(container_id="reader", sasl=Plain("ann", "1"))
    subscribe(ann).close(closed=False)
    net.connect().sender("news").send(b"for ann")
    assert subscribe(net.connect(container_id="reader", sasl=Plain("bob", "2"))).bodies() == []
    assert subscribe(net.connect(container_id="reader")).bodies() == []
    assert subscribe(ann).bodies() == [b"for ann"]


def test_a_subscription_of_a_name_is_to_one_topic(net: Network, topic: Topic) -> None:
    other = net.space.create("sports", TopicPolicy())
    client = net.connect(container_id="reader")
    subscribe(client).close(closed=False)
    net.connect().sender("news").send(b"old")
    moved = subscribe(client, address="sports")
    assert topic.subscriptions() == []
    assert isinstance(other, Topic) and len(other.subscriptions()) == 1
    net.connect().sender("news").send(b"news")
    net.connect().sender("sports").send(b"sports")
    assert moved.bodies() == [b"sports"]
    moved.close(closed=False)
    assert subscribe(client).bodies() == []


@pytest.mark.spec("2.6.1")
def test_the_same_link_elsewhere_takes_it_over(net: Network, topic: Topic) -> None:
    first = subscribe(net.connect(container_id="reader"))
    net.connect().sender("news").send(b"a")
    assert first.bodies() == [b"a"]
    second = subscribe(net.connect(container_id="reader"))
    assert first.error is not None and first.error.condition == "amqp:link:stolen"
    assert second.bodies() == [b"a"]
    assert len(topic.subscriptions()) == 1


def test_the_answer_claims_no_more_than_is_kept(net: Network, topic: Topic) -> None:
    reader = subscribe(net.connect())
    source = reader.remote_source
    # Without a store messages do not outlive the process: the terminus is not durable, but does
    # not expire.
    kept = TerminusDurability.NONE if net.store is None else TerminusDurability.UNSETTLED_STATE
    assert source.durable is kept
    assert source.expiry_policy is TerminusExpiryPolicy.NEVER
    assert source.timeout == 0


def test_a_refused_attach_leaves_nothing_behind(net: Network, topic: Topic) -> None:
    client = net.connect()
    source = Source(
        address="news",
        durable=TerminusDurability.CONFIGURATION,
        expiry_policy=TerminusExpiryPolicy.NEVER,
        distribution_mode="move",
    )
    assert client.receiver("news", source=source).error is not None
    assert topic.subscriptions() == []
    assert net.space.durables == {}


def test_deleting_the_topic_frees_the_name(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="reader")
    subscribe(client).close(closed=False)
    net.space.remove(topic)
    assert net.space.durables == {}
    again = net.space.create("news", TopicPolicy())
    subscribe(client)
    assert isinstance(again, Topic) and len(again.subscriptions()) == 1
