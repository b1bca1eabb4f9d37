"""Transactions over links whose termini outlive them (AMQP 1.0 §4.4)."""

from __future__ import annotations

import pytest

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.resumption import Resolution
from ferrymq_broker.store.tables import DELIVERY
from ferrymq_types.messaging import Accepted
from ferrymq_types.transactions import TransactionalState
from tests.broker.harness import Network
from tests.broker.termini.clients import (
    Consumer,
    Publisher,
    drained,
    filled,
    message,
    stored,
)
from tests.broker.transactions.kit import Controller

CUTS = pytest.mark.parametrize("broker", [False, True], ids=["connection", "broker"])


def on_record(net: Network) -> int:
    assert net.store is not None
    return net.store.count(DELIVERY)


def posted(net: Network) -> tuple[Publisher, Controller, bytes, OutgoingDelivery]:
    """A message that has been sent in a transaction."""
    one = Publisher(net)
    one.connect()
    one.attach()
    controller = Controller(one.client)
    txn = controller.declare()
    one.unsettled[b"a"] = message(b"a")
    state = TransactionalState(txn_id=txn)
    delivery = one.link.send(one.unsettled[b"a"], tag=b"a", state=state)
    net.run()
    return one, controller, txn, delivery


@CUTS
@pytest.mark.spec("4.4.1", "2.6.13")
def test_what_was_posted_is_known_when_it_is_committed(broker: bool) -> None:
    net = stored()
    one, controller, txn, _ = posted(net)
    assert on_record(net) == 0
    controller.commit(txn)
    assert on_record(net) == 1
    one.restart(broker=broker)
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.SETTLE}
    assert one.outcomes == {b"a": Accepted()} and drained(net) == [b"a"]


@CUTS
@pytest.mark.spec("4.4.1", "2.6.13")
def test_what_was_not_committed_never_came(broker: bool) -> None:
    net = stored()
    one, _, _, _ = posted(net)
    one.restart(broker=broker)
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.RESEND}
    one.learn()
    assert drained(net) == [b"a"]


def retired(net: Network) -> tuple[Consumer, Controller, bytes]:
    """A message whose acceptance is part of a transaction."""
    filled(net, b"a")
    one = Consumer(net)
    one.connect()
    one.attach()
    controller = Controller(one.client)
    txn = controller.declare()
    for delivery in one.unsettled.values():
        delivery.update(TransactionalState(txn_id=txn, outcome=Accepted()))
    net.run()
    return one, controller, txn


def finish(net: Network, one: Consumer) -> None:
    """The client accepts what it has, and that is the end of it."""
    one.give(Accepted())
    assert net.queue("q").message_count() == 0 and on_record(net) == 0


def resume_and_finish(net: Network, one: Consumer) -> None:
    """The client still has the message, and nobody sends it again."""
    one.connect()
    receiver = one.attach()
    assert one.bodies() == [b"a"] and receiver.deliveries == []
    finish(net, one)


@CUTS
@pytest.mark.spec("4.4.2", "2.6.13")
def test_what_was_retired_is_gone_when_it_is_committed(broker: bool) -> None:
    net = stored()
    one, controller, txn = retired(net)
    assert on_record(net) == 1
    controller.commit(txn)
    assert on_record(net) == 0 and net.queue("q").message_count() == 0
    one.restart(broker=broker)
    one.connect()
    one.attach()
    one.note()
    assert one.bodies() == []


@CUTS
@pytest.mark.spec("4.4.2", "2.6.13")
def test_what_was_retired_and_rolled_back_is_still_the_clients(broker: bool) -> None:
    net = stored()
    one, controller, txn = retired(net)
    controller.roll_back(txn)
    assert on_record(net) == 1
    one.restart(broker=broker)
    assert drained(net) == []
    resume_and_finish(net, one)


@CUTS
@pytest.mark.spec("4.4.2", "2.6.13")
def test_a_transaction_that_is_lost_lets_the_message_come_again(broker: bool) -> None:
    net = stored()
    one, _, _ = retired(net)
    one.restart(broker=broker)
    one.connect()
    one.attach()
    one.note()
    assert one.bodies() == [b"a"]
    finish(net, one)


@pytest.mark.spec("4.4.2")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_the_link_may_go_before_the_transaction_ends(fail: bool) -> None:
    net = stored()
    one, controller, txn = retired(net)
    one.receiver.close(closed=False)
    one.unsettled = {}
    one.attach()
    assert one.bodies() == []
    if fail:
        controller.roll_back(txn)
        one.note()
        assert one.bodies() == [b"a"]
        one.give(Accepted())
    else:
        controller.commit(txn)
    assert net.queue("q").message_count() == 0 and on_record(net) == 0


@CUTS
@pytest.mark.spec("4.4.3", "2.6.13")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_what_was_acquired_is_the_clients_when_it_is_committed(fail: bool, broker: bool) -> None:
    net = stored()
    filled(net, b"a")
    one = Consumer(net)
    one.connect()
    one.attach(credit=0)
    controller = Controller(one.client)
    txn = controller.declare()
    one.link.set_credit(1, properties={"txn-id": txn})
    net.run()
    one.note()
    assert one.bodies() == [b"a"] and on_record(net) == 0
    if fail:
        controller.roll_back(txn)
        one.note()
        one.restart(broker=broker)
        assert drained(net) == [b"a"]
        return
    controller.commit(txn)
    assert on_record(net) == 1
    one.restart(broker=broker)
    assert drained(net) == []
    resume_and_finish(net, one)
