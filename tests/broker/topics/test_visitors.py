"""Subscriptions have addresses, TOPIC::NAME: to browse, to help out, and not to send to."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_types.messaging import Accepted, Properties, Rejected, Source, TerminusExpiryPolicy
from tests.broker.harness import Client, Network, Receiver

NEVER = TerminusExpiryPolicy.NEVER


def own(client: Client, credit: int = 0) -> Receiver:
    source = Source(address="news", expiry_policy=NEVER)
    return client.receiver("news", source=source, name="mine", credit=credit)


def test_a_browser_sees_what_waits_and_leaves_it(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="reader")
    reader = own(client)
    net.connect().sender("news").send(b"a", b"b")
    browser = net.connect().receiver("news::reader/mine", mode="copy", credit=10)
    assert browser.bodies() == [b"a", b"b"]
    assert browser.remote_source.distribution_mode == "copy"
    browser.settle(Accepted())
    browser.close()
    reader.credit(10)
    assert reader.bodies() == [b"a", b"b"]
    assert len(topic.subscriptions()) == 1


def test_nobody_takes_from_one_that_is_in_use(net: Network, topic: Topic) -> None:
    own(net.connect(container_id="reader"))
    thief = net.connect().receiver("news::reader/mine", credit=10)
    assert thief.error is not None and thief.error.condition == "amqp:resource-locked"


def test_the_owner_waits_for_who_empties_it(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="reader")
    own(client).close(closed=False)
    net.connect().sender("news").send(b"a", b"b")
    helper = net.connect().receiver("news::reader/mine", credit=1)
    assert helper.bodies() == [b"a"]
    locked = own(client)
    assert locked.error is not None and locked.error.condition == "amqp:resource-locked"
    helper.settle(Accepted())
    helper.close(closed=True)
    assert own(client, credit=10).bodies() == [b"b"]


def test_a_declared_one_is_consumed_by_its_address_or_shared(net: Network, topic: Topic) -> None:
    topic.declare_subscription("audit")
    net.connect().sender("news").send(b"a", b"b")
    source = Source(address="news", expiry_policy=NEVER, capabilities=["shared", "global"])
    shared = net.connect().receiver("news", source=source, name="audit|1", credit=1)
    direct = net.connect().receiver("news::audit", credit=1)
    assert (shared.bodies(), direct.bodies()) == ([b"a"], [b"b"])
    shared.close(closed=True)
    direct.close(closed=True)
    assert [s.name for s in topic.subscriptions()] == ["audit"]


def test_there_is_no_other(net: Network, topic: Topic) -> None:
    reader = net.connect().receiver("news::nothing")
    assert reader.error is not None and reader.error.condition == "amqp:not-found"


def test_nothing_is_sent_to_a_subscription(net: Network, topic: Topic) -> None:
    topic.declare_subscription("audit")
    client = net.connect()
    sender = client.sender("news::audit")
    assert sender.error is not None and sender.error.condition == "amqp:not-allowed"
    sent = client.sender(None).send_sections(Properties(to="news::audit"))
    assert isinstance(sent.remote_state, Rejected)
    assert topic.message_count() == 0


@pytest.mark.parametrize(
    ("container", "name", "address"),
    [
        ("app", "sub", "app/sub"),
        ("ID:1:2", "s", "ID:1:2/s"),
        ("a/b", "c", "a%2Fb/c"),
        ("a", "b/c", "a/b/c"),
        ("a::b", "::c", "a%3A%3Ab/%3A%3Ac"),
        (":a", "b", "%3Aa/b"),
        ("~1", "50%@", "%7E1/50%@"),
    ],
)
def test_names_can_be_told_apart(
    net: Network, topic: Topic, container: str, name: str, address: str
) -> None:
    client = net.connect(container_id=container)
    source = Source(address="news", expiry_policy=NEVER)
    client.receiver("news", source=source, name=name)
    [subscription] = topic.subscriptions()
    assert subscription.name == address
    client.sender("news").send(b"m")
    browser = client.receiver(f"news::{address}", mode="copy", credit=1)
    assert browser.bodies() == [b"m"]


def test_an_endless_name_is_refused(net: Network, topic: Topic) -> None:
    source = Source(address="news", expiry_policy=NEVER)
    reader = net.connect().receiver("news", source=source, name="x" * 2000)
    assert reader.error is not None and reader.error.condition == "amqp:invalid-field"
    assert topic.subscriptions() == []
