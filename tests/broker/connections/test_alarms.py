"""While something runs short producers get no credit; consumers go on."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.setup import install
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Data
from tests.broker.harness import Network, encode
from tests.broker.management.asker import Asker

KIB = bytes(1024)


@pytest.mark.spec("broker-2.3.9")
def test_above_the_limit_producers_wait_and_consumers_go_on(net: Network) -> None:
    net.credit = 10
    net.broker.limit_memory(20 * 1024)
    client = net.connect()
    sender = client.sender("q")
    sent = 0
    while sender.link.credit > 0:
        sender.send(KIB)
        sent += 1
    # Each message has the broker look.
    assert sent == 20
    assert net.queue("q").message_count() == sent
    assert net.broker.alarms == {"memory"}
    late = client.sender("other")
    assert late.attached and late.link.credit == 0
    receiver = client.receiver("q", credit=sent - 17)
    assert len(receiver.deliveries) == sent - 17
    receiver.settle(Accepted())
    # Below the limit, and not yet at the low water.
    assert net.broker.alarms == {"memory"} and sender.link.credit == 0
    receiver.credit(5)
    receiver.settle(Accepted())
    assert net.broker.alarms == set()
    assert sender.link.credit == 10 and late.link.credit == 10


def test_the_low_water_can_be_stated(net: Network) -> None:
    net.broker.limit_memory(10 * 1024, 1024)
    client = net.connect()
    client.sender("q").send(*[KIB] * 11)
    receiver = client.receiver("q", credit=9)
    receiver.settle(Accepted())
    assert net.broker.alarms == {"memory"}
    receiver.credit(2)
    receiver.settle(Accepted())
    assert net.broker.alarms == set()


def test_an_alarm_for_another_reason(net: Network) -> None:
    net.credit = 4
    client = net.connect()
    sender = client.sender("q")
    net.broker.set_alarm("disk", True)
    sender.send(b"1", b"2", b"3", b"4")
    assert sender.link.credit == 0
    assert client.receiver("q", credit=9).bodies() == [b"1", b"2", b"3", b"4"]
    net.broker.set_alarm("memory", True)
    net.broker.set_alarm("disk", False)
    net.run()
    assert sender.link.credit == 0 and net.broker.alarms == {"memory"}
    net.broker.set_alarm("memory", False)
    net.finish()
    assert sender.link.credit == 4


def test_a_limit_that_is_raised_ends_the_alarm(net: Network) -> None:
    net.credit = 2
    net.broker.limit_memory(1024)
    sender = net.connect().sender("q")
    while sender.link.credit > 0:
        sender.send(KIB)
    assert net.broker.alarms == {"memory"}
    net.broker.limit_memory(1024 * 1024)
    net.finish()
    assert net.broker.alarms == set() and sender.link.credit == 2


def test_links_that_go_during_an_alarm_are_forgotten(net: Network) -> None:
    net.credit = 1
    net.broker.set_alarm("disk", True)
    client = net.connect()
    sender = client.sender("q")
    assert sender.link.credit == 0
    client.lose()
    net.broker.set_alarm("disk", False)
    net.broker.finish_pass()
    assert net.broker.credit.reserved == 0


def test_who_manages_the_broker_can_make_room(net: Network) -> None:
    install(net.space, net.broker)
    net.credit = 1
    net.declare("q")
    net.connect().sender("q").send(KIB)
    net.broker.limit_memory(1000, 500)
    net.connect().sender("q")
    assert net.broker.alarms == {"memory"}
    asker = Asker(net)
    for _ in range(3):
        assert asker.ask("READ", "queue", "q").status == 200
    assert asker.ask("PURGE", "queue", "q").map() == {"count": 1}
    assert net.broker.alarms == set()


@pytest.mark.spec("2.6.7")
def test_what_was_promised_is_taken_back(net: Network) -> None:
    """The receiver may lower the credit; what comes all the same is handled normally."""
    alice = net.connect()
    sender = alice.sender("orders")
    granted = sender.link.credit
    assert granted > 3
    net.broker.begin_pass(net.now)
    net.broker.set_alarm("disk", True)
    # Sent before the client has heard of it.
    delivery = sender.link.send(encode(Data(value=b"under way")))
    net.finish()
    assert sender.link.credit == 0
    assert delivery.remote_state == Accepted()
    net.broker.set_alarm("disk", False)
    net.finish()
    assert sender.link.credit == granted


def test_a_bounded_queue_has_its_promises_right_after_an_alarm(net: Network) -> None:
    queue = net.declare("small", QueuePolicy(max_length=10, overflow="block"))
    alice = net.connect()
    sender = alice.sender("small")
    granted = sender.link.credit
    for _ in range(3):
        net.broker.begin_pass(net.now)
        net.broker.set_alarm("disk", True)
        net.finish()
        net.broker.begin_pass(net.now)
        net.broker.set_alarm("disk", False)
        net.finish()
    assert sender.link.credit == granted == queue.promised
    sender.send(*[b"x"] * granted)
    assert queue.available == granted
    assert queue.available + queue.promised <= 10
