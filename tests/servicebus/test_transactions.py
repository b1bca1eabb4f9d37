"""Outcomes of clients in transactions: they count when the transaction is committed."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, ApplicationProperties, Data, Modified, Rejected
from ferrymq_types.transport import Error
from ferrymq_types.unions import Outcome
from tests.broker.harness import Network, header
from tests.broker.transactions.kit import Controller, post, retire
from tests.servicebus.kit import application, first, network_of, queue_of

DEAD_LETTERS = "orders/$DeadLetterQueue"
COMPLETE = Accepted()
ABANDON = Modified(delivery_failed=True, message_annotations={"changed": 2})
DEFER = Modified(undeliverable_here=True, message_annotations={"changed": 2})
DEAD_LETTER = Rejected(
    error=Error(condition="com.microsoft:dead-letter", info={"DeadLetterReason": "bad"})
)


@pytest.fixture
def net() -> Network:
    return network_of(queue=[{"name": "orders"}, {"name": "bills"}])


def put(net: Network) -> None:
    net.connect().sender("orders").send_sections(
        ApplicationProperties({"changed": 1}), Data(value=b"a")
    )


def places(net: Network) -> tuple[int, int, int]:
    """How many messages can be received, are deferred, and are dead letters."""
    queue = queue_of(net, "orders")
    waiting = queue.entries.available
    deferred = queue.message_count() - waiting - queue.entries.acquired
    return int(waiting), int(deferred), int(queue_of(net, DEAD_LETTERS).message_count())


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    ("outcome", "where"),
    [
        (COMPLETE, (0, 0, 0)),
        (ABANDON, (1, 0, 0)),
        (DEFER, (0, 1, 0)),
        (DEAD_LETTER, (0, 0, 1)),
    ],
)
def test_an_outcome_is_committed(
    net: Network, outcome: Outcome, where: tuple[int, int, int], settled: bool
) -> None:
    put(net)
    receiver = first(net)
    control = Controller(receiver.client)
    txn = control.declare()
    retire(receiver, txn, *receiver.take(), outcome=outcome, settled=settled)
    assert places(net) == (0, 0, 0)
    control.commit(txn)
    assert places(net) == where


@pytest.mark.parametrize("outcome", [COMPLETE, ABANDON, DEFER, DEAD_LETTER])
def test_an_outcome_is_rolled_back(net: Network, outcome: Outcome) -> None:
    put(net)
    receiver = first(net)
    control = Controller(receiver.client)
    txn = control.declare()
    (delivery,) = receiver.take()
    retire(receiver, txn, delivery, outcome=outcome)
    control.roll_back(txn)
    assert places(net) == (0, 0, 0)
    receiver.settle(Modified(delivery_failed=True), delivery)
    # Nothing of the outcome is left, not even the properties that it changed.
    payload = first(net).deliveries[0].payload
    assert application(payload) == {"changed": 1}
    assert header(payload).delivery_count == 1


def test_properties_of_an_abandoned_message_change_on_commit(net: Network) -> None:
    put(net)
    receiver = first(net)
    control = Controller(receiver.client)
    txn = control.declare()
    retire(receiver, txn, *receiver.take(), outcome=ABANDON)
    control.commit(txn)
    assert application(first(net).deliveries[0].payload) == {"changed": 2}


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_is_taken_from_one_entity_and_put_into_another(
    net: Network, commits: bool
) -> None:
    put(net)
    receiver = first(net)
    control = Controller(receiver.client)
    txn = control.declare()
    post(receiver.client.sender("bills"), txn, b"answer")
    retire(receiver, txn, *receiver.take())
    assert queue_of(net, "bills").message_count() == 0
    if commits:
        control.commit(txn)
        assert first(net, "bills").bodies() == [b"answer"]
    else:
        control.roll_back(txn)
        assert queue_of(net, "orders").entries.acquired == 1
    assert queue_of(net, "orders").message_count() == (not commits)
