"""Browsers beside priorities, filters and messages that go."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, Released
from tests.broker.harness import Network
from tests.broker.queues.links import consume, numbered, publish


@pytest.mark.spec("3.5.7")
def test_a_browser_sees_the_urgent_first_and_then_what_comes(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    publish(sender, b"4a", b"4b")
    publish(sender, b"9a", priority=9)
    browser = consume(client, "q", 100, mode="copy")
    assert browser.bodies() == [b"9a", b"4a", b"4b"]
    publish(sender, b"0a", priority=0)
    publish(sender, b"9b", priority=9)
    publish(sender, b"4c")
    assert browser.bodies() == [b"9a", b"4a", b"4b", b"0a", b"9b", b"4c"]
    assert net.queue("q").available == 6


def test_a_browser_keeps_its_place_in_every_lane(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    for priority in (9, 4):
        publish(sender, *(b"%d%c" % (priority, letter) for letter in b"abc"), priority=priority)
    browser = consume(client, "q", 4, mode="copy")
    consumer = consume(client, "q", 5)
    # Everything it has seen goes, and the next one.
    consumer.settle(Accepted())
    browser.credit(100)
    assert browser.bodies() == [b"9a", b"9b", b"9c", b"4a", b"4c"]
    publish(sender, b"9d", priority=9)
    assert browser.bodies()[-1] == b"9d"


def test_a_browser_with_a_filter_goes_on_where_it_was(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    for number in range(10):
        publish(sender, b"%d" % number, n=number)
    browser = consume(client, "q", 2, selector="n >= 3", mode="copy")
    assert browser.bodies() == [b"3", b"4"]
    consumer = consume(client, "q", 4)
    consumer.settle(Released())
    browser.credit(100)
    assert browser.bodies() == numbered(3, 7)
    assert net.queue("q").available == 10


def test_a_thousand_steps_behind_a_consumer(net: Network) -> None:
    """A browser without credit stays where it was, whatever is taken from under it."""
    client = net.connect()
    sender = client.sender("q")
    sender.send(*numbered(0, 500))
    browser = consume(client, "q", 100, mode="copy")
    consumer = consume(client, "q", 300)
    consumer.settle(Accepted())
    assert browser.bodies() == numbered(0, 100)
    browser.credit(1000)
    assert browser.bodies() == numbered(0, 100) + numbered(300, 200)
