"""Entities whose status is not Active, for clients that send and receive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_types.messaging import Accepted
from tests.broker.harness import Endpoint, Network
from tests.servicebus.kit import network_of, queue_of
from tests.servicebus.management.requests import EntityClient, encoded

DISABLED = "com.microsoft:entity-disabled"


@pytest.fixture
def net() -> Network:
    return network_of(
        queue=[
            {"name": "active"},
            {"name": "disabled", "status": "Disabled"},
            {"name": "no-send", "status": "SendDisabled"},
            {"name": "no-receive", "status": "ReceiveDisabled"},
        ],
        topic=[
            {"name": "news", "status": "Disabled"},
            {"name": "facts", "subscription": [{"name": "s", "status": "Disabled"}]},
        ],
    )


def condition(endpoint: Endpoint) -> str | None:
    return None if endpoint.error is None else str(endpoint.error.condition)


@pytest.mark.parametrize(
    ("name", "send", "receive"),
    [
        ("active", None, None),
        ("disabled", DISABLED, DISABLED),
        ("no-send", DISABLED, None),
        ("no-receive", None, DISABLED),
    ],
)
def test_links_to_a_queue(net: Network, name: str, send: str | None, receive: str | None) -> None:
    assert condition(net.connect().sender(name)) == send
    assert condition(net.connect().receiver(name)) == receive


def test_links_to_topics_and_subscriptions(net: Network) -> None:
    assert condition(net.connect().sender("news")) == DISABLED
    net.connect().sender("facts").send(b"a")
    assert condition(net.connect().receiver("facts/Subscriptions/s")) == DISABLED
    topic = net.space.find("facts")
    assert isinstance(topic, Topic)
    (subscription,) = topic.subscriptions()
    policy = replace(subscription.queue.policy, receive_disabled=False)
    topic.change_subscription(subscription, policy)
    assert net.connect().receiver("facts/Subscriptions/s", credit=1).bodies() == [b"a"]


def test_a_disabled_entity_can_be_active_again(net: Network) -> None:
    queue = queue_of(net, "active")
    policy = queue.policy
    sender = net.connect().sender("active")
    receiver = net.connect().receiver("active", credit=1)
    sender.send(b"a")
    queue.change_policy(replace(policy, send_disabled=True, receive_disabled=True))
    net.finish()
    assert condition(sender) == condition(receiver) == DISABLED
    queue.change_policy(policy)
    # The message was locked by the link that has gone.
    net.advance(61)
    again = net.connect().receiver("active", credit=1)
    assert again.bodies() == [b"a"]
    again.settle(Accepted())
    assert queue.message_count() == 0


def test_nothing_is_scheduled_in_a_disabled_queue(net: Network) -> None:
    client = EntityClient(net, "no-send")
    message = {"message": encoded(b"a", int(net.wall) + 1000)}
    answer = client.ask("schedule-message", {"messages": [message]})
    assert answer.properties["errorCondition"] == DISABLED
