"""Queues that go by themselves when nobody has used them for so long."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Properties
from tests.broker.harness import Network
from tests.broker.lifecycle.letters import send


def test_a_queue_goes_when_it_has_not_been_used_for_so_long(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(auto_delete=10_000))
    client = net.connect()
    receiver = client.receiver("q")
    net.advance(100)
    receiver.close()
    net.advance(9.999)
    assert not queue.deleted
    net.advance(0.002)
    assert queue.deleted
    assert "q" not in net.space.nodes


def test_one_that_nobody_ever_used_goes_too(net: Network) -> None:
    net.connect()
    queue = net.declare("q", QueuePolicy(auto_delete=10_000))
    net.broker.finish_pass()
    net.advance(9.9)
    assert not queue.deleted
    net.advance(0.2)
    assert queue.deleted


def test_one_from_before_there_was_a_time_of_day(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(auto_delete=10_000))
    net.connect()
    net.broker.finish_pass()
    net.advance(9)
    assert not queue.deleted
    net.advance(2)
    assert queue.deleted


def test_without_the_policy_a_queue_stays(net: Network) -> None:
    queue = net.declare("q", QueuePolicy())
    net.connect().receiver("q").close()
    net.advance(1_000_000)
    assert not queue.deleted


def test_no_patience_at_all(net: Network) -> None:
    net.connect()
    queue = net.declare("q", QueuePolicy(auto_delete=0))
    client = net.connect()
    first = client.receiver("q")
    second = client.sender("q")
    first.close()
    net.advance(1)
    assert not queue.deleted
    second.close()
    net.advance(0.001)
    assert queue.deleted


def test_messages_keep_a_queue_until_they_are_gone(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(auto_delete=10_000))
    client = net.connect()
    sender = client.sender("q")
    send(sender, b"a", ttl=60_000)
    sender.close()
    net.advance(59)
    assert not queue.deleted
    net.advance(1.01)
    assert queue.deleted


def test_what_is_scheduled_keeps_a_queue_too(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(auto_delete=10_000))
    client = net.connect()
    sender = client.sender("q")
    send(sender, b"a", annotations={"x-opt-delivery-delay": 60_000})
    sender.close()
    net.advance(30)
    assert not queue.deleted
    queue.lifecycle.cancel_scheduled(queue.lifecycle.list_scheduled()[0].sequence)
    net.broker.finish_pass()
    net.advance(0.01)
    assert queue.deleted


def test_a_message_is_a_use(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(auto_delete=10_000, message_ttl=1000))
    anonymous = net.connect().sender(None)
    for _ in range(5):
        net.advance(8)
        send(anonymous, b"a", properties=Properties(to="q"))
    net.advance(9.9)
    assert not queue.deleted
    net.advance(0.2)
    assert queue.deleted


def test_a_consumer_that_takes_the_last_message_has_used_it(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(auto_delete=10_000))
    client = net.connect()
    sender = client.sender("q")
    sender.send(b"a")
    sender.close()
    net.advance(100)
    receiver = client.receiver("q", credit=1)
    receiver.settle(Accepted())
    assert not queue.deleted
    receiver.close()
    net.advance(9.9)
    assert not queue.deleted
    net.advance(0.2)
    assert queue.deleted


@pytest.mark.parametrize("patience", [-1, 5000])
def test_the_patience_can_be_changed(net: Network, patience: int) -> None:
    queue = net.declare("q", QueuePolicy(auto_delete=1000))
    net.connect().receiver("q").close()
    queue.change_policy(QueuePolicy(auto_delete=patience))
    net.broker.finish_pass()
    net.advance(4)
    assert not queue.deleted
    net.advance(1.1)
    assert queue.deleted is (patience > 0)


def unconsumed(after: int) -> QueuePolicy:
    return QueuePolicy(auto_delete=after, auto_delete_when="unconsumed")


def test_unconsumed_a_queue_goes_with_its_messages(net: Network) -> None:
    queue = net.declare("q", unconsumed(10_000))
    sender = net.connect().sender("q")
    sender.send_sections(Properties())
    receiver = net.connect().receiver("q")
    net.advance(100)
    assert not queue.deleted
    receiver.close()
    net.advance(9)
    sender.send_sections(Properties())
    net.advance(0.9)
    assert not queue.deleted
    net.advance(0.2)
    assert queue.deleted


def test_unconsumed_and_no_patience(net: Network) -> None:
    queue = net.declare("q", unconsumed(0))
    sender = net.connect().sender("q")
    sender.send_sections(Properties())
    sender.close()
    net.advance(100)
    assert not queue.deleted
    first = net.connect().receiver("q")
    second = net.connect().receiver("q")
    browser = net.connect().receiver("q", mode="copy")
    first.close()
    net.advance(1)
    assert not queue.deleted
    second.close()
    net.advance(0.1)
    assert queue.deleted
    assert browser.error is not None


def test_unconsumed_one_that_nobody_ever_consumed_from_goes_in_time(net: Network) -> None:
    net.connect()
    queue = net.declare("q", unconsumed(10_000))
    sender = net.connect().sender("q")
    net.advance(9.9)
    sender.send_sections(Properties())
    assert not queue.deleted
    net.advance(0.2)
    assert queue.deleted
