"""Expiry policy and timeout: when a subscription goes that nobody is attached to."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_types.messaging import Source, TerminusDurability, TerminusExpiryPolicy
from tests.broker.harness import Client, Network, Receiver

DETACH = TerminusExpiryPolicy.LINK_DETACH
SESSION = TerminusExpiryPolicy.SESSION_END
CONNECTION = TerminusExpiryPolicy.CONNECTION_CLOSE


def subscribe(
    client: Client,
    policy: TerminusExpiryPolicy,
    timeout: int = 0,
    capabilities: list[str] | None = None,
) -> Receiver:
    source = Source(
        address="news",
        durable=TerminusDurability.CONFIGURATION,
        expiry_policy=policy,
        timeout=timeout,
        capabilities=capabilities,
    )
    reader = client.receiver("news", source=source, name="mine", credit=10)
    assert reader.remote_source.expiry_policy is policy
    assert reader.remote_source.timeout == timeout
    return reader


pytestmark = pytest.mark.spec("3.5.6")


def test_with_the_link(net: Network, topic: Topic) -> None:
    subscribe(net.connect(), DETACH).close(closed=False)
    assert topic.subscriptions() == []


def test_some_time_after_the_link(net: Network, topic: Topic) -> None:
    client = net.connect()
    subscribe(client, DETACH, 60).close(closed=False)
    net.advance(59)
    assert len(topic.subscriptions()) == 1
    net.advance(2)
    assert topic.subscriptions() == []


def test_coming_back_stops_the_time(net: Network, topic: Topic) -> None:
    client = net.connect()
    subscribe(client, DETACH, 60).close(closed=False)
    net.advance(50)
    reader = subscribe(client, DETACH, 60)
    net.advance(100)
    client.sender("news").send(b"m")
    assert reader.bodies() == [b"m"]
    reader.close(closed=False)
    net.advance(50)
    assert len(topic.subscriptions()) == 1
    net.advance(11)
    assert topic.subscriptions() == []


def test_with_the_session(net: Network, topic: Topic) -> None:
    client = net.connect()
    subscribe(client, SESSION).close(closed=False)
    net.advance(10_000)
    assert len(topic.subscriptions()) == 1
    client.session.end()
    net.run()
    assert topic.subscriptions() == []


def test_some_time_after_the_session_whoever_detached(net: Network, topic: Topic) -> None:
    client = net.connect()
    subscribe(client, SESSION, 30)
    client.session.end()
    net.run()
    net.advance(29)
    assert len(topic.subscriptions()) == 1
    net.advance(2)
    assert topic.subscriptions() == []


def test_another_session_of_the_connection_does_not_matter(net: Network, topic: Topic) -> None:
    client = net.connect()
    other = client.begin()
    subscribe(client, SESSION).close(closed=False)
    other.end()
    net.run()
    assert len(topic.subscriptions()) == 1


@pytest.mark.parametrize("how", ["close", "lose"])
def test_with_the_connection(net: Network, topic: Topic, how: str) -> None:
    client = net.connect()
    subscribe(client, CONNECTION)
    client.session.end()
    net.run()
    net.advance(10_000)
    assert len(topic.subscriptions()) == 1
    client.close() if how == "close" else client.lose()
    assert topic.subscriptions() == []
    assert net.space.awaiting == {}


def test_the_session_it_was_last_used_in_counts(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="reader")
    subscribe(client, SESSION).close(closed=False)
    second = net.connect(container_id="reader")
    subscribe(second, SESSION).close(closed=False)
    client.close()
    assert len(topic.subscriptions()) == 1
    second.close()
    assert topic.subscriptions() == []
    assert net.space.awaiting == {}


def test_a_link_lost_with_everything_else(net: Network, topic: Topic) -> None:
    client = net.connect()
    subscribe(client, SESSION, 10)
    client.lose()
    net.advance(9)
    assert len(topic.subscriptions()) == 1
    net.advance(2)
    assert topic.subscriptions() == []


def test_of_a_shared_one_the_last_link_counts(net: Network, topic: Topic) -> None:
    first = net.connect()
    second = net.connect()
    caps = ["shared", "global"]
    one = subscribe(first, DETACH, 10, caps)
    two = subscribe(second, DETACH, 20, caps)
    one.close(closed=False)
    net.advance(100)
    assert len(topic.subscriptions()) == 1
    two.close(closed=False)
    net.advance(19)
    assert len(topic.subscriptions()) == 1
    net.advance(2)
    assert topic.subscriptions() == []


def test_a_topic_that_goes_takes_its_timers_along(net: Network, topic: Topic) -> None:
    client = net.connect()
    subscribe(client, DETACH, 60).close(closed=False)
    pending = len(net.broker.timers)
    net.space.remove(topic)
    assert len(net.broker.timers) == pending - 1
    net.advance(100)
    assert net.space.durables == {}
