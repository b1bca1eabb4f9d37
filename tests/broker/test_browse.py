"""Browsers (distribution-mode copy) see what is there and disturb nothing."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, Modified, Rejected, Released
from tests.broker.harness import Network


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.spec("3.5.7")
def test_a_browser_sees_everything_and_takes_nothing(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(5))
    browser = client.receiver("q", credit=100, mode="copy")
    assert browser.remote_source.distribution_mode == "copy"
    assert browser.bodies() == numbered(5)
    assert (net.queue("q").available, net.queue("q").acquired) == (5, 0)
    consumer = client.receiver("q", credit=100)
    assert consumer.remote_source.distribution_mode == "move"
    assert consumer.bodies() == numbered(5)


@pytest.mark.parametrize(
    "outcome",
    [Accepted(), Rejected(), Released(), Modified(delivery_failed=True, undeliverable_here=True)],
)
def test_no_outcome_of_a_browser_has_an_effect(
    net: Network, outcome: Accepted | Rejected | Released | Modified
) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(3))
    browser = client.receiver("q", credit=100, mode="copy")
    browser.settle(outcome)
    assert net.queue("q").available == 3
    assert net.queue("q").rejected == 0
    assert client.receiver("q", credit=10).bodies() == numbered(3)


def test_a_browser_goes_on_with_what_arrives(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    sender.send(b"a")
    browser = client.receiver("q", credit=100, mode="copy")
    sender.send(b"b")
    assert browser.bodies() == [b"a", b"b"]


def test_a_browser_sees_what_a_waiting_consumer_takes_at_once(net: Network) -> None:
    client = net.connect()
    browser = client.receiver("q", credit=100, mode="copy")
    consumer = client.receiver("q", credit=100)
    client.sender("q").send(*numbered(3))
    assert browser.bodies() == consumer.bodies() == numbered(3)


def test_a_browser_passes_over_what_others_hold(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(4))
    client.receiver("q", credit=2)
    browser = client.receiver("q", credit=100, mode="copy")
    assert browser.bodies() == [b"2", b"3"]


def test_browsers_go_their_own_ways(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(4))
    first = client.receiver("q", credit=2, mode="copy")
    second = client.receiver("q", credit=100, mode="copy")
    assert first.bodies() == numbered(2)
    assert second.bodies() == numbered(4)
    first.credit(100)
    assert first.bodies() == numbered(4)


def test_a_browser_keeps_its_place_when_messages_go(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    sender.send(*numbered(4))
    browser = client.receiver("q", credit=2, mode="copy")
    consumer = client.receiver("q", credit=3)
    # The last message it saw is removed, and the one after it.
    consumer.settle(Accepted())
    browser.credit(100)
    assert browser.bodies() == [b"0", b"1", b"3"]
    consumer.credit(10)
    consumer.settle(Accepted())
    sender.send(b"new")
    assert browser.bodies() == [b"0", b"1", b"3", b"new"]


def test_a_browser_is_drained(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(3))
    browser = client.receiver("q", mode="copy")
    browser.link.set_credit(10)
    browser.drain()
    assert browser.bodies() == numbered(3)
    assert browser.drained == 1
    assert browser.link.credit == 0


def test_a_leaving_browser_leaves_everything_in_place(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(3))
    browser = client.receiver("q", credit=2, mode="copy")
    browser.close()
    queue = net.queue("q")
    assert (queue.available, queue.acquired, queue.consumers) == (3, 0, {})


def test_an_unknown_distribution_mode_is_refused(net: Network) -> None:
    receiver = net.connect().receiver("q", mode="half")
    assert receiver.detached
    assert receiver.error is not None and receiver.error.condition == "amqp:not-implemented"
