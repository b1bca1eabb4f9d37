"""No message leaves when its time is over, whatever held it up (the broker book §2.2.5)."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, Data, Header
from tests.broker.harness import Client, Network, Receiver, header


def stop_reading(client: Client, receiver: Receiver, credit: int) -> None:
    """The client gives credit and then reads no more; the broker hears that."""
    client.net.clients.remove(client)
    receiver.link.set_credit(credit)
    client.handler.receive_data(client.engine.data_to_send(), client.net.now)
    client.net.run()


def go_on(client: Client) -> None:
    """The client reads what has come."""
    client.net.clients.append(client)
    client.net.run()


@pytest.mark.spec("broker-2.2.5", "3.2.1")
@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_closed_window_of_the_session(net: Network, window: int) -> None:
    sender = net.connect().sender("q")
    client = net.connect(incoming_window=window)
    receiver = client.receiver("q")
    for number in range(6):
        sender.send_sections(Header(ttl=1000), Data(value=b"%d" % number))
    stop_reading(client, receiver, 10)
    queue = net.queue("q")
    assert (queue.acquired, queue.available) == (window, 6 - window)
    net.advance(5)
    assert (queue.acquired, queue.available) == (window, 0)
    go_on(client)
    assert receiver.bodies() == [b"%d" % number for number in range(window)]
    receiver.settle(Accepted())
    # Nobody is left out afterwards, and what has no ttl is not held up at all.
    sender.send(b"a", b"b", b"c", b"d")
    assert receiver.bodies() == [b"a", b"b", b"c", b"d"]


@pytest.mark.spec("broker-2.2.5", "3.2.1")
def test_the_ttl_that_is_left_is_that_of_the_moment_of_sending(net: Network) -> None:
    sender = net.connect().sender("q")
    client = net.connect(incoming_window=1)
    receiver = client.receiver("q")
    for number in range(3):
        sender.send_sections(Header(ttl=10_000), Data(value=b"%d" % number))
    stop_reading(client, receiver, 10)
    net.advance(4)
    go_on(client)
    assert receiver.bodies() == [b"0", b"1", b"2"]
    assert [header(d.payload).ttl for d in receiver.deliveries] == [10_000, 6000, 6000]


@pytest.mark.spec("2.6.7")
def test_a_drain_waits_for_the_window(net: Network) -> None:
    sender = net.connect().sender("q")
    client = net.connect(incoming_window=1)
    receiver = client.receiver("q")
    for number in range(3):
        sender.send_sections(Header(ttl=10_000), Data(value=b"%d" % number))
    net.clients.remove(client)
    receiver.link.set_credit(10)
    receiver.link.drain_credit()
    client.handler.receive_data(client.engine.data_to_send(), net.now)
    net.run()
    assert receiver.drained == 0
    go_on(client)
    assert receiver.bodies() == [b"0", b"1", b"2"]
    assert receiver.drained == 1 and receiver.link.credit == 0
