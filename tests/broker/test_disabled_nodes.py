"""Queues, topics and subscriptions that are disabled for senders or receivers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_codec.scalars import Described, Symbol, UInt
from ferrymq_types.messaging import Accepted, Data, Properties, Rejected, Source
from tests.broker.harness import Endpoint, Network
from tests.broker.transactions.kit import ROLLBACK, Controller, post

DISABLED = "ferrymq:disabled"


def disable(queue: Queue, send: bool = False, receive: bool = False) -> None:
    queue.change_policy(replace(queue.policy, send_disabled=send, receive_disabled=receive))


def condition(endpoint: Endpoint) -> str | None:
    return None if endpoint.error is None else str(endpoint.error.condition)


def test_a_queue_that_is_disabled_for_senders(net: Network) -> None:
    queue = net.declare("q")
    sender = net.connect().sender("q")
    sender.send(b"a")
    disable(queue, send=True)
    net.finish()
    assert condition(sender) == DISABLED
    assert condition(net.connect().sender("q")) == DISABLED
    assert net.connect().receiver("q", credit=1).bodies() == [b"a"]
    disable(queue)
    net.connect().sender("q").send(b"b")
    assert queue.message_count() == 2


def test_a_queue_that_is_disabled_for_receivers(net: Network) -> None:
    queue = net.declare("q")
    net.connect().sender("q").send(b"a", b"b")
    receiver = net.connect().receiver("q", credit=1)
    disable(queue, receive=True)
    net.finish()
    assert condition(receiver) == DISABLED
    assert condition(net.connect().receiver("q")) == DISABLED
    net.connect().sender("q").send(b"c")
    assert (queue.available, queue.acquired) == (3, 0)
    disable(queue)
    again = net.connect().receiver("q", credit=3)
    assert again.bodies() == [b"a", b"b", b"c"]
    again.settle(Accepted())
    assert queue.message_count() == 0


def test_messages_by_their_own_address_are_refused(net: Network) -> None:
    disable(net.declare("q"), send=True)
    sender = net.connect().sender(None)
    delivery = sender.send_sections(Properties(to="q"), Data(value=b"a"))
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == DISABLED


def test_a_transaction_with_a_disabled_queue_is_rolled_back(net: Network) -> None:
    queue = net.declare("q")
    client = net.connect()
    control = Controller(client)
    txn = control.declare()
    post(client.sender("q"), txn, b"a")
    disable(queue, send=True)
    assert ROLLBACK in control.refused(txn)
    assert queue.message_count() == 0


def test_dead_letters_still_come(net: Network) -> None:
    disable(net.declare("dead"), send=True)
    net.declare("q", QueuePolicy(dead_letter="dead"))
    net.connect().sender("q").send(b"a")
    net.connect().receiver("q", credit=1).settle(Rejected())
    assert net.queue("dead").message_count() == 1


def test_a_receiver_that_waits_for_a_session_is_refused(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(sessions=True))
    asked = {Symbol("session"): Described(Symbol("ferrymq:session"), None)}
    waiting = net.connect().receiver(
        None,
        source=Source(address="q", filter=dict(asked)),
        properties={"ferrymq:timeout": UInt(60_000)},
    )
    assert not waiting.attached
    disable(queue, receive=True)
    net.finish()
    assert condition(waiting) == DISABLED


@pytest.mark.parametrize("window", [0, 60_000])
def test_a_topic_that_is_disabled_for_senders(net: Network, window: int) -> None:
    policy = TopicPolicy(duplicate_window=window)
    topic = net.space.create("t", policy)
    assert isinstance(topic, Topic)
    subscriber = net.connect().receiver("t", credit=5)
    sender = net.connect().sender("t")
    sender.send(b"a")
    topic.change_policy(replace(policy, send_disabled=True))
    net.finish()
    assert condition(sender) == DISABLED and condition(net.connect().sender("t")) == DISABLED
    anonymous = net.connect().sender(None)
    state = anonymous.send_sections(Properties(to="t"), Data(value=b"b")).remote_state
    assert isinstance(state, Rejected)
    topic.change_policy(policy)
    net.connect().sender("t").send(b"c")
    assert subscriber.bodies() == [b"a", b"c"] and subscriber.error is None


def test_a_subscription_that_is_disabled_for_receivers(net: Network) -> None:
    topic = net.space.create("t", TopicPolicy())
    assert isinstance(topic, Topic)
    subscription = topic.declare_subscription("s")
    receiver = net.connect().receiver("t::s", credit=5)
    topic.change_subscription(subscription, QueuePolicy(receive_disabled=True))
    net.finish()
    assert condition(receiver) == DISABLED
    assert condition(net.connect().receiver("t::s")) == DISABLED
    net.connect().sender("t").send(b"a")
    topic.change_subscription(subscription, QueuePolicy())
    assert net.connect().receiver("t::s", credit=5).bodies() == [b"a"]
