"""Outcomes given in transactions, and what becomes of them (AMQP 1.0 §4.4.2, §4.4.4.2)."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Data, Modified, Properties, Rejected, Released, Source
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Disposition, Error, Role
from ferrymq_types.unions import Outcome
from tests.broker.harness import Client, Network, Receiver, header, message_annotations
from tests.broker.transactions.kit import (
    ACCEPTED,
    ROLLBACK,
    TIMEOUT,
    UNKNOWN_ID,
    Controller,
    acquire,
    frames,
    post,
    retire,
    retire_range,
)

OUTCOMES = [
    Accepted(),
    Rejected(error=Error(condition="example:bad")),
    Released(),
    Modified(delivery_failed=True),
    Modified(undeliverable_here=True),
]


def _take(net: Network, client: Client, *bodies: bytes, **options: object) -> Receiver:
    """A receiver with these messages, unsettled."""
    net.connect().sender("q").send(*bodies)
    receiver = client.receiver("q", credit=len(bodies), **options)  # type: ignore[arg-type]
    assert receiver.bodies() == list(bodies)
    return receiver


@pytest.mark.spec("4.4.2")
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_is_applied_when_the_transaction_is_committed(
    net: Network, control: Controller, outcome: Outcome, settled: bool
) -> None:
    net.declare("q", QueuePolicy(dead_letter="dead"))
    receiver = _take(net, control.client, b"a")
    (delivery,) = receiver.deliveries
    txn = control.declare()
    retire(receiver, txn, delivery, outcome=outcome, settled=settled)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (0, 1)
    control.client.wire = []
    control.commit(txn)
    assert queue.acquired == 0
    gone = isinstance(outcome, Accepted | Rejected)
    assert queue.available == (not gone)
    if isinstance(outcome, Rejected):
        assert net.queue("dead").available == 1
    told = [
        frame.body
        for who, frame in frames(control.client)
        if isinstance(frame.body, Disposition) and frame.body.role is Role.SENDER
    ]
    # What the client settled is not settled again.
    assert len(told) == (not settled)
    for disposition in told:
        assert disposition.settled and type(disposition.state) is type(outcome)
    if settled:
        assert delivery.settled
    else:
        assert delivery.remote_settled


def test_what_modified_changes_it_changes_on_commit(net: Network, control: Controller) -> None:
    receiver = _take(net, control.client, b"a")
    txn = control.declare()
    outcome = Modified(delivery_failed=True, message_annotations={"x-note": "tried"})
    retire(receiver, txn, *receiver.take(), outcome=outcome)
    control.commit(txn)
    receiver.credit(1)
    (again,) = receiver.deliveries
    assert header(again.payload).delivery_count == 1
    assert message_annotations(again.payload) == {"x-note": "tried"}


@pytest.mark.spec("4.4.2")
def test_a_rollback_leaves_deliveries_where_they_were(net: Network, control: Controller) -> None:
    receiver = _take(net, control.client, b"a", b"b")
    one, two = receiver.take()
    txn = control.declare()
    retire(receiver, txn, one, two)
    control.roll_back(txn)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (0, 2)
    assert not one.remote_settled
    # They can be given an outcome again, with a transaction or without.
    retire(receiver, control.declare(), one)
    txn = control.declare()
    receiver.settle(Released(), two)
    assert (queue.available, queue.acquired) == (1, 1)


@pytest.mark.spec("4.4.4.2")
@pytest.mark.parametrize(
    ("default", "left", "failures"),
    [(None, 1, 0), (Released(), 1, 0), (Accepted(), 0, 0), (Modified(delivery_failed=True), 1, 1)],
)
def test_what_the_client_settled_gets_the_default_outcome_on_rollback(
    net: Network, control: Controller, default: Outcome | None, left: int, failures: int
) -> None:
    receiver = _take(net, control.client, b"a", default_outcome=default)
    txn = control.declare()
    outcome = Rejected() if left else Modified(delivery_failed=True)
    retire(receiver, txn, *receiver.take(), outcome=outcome, settled=True)
    control.roll_back(txn)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (left, 0)
    receiver.credit(1)
    for delivery in receiver.deliveries:
        assert header(delivery.payload).delivery_count == failures


@pytest.mark.parametrize("settled", [True, False])
def test_many_deliveries_in_one_disposition(
    net: Network, control: Controller, settled: bool
) -> None:
    receiver = _take(net, control.client, *(b"%d" % i for i in range(20)))
    deliveries = receiver.take()
    txn = control.declare()
    retire_range(receiver, txn, deliveries[2:18], settled=settled)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (0, 20)
    control.commit(txn)
    assert (queue.available, queue.acquired) == (0, 4)


def test_deliveries_of_several_sessions(net: Network, control: Controller) -> None:
    client = control.client
    one = _take(net, client, b"a")
    two = _take(net, client, b"b", session=client.begin())
    txn = control.declare()
    retire(one, txn, *one.take())
    retire(two, txn, *two.take())
    assert net.queue("q").acquired == 2
    control.commit(txn)
    assert net.queue("q").acquired == 0


@pytest.mark.spec("4.4.2")
@pytest.mark.parametrize("same_link", [True, False])
def test_a_delivery_in_two_transactions_ends_the_control_link(
    net: Network, control: Controller, same_link: bool
) -> None:
    client = control.client
    receiver = _take(net, client, b"a")
    (delivery,) = receiver.take()
    other = control if same_link else Controller(client)
    first, second = control.declare(), other.declare()
    post(client.sender("r"), second, b"b")
    retire(receiver, first, delivery)
    retire(receiver, second, delivery)
    assert other.error is not None and other.error.condition == ROLLBACK
    assert net.queue("r").message_count() == 0
    queue = net.queue("q")
    if same_link:
        assert (queue.available, queue.acquired) == (0, 1)
        receiver.settle(ACCEPTED, delivery)
    else:
        assert control.error is None
        control.commit(first)
    assert (queue.available, queue.acquired) == (0, 0)


@pytest.mark.spec("4.4.4.3")
def test_an_outcome_outside_the_transaction_ends_the_control_link(
    net: Network, control: Controller
) -> None:
    receiver = _take(net, control.client, b"a")
    (delivery,) = receiver.take()
    txn = control.declare()
    retire(receiver, txn, delivery, outcome=Released())
    receiver.settle(ACCEPTED, delivery)
    assert control.error is not None and control.error.condition == ROLLBACK
    # The plain outcome counts: it was never anybody's to take back.
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (0, 0)


def test_the_last_outcome_before_the_discharge_counts(net: Network, control: Controller) -> None:
    receiver = _take(net, control.client, b"a")
    (delivery,) = receiver.take()
    txn = control.declare()
    for outcome in (ACCEPTED, Rejected(), Released()):
        retire(receiver, txn, delivery, outcome=outcome)
    control.commit(txn)
    assert net.queue("q").available == 1


def test_settling_later_without_a_state_keeps_the_outcome(
    net: Network, control: Controller
) -> None:
    receiver = _take(net, control.client, b"a", b"b")
    one, two = receiver.take()
    for delivery, end, left in ((one, control.commit, 1), (two, control.roll_back, 1)):
        txn = control.declare()
        retire(receiver, txn, delivery)
        delivery.settle(None)
        net.run()
        assert net.queue("q").message_count() == left + (delivery is one)
        end(txn)
        assert net.queue("q").message_count() == left
    assert net.queue("q").available == 1


@pytest.mark.parametrize("settled", [True, False])
def test_no_outcome_is_none(net: Network, control: Controller, settled: bool) -> None:
    """A state that names the transaction alone is a delivery without a decision."""
    receiver = _take(net, control.client, b"a")
    (delivery,) = receiver.take()
    txn = control.declare()
    retire(receiver, txn, delivery, outcome=None, settled=settled)
    assert net.queue("q").acquired == 1
    control.commit(txn)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == ((1, 0) if settled else (0, 1))


def test_an_unknown_transaction_costs_the_link(net: Network, control: Controller) -> None:
    receiver = _take(net, control.client, b"a")
    retire(receiver, b"nothing", *receiver.take())
    assert receiver.error is not None and receiver.error.condition == UNKNOWN_ID
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (1, 0)


def test_an_outcome_that_is_not_agreed_costs_the_link(net: Network, control: Controller) -> None:
    source = Source(address="q", outcomes=["amqp:accepted:list"])
    receiver = _take(net, control.client, b"a", source=source)
    retire(receiver, control.declare(), *receiver.take(), outcome=Rejected())
    assert receiver.error is not None and receiver.error.condition == "amqp:not-allowed"


@pytest.mark.parametrize("settled", [True, False])
def test_what_comes_too_late_is_not_applied(
    net: Network, control: Controller, settled: bool
) -> None:
    net.broker.transaction_limits.timeout = 1000
    receiver = _take(net, control.client, b"a", b"b")
    one, two = receiver.take()
    txn = control.declare()
    retire(receiver, txn, one, settled=settled)
    net.advance(2)
    retire(receiver, txn, two, settled=settled)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == ((2, 0) if settled else (0, 2))
    assert control.refused(txn).startswith(TIMEOUT)
    assert not receiver.detached


def test_a_transaction_has_so_many_deliveries(net: Network, control: Controller) -> None:
    net.broker.transaction_limits.work = 2
    receiver = _take(net, control.client, b"a", b"b", b"c")
    txn = control.declare()
    retire(receiver, txn, *receiver.take())
    assert control.refused(txn).startswith(ROLLBACK)
    assert net.queue("q").acquired == 3


# -- copies ----------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "roll_back"])
@pytest.mark.parametrize("kind", ["browser", "stream"])
def test_copies_are_settled_with_the_transaction(
    net: Network, control: Controller, kind: str, end: str
) -> None:
    if kind == "stream":
        net.space.create("q", StreamPolicy())
    else:
        net.declare("q")
    client = control.client
    net.connect().sender("q").send(b"a")
    mode = "copy" if kind == "browser" else None
    receiver = client.receiver("q", mode=mode, credit=1)
    if not receiver.deliveries:
        # A stream is read from its end unless one says otherwise.
        net.connect().sender("q").send(b"a")
    (delivery,) = receiver.take()
    count = net.space.nodes["q"].message_count()
    txn = control.declare()
    retire(receiver, txn, delivery)
    assert not delivery.remote_settled
    getattr(control, end)(txn)
    assert delivery.remote_settled == (end == "commit")
    assert net.space.nodes["q"].message_count() == count
    if end == "roll_back":
        receiver.settle(ACCEPTED, delivery)
        assert not receiver.detached


# -- links that go before the discharge ------------------------------------------------


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("end", ["commit", "roll_back"])
@pytest.mark.parametrize("going", ["closed", "detached", "session"])
def test_what_was_retired_stays_so_when_its_link_goes(
    net: Network, control: Controller, going: str, end: str, settled: bool
) -> None:
    client = control.client
    session = client.begin()
    receiver = _take(net, client, b"a", b"b", session=session)
    one, _ = receiver.take()
    txn = control.declare()
    retire(receiver, txn, one, settled=settled)
    if going == "session":
        session.end()
        net.run()
    else:
        receiver.close(going == "closed")
    queue = net.queue("q")
    # What was not part of the transaction has returned.
    assert (queue.available, queue.acquired) == (1, 1)
    getattr(control, end)(txn)
    assert (queue.available, queue.acquired) == ((1, 0) if end == "commit" else (2, 0))
    reader = net.connect().receiver("q", credit=9)
    assert reader.bodies() == ([b"b"] if end == "commit" else [b"a", b"b"])
    assert all(header(d.payload).delivery_count == 0 for d in reader.deliveries)


@pytest.mark.parametrize("settled", [True, False])
def test_a_lost_connection_rolls_back_and_counts_what_it_held(
    net: Network, control: Controller, settled: bool
) -> None:
    receiver = _take(net, control.client, b"a", b"b")
    one, _ = receiver.take()
    retire(receiver, control.declare(), one, settled=settled)
    control.client.lose()
    reader = net.connect().receiver("q", credit=9)
    assert reader.bodies() == [b"a", b"b"]
    counts = [header(delivery.payload).delivery_count for delivery in reader.deliveries]
    assert counts == [1, 1]


def test_a_postings_link_may_go(net: Network, control: Controller) -> None:
    sender = control.client.sender("q")
    txn = control.declare()
    post(sender, txn, b"a")
    sender.close()
    assert net.queue("q").available == 0
    control.commit(txn)
    assert net.queue("q").available == 1


def test_a_control_link_that_ends_first_leaves_deliveries_with_their_link(
    net: Network, control: Controller
) -> None:
    receiver = _take(net, control.client, b"a")
    (delivery,) = receiver.take()
    retire(receiver, control.declare(), delivery)
    control.close()
    assert net.queue("q").acquired == 1
    receiver.settle(ACCEPTED, delivery)
    assert net.queue("q").acquired == 0


@pytest.mark.parametrize("end", ["commit", "roll_back"])
def test_a_queue_that_is_deleted_takes_what_was_held_with_it(
    net: Network, control: Controller, end: str
) -> None:
    receiver = _take(net, control.client, b"a", b"b")
    txn = control.declare()
    retire(receiver, txn, receiver.take()[0])
    post(control.client.sender("r"), txn, b"answer")
    net.space.remove(net.queue("q"))
    getattr(control, end)(txn)
    # There is nothing left to retire, which is no reason to fail.
    assert net.queue("r").available == (end == "commit")
    assert net.broker.agenda.held == net.queue("r").bytes


def test_a_subscription_may_end_before_its_deliveries_are_retired(
    net: Network, control: Controller
) -> None:
    net.space.create("t", TopicPolicy())
    receiver = control.client.receiver("t", credit=9)
    net.connect().sender("t").send(b"a")
    txn = control.declare()
    retire(receiver, txn, *receiver.take())
    receiver.close()
    control.commit(txn)
    assert net.broker.agenda.held == 0


@pytest.mark.parametrize("undeliverable", [True, False])
def test_a_message_returns_to_others_only_if_it_was_refused_here(
    net: Network, control: Controller, undeliverable: bool
) -> None:
    receiver = _take(net, control.client, b"a")
    txn = control.declare()
    outcome = Modified(undeliverable_here=undeliverable)
    retire(receiver, txn, *receiver.take(), outcome=outcome)
    receiver.credit(1)
    control.commit(txn)
    assert receiver.bodies() == ([] if undeliverable else [b"a"])


def test_groups_go_on_after_a_rollback(net: Network, control: Controller) -> None:
    net.declare("q", QueuePolicy(groups=True))
    sender = net.connect().sender("q")
    for body in (b"a", b"b"):
        sender.send_sections(Properties(group_id="g"), Data(value=body))
    receiver = control.client.receiver("q", credit=2)
    txn = control.declare()
    retire(receiver, txn, *receiver.take(), settled=True)
    control.roll_back(txn)
    receiver.credit(2)
    assert receiver.bodies() == [b"a", b"b"]


def test_acquiring_and_retiring_in_one_transaction(net: Network, control: Controller) -> None:
    net.connect().sender("q").send(b"a", b"b")
    receiver = control.client.receiver("q")
    for end, left in ((control.roll_back, 2), (control.commit, 0)):
        txn = control.declare()
        acquire(receiver, txn, 2)
        deliveries = receiver.take()
        assert all(d.remote_state == TransactionalState(txn_id=txn) for d in deliveries)
        retire(receiver, txn, *deliveries)
        assert net.queue("q").message_count() == 2
        end(txn)
        assert net.queue("q").message_count() == left
        # What the broker has decided by itself waits for the client.
        assert all(delivery.remote_settled is (left == 0) for delivery in deliveries)


# -- several dispositions in one read ----------------------------------------------------


def test_each_disposition_counts_however_they_are_read(net: Network, control: Controller) -> None:
    receiver = _take(net, control.client, b"a")
    (delivery,) = receiver.take()
    one, two = control.declare(), control.declare()
    for txn in (one, two):
        delivery.update(TransactionalState(txn_id=txn, outcome=ACCEPTED))
    net.run()
    assert control.error is not None and control.error.condition == ROLLBACK
    assert net.queue("q").acquired == 1


@pytest.mark.parametrize("fail", [True, False])
def test_a_discharge_and_what_follows_may_come_in_one_read(
    net: Network, control: Controller, fail: bool
) -> None:
    receiver = _take(net, control.client, b"a")
    (delivery,) = receiver.take()
    txn = control.declare()
    net.clients.remove(control.client)
    delivery.update(TransactionalState(txn_id=txn, outcome=ACCEPTED))
    control.discharge(txn, fail)
    delivery.settle(Released())
    net.clients.append(control.client)
    net.run()
    # Committed, it was gone when it was released; rolled back, it was there to be released.
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (fail, 0)
    assert control.error is None


def test_a_lost_connection_counts_what_its_sessions_held(net: Network, control: Controller) -> None:
    """The session of the control link ends first."""
    client = control.client
    receiver = _take(net, client, b"a", session=client.begin())
    retire(receiver, control.declare(), *receiver.take(), settled=True)
    client.lose()
    reader = net.connect().receiver("q", credit=1)
    assert header(reader.deliveries[0].payload).delivery_count == 1
