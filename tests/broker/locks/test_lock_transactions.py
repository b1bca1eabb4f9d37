"""Locks of messages that transactions decide on."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Modified
from tests.broker.harness import Client, Network, header
from tests.broker.locks.test_locks import figures, is_lost, locked_queue, tell
from tests.broker.management.asker import Asker
from tests.broker.transactions.kit import Controller, acquire, retire

LOCKED = QueuePolicy(lock_duration=10_000)


@pytest.fixture
def client(net: Network) -> Client:
    return net.connect()


@pytest.fixture
def control(client: Client) -> Controller:
    return Controller(client)


def test_a_retired_delivery_does_not_lapse_before_the_discharge(
    net: Network, control: Controller
) -> None:
    locked_queue(net, b"a", policy=LOCKED)
    receiver = control.client.receiver("q", credit=1)
    txn = control.declare()
    (delivery,) = receiver.take()
    retire(receiver, txn, delivery)
    net.advance(15)
    assert figures(net, "locked", "locks-lost") == [1, 0]
    control.commit(txn)
    assert figures(net, "messages", "accepted", "locked") == [0, 1, 0]
    assert delivery.remote_settled


def test_after_a_rollback_an_overdue_lock_lapses(net: Network, control: Controller) -> None:
    locked_queue(net, b"a", policy=LOCKED)
    receiver = control.client.receiver("q", credit=1)
    txn = control.declare()
    (delivery,) = receiver.take()
    retire(receiver, txn, delivery)
    net.advance(15)
    control.roll_back(txn)
    net.advance(0)
    other = net.connect().receiver("q", credit=1)
    assert other.bodies() == [b"a"]
    assert header(other.deliveries[0].payload).delivery_count == 1
    tell(receiver, delivery, Accepted())
    assert is_lost(delivery)


def test_a_rollback_in_time_leaves_the_lock(net: Network, control: Controller) -> None:
    locked_queue(net, b"a", policy=LOCKED)
    receiver = control.client.receiver("q", credit=1)
    txn = control.declare()
    (delivery,) = receiver.take()
    retire(receiver, txn, delivery)
    control.roll_back(txn)
    net.advance(5)
    tell(receiver, delivery, Accepted())
    assert delivery.remote_settled and delivery.remote_state == Accepted()
    assert figures(net, "messages", "locked") == [0, 0]


def test_a_transaction_with_a_lost_message_cannot_be_committed(
    net: Network, control: Controller
) -> None:
    locked_queue(net, b"a", policy=LOCKED)
    receiver = control.client.receiver("q", credit=1)
    (delivery,) = receiver.take()
    net.advance(11)
    receiver.take()
    txn = control.declare()
    retire(receiver, txn, delivery)
    assert "lock had been lost" in control.refused(txn)
    assert figures(net, "accepted") == [0]


def test_acquired_messages_are_locked_too(net: Network, control: Controller) -> None:
    locked_queue(net, b"a", policy=LOCKED)
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 1)
    (delivery,) = receiver.take()
    assert len(delivery.tag) == 16
    net.advance(15)
    assert figures(net, "locked", "locks-lost") == [1, 0]
    control.commit(txn)
    net.advance(0)
    # The message is held like others now, and its time is over.
    assert figures(net, "locked", "locks-lost", "available") == [0, 1, 1]


def test_a_retired_message_whose_link_is_gone_stays_locked_after_a_rollback(
    net: Network, control: Controller, asker: Asker
) -> None:
    locked_queue(net, b"a", policy=LOCKED)
    receiver = control.client.receiver("q", credit=1)
    txn = control.declare()
    (delivery,) = receiver.take()
    retire(receiver, txn, delivery)
    receiver.link.detach(closed=True)
    net.run()
    request = {"tokens": [delivery.tag], "outcome": "accepted"}
    assert asker.ask("SETTLE", "queue", "q", request).status == 409
    control.roll_back(txn)
    assert figures(net, "locked", "acquired") == [1, 1]
    assert asker.ask("SETTLE", "queue", "q", request).status == 200
    assert figures(net, "messages") == [0]


def test_a_message_is_deferred_when_the_transaction_is_committed(
    net: Network, control: Controller
) -> None:
    locked_queue(net, b"a", b"b", policy=QueuePolicy(lock_duration=10_000, deferral=True))
    receiver = control.client.receiver("q", credit=2)
    first, second = receiver.take()
    txn, other = control.declare(), control.declare()
    retire(receiver, txn, first, outcome=Modified(undeliverable_here=True))
    retire(receiver, other, second, outcome=Modified(undeliverable_here=True))
    assert figures(net, "deferred", "locked") == [0, 2]
    control.commit(txn)
    control.roll_back(other)
    assert figures(net, "deferred", "locked", "locks-lost") == [1, 1, 0]
