"""A link attached by its name alone is what it was: how JMS clients unsubscribe."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Source, TerminusExpiryPolicy
from tests.broker.harness import Client, Network, Receiver

RED = Described("apache.org:selector-filter:string", "colour = 'red'")


def subscribe(client: Client, name: str, *capabilities: str) -> Receiver:
    source = Source(
        address="news",
        expiry_policy=TerminusExpiryPolicy.NEVER,
        filter={"selector": RED},
        capabilities=list(capabilities),
    )
    return client.receiver("news", source=source, name=name)


def attach_without_source(client: Client, name: str) -> Receiver:
    link = client.session.attach_receiver(name, source=None)
    client.links[link] = receiver = Receiver(client, link)
    client.net.run()
    return receiver


@pytest.mark.parametrize(
    ("name", "again", "capabilities"),
    [
        ("mine", "mine", []),
        ("mine|2", "mine", ["shared"]),
        ("mine", "mine|5", ["shared"]),
        ("mine|2", "mine|global", ["shared", "global"]),
    ],
)
def test_it_is_told_what_it_was_and_unsubscribes(
    net: Network, topic: Topic, name: str, again: str, capabilities: list[str]
) -> None:
    client = net.connect(container_id="reader")
    subscribe(client, name, *capabilities).close(closed=False)
    recalled = attach_without_source(client, again)
    source = recalled.remote_source
    assert source.address == "news"
    assert source.filter == {"selector": RED}
    assert source.expiry_policy is TerminusExpiryPolicy.NEVER
    assert set(source.capabilities or []) == {"topic", *capabilities}
    assert len(topic.subscriptions()) == 1
    recalled.close(closed=True)
    assert topic.subscriptions() == []


@pytest.mark.parametrize(("container", "name"), [("reader", "other"), ("other", "mine")])
def test_what_has_not_been_there_is_not_found(
    net: Network, topic: Topic, container: str, name: str
) -> None:
    subscribe(net.connect(container_id="reader"), "mine").close(closed=False)
    refused = attach_without_source(net.connect(container_id=container), name)
    assert refused.error is not None and refused.error.condition == "amqp:not-found"
    assert len(topic.subscriptions()) == 1


def test_a_number_behind_it_is_not_part_of_the_name_of_one_that_is_not_shared(
    net: Network, topic: Topic
) -> None:
    client = net.connect(container_id="reader")
    subscribe(client, "mine").close(closed=False)
    refused = attach_without_source(client, "mine|2")
    assert refused.error is not None and refused.error.condition == "amqp:not-found"
    assert len(topic.subscriptions()) == 1
