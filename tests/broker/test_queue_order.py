"""First in, first out; and a message that comes back, comes back to its place."""

from __future__ import annotations

import random

import pytest

from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_types.messaging import Accepted, Modified, Released
from tests.broker.harness import Network, text


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_messages_leave_in_the_order_they_came(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(100))
    receiver = client.receiver("q", credit=100)
    assert receiver.bodies() == numbered(100)
    receiver.settle(Accepted())
    assert net.queue("q").available == net.queue("q").acquired == 0


def test_waiting_consumers_get_messages_as_they_come(net: Network) -> None:
    client = net.connect()
    receiver = client.receiver("q", credit=10)
    sender = client.sender("q")
    sender.send(b"a")
    assert receiver.bodies() == [b"a"]
    sender.send(b"b", b"c")
    assert receiver.bodies() == [b"a", b"b", b"c"]


@pytest.mark.spec("3.4.4")
@pytest.mark.parametrize("outcome", [Released(), Modified(), Modified(delivery_failed=True)])
def test_a_returned_message_comes_back_to_its_place(
    net: Network, outcome: Released | Modified
) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(5))
    first = client.receiver("q", credit=3)
    one, two, three = first.take()
    # Returned out of order, and behind messages that were never delivered.
    first.settle(outcome, three)
    first.settle(outcome, one)
    second = client.receiver("q", credit=10)
    assert second.bodies() == [b"0", b"2", b"3", b"4"]
    first.settle(outcome, two)
    assert second.bodies()[-1] == b"1"


@pytest.mark.parametrize("how", ["close link", "detach link", "end session", "close", "lose"])
def test_what_a_lost_link_held_comes_back_to_its_place(net: Network, how: str) -> None:
    producer = net.connect()
    producer.sender("q").send(*numbered(6))
    consumer = net.connect()
    receiver = consumer.receiver("q", credit=4)
    taken = receiver.take()
    receiver.settle(Accepted(), taken[1])
    if how == "close link":
        receiver.close()
    elif how == "detach link":
        receiver.close(closed=False)
    elif how == "end session":
        consumer.session.end()
        net.run()
    elif how == "close":
        consumer.close()
    else:
        consumer.lose()
    assert net.queue("q").acquired == 0
    assert net.queue("q").consumers == {}
    other = producer.receiver("q", credit=10)
    assert other.bodies() == [b"0", b"2", b"3", b"4", b"5"]


def test_order_survives_any_mix_of_outcomes(net: Network) -> None:
    """Whatever is returned, a consumer that drains the queue alone sees it in order."""
    rng = random.Random(7)
    client = net.connect()
    client.sender("q").send(*numbered(200))
    left = set(range(200))
    for _ in range(30):
        receiver = client.receiver("q", credit=rng.randrange(1, 40))
        deliveries = receiver.take()
        receiver.link.set_credit(0)
        rng.shuffle(deliveries)
        for delivery in deliveries:
            choice = rng.randrange(4)
            if choice == 0:
                left.discard(int(text(delivery.payload)))
                receiver.settle(Accepted(), delivery)
            elif choice == 1:
                receiver.settle(Released(), delivery)
            elif choice == 2:
                receiver.settle(Modified(delivery_failed=True), delivery)
        receiver.close()
    rest = client.receiver("q", credit=1000)
    assert [int(body) for body in rest.bodies()] == sorted(left)


def test_a_million_entries_go_without_recursion(net: Network) -> None:
    """Entries point at each other; dropping the first must not drop the rest by recursion."""
    queue = net.declare("long")
    message = BrokerMessage(b"x", 0, 0)
    for _ in range(1_000_000):
        queue.publish(message)
    purge = queue.purge()
    net.run()
    assert purge.over and purge.count == 1_000_000
    assert queue.available == 0
    queue.publish(message)
    assert queue.available == 1
