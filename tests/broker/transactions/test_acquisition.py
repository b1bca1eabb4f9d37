"""Messages acquired in transactions (AMQP 1.0 §4.4.3, §4.4.4.3)."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, AmqpValue, Modified, Rejected, Released
from ferrymq_types.transactions import Discharge, TransactionalState
from ferrymq_types.transport import SenderSettleMode
from tests.broker.harness import Network, encode, header
from tests.broker.transactions.kit import (
    ACCEPTED,
    ROLLBACK,
    UNKNOWN_ID,
    Controller,
    acquire,
    retire,
)


def _fill(net: Network, *bodies: bytes) -> None:
    net.connect().sender("q").send(*bodies)


@pytest.mark.spec("4.4.3")
def test_transfers_name_the_transaction_of_the_flow(net: Network, control: Controller) -> None:
    _fill(net, b"a", b"b", b"c")
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 2)
    assert receiver.bodies() == [b"a", b"b"]
    for delivery in receiver.take():
        assert delivery.remote_state == TransactionalState(txn_id=txn)
        assert not delivery.remote_settled
    control.commit(txn)
    # Committed, they are held like others; the next are in no transaction.
    assert net.queue("q").acquired == 2
    receiver.credit(1)
    (delivery,) = receiver.deliveries
    assert delivery.remote_state is None


def test_messages_that_come_later_are_acquired_in_it_too(net: Network, control: Controller) -> None:
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 5)
    _fill(net, b"a")
    receiver.credit(5)
    _fill(net, b"b")
    states = [delivery.remote_state for delivery in receiver.deliveries]
    assert states == [TransactionalState(txn_id=txn)] * 2


@pytest.mark.spec("4.4.3")
def test_a_rollback_returns_messages_to_their_place(net: Network, control: Controller) -> None:
    _fill(net, b"a", b"b", b"c", b"d")
    plain = net.connect().receiver("q", credit=1)
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 2)
    deliveries = receiver.take()
    control.roll_back(txn)
    assert all(d.remote_state == Released() and not d.remote_settled for d in deliveries)
    plain.settle(Released())
    reader = net.connect().receiver("q", credit=9)
    assert reader.bodies() == [b"a", b"b", b"c", b"d"]
    # Nobody failed.
    assert all(header(d.payload).delivery_count == 0 for d in reader.deliveries)


def test_a_rollback_counts_no_failure_even_with_a_default_outcome(
    net: Network, control: Controller
) -> None:
    _fill(net, b"a")
    receiver = control.client.receiver("q", default_outcome=Modified(delivery_failed=True))
    txn = control.declare()
    acquire(receiver, txn, 1)
    control.roll_back(txn)
    receiver.credit(1)
    assert header(receiver.deliveries[-1].payload).delivery_count == 0


def test_a_lost_connection_counts_a_failure(net: Network, control: Controller) -> None:
    _fill(net, b"a")
    receiver = control.client.receiver("q")
    acquire(receiver, control.declare(), 1)
    control.client.lose()
    reader = net.connect().receiver("q", credit=1)
    assert header(reader.deliveries[0].payload).delivery_count == 1


@pytest.mark.spec("4.4.4.3")
@pytest.mark.parametrize("committed", [True, False])
def test_messages_sent_settled_leave_on_commit_alone(
    net: Network, control: Controller, committed: bool
) -> None:
    _fill(net, b"a")
    receiver = control.client.receiver("q", snd=SenderSettleMode.SETTLED)
    txn = control.declare()
    acquire(receiver, txn, 1)
    (delivery,) = receiver.take()
    assert delivery.remote_settled
    assert net.queue("q").acquired == 1
    control.discharge(txn, not committed)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (0 if committed else 1, 0)


@pytest.mark.spec("4.4.3")
def test_the_flow_state_is_cleared_at_the_discharge_and_credit_stays(
    net: Network, control: Controller
) -> None:
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 3)
    control.commit(txn)
    _fill(net, b"a")
    (delivery,) = receiver.deliveries
    assert delivery.remote_state is None


@pytest.mark.spec("4.4.3")
def test_drain_answers_with_what_there_is(net: Network, control: Controller) -> None:
    _fill(net, b"a")
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 5, drain=True)
    assert (receiver.bodies(), receiver.drained, receiver.link.credit) == ([b"a"], 1, 0)
    control.commit(txn)


@pytest.mark.spec("4.4.3")
def test_an_unknown_transaction_costs_the_link(net: Network, control: Controller) -> None:
    _fill(net, b"a")
    receiver = control.client.receiver("q")
    acquire(receiver, b"nothing", 1)
    assert receiver.error is not None and receiver.error.condition == UNKNOWN_ID
    assert receiver.deliveries == []


@pytest.mark.spec("4.4.3")
def test_browsers_do_not_acquire(net: Network, control: Controller) -> None:
    _fill(net, b"a")
    receiver = control.client.receiver("q", mode="copy")
    acquire(receiver, control.declare(), 1)
    assert receiver.error is not None and receiver.error.condition == "amqp:not-implemented"


def test_another_transaction_may_take_the_link_over(net: Network, control: Controller) -> None:
    _fill(net, b"a", b"b", b"c")
    receiver = control.client.receiver("q")
    one, two = control.declare(), control.declare()
    acquire(receiver, one, 1)
    acquire(receiver, two, 1)
    states = [delivery.remote_state for delivery in receiver.take()]
    assert states == [TransactionalState(txn_id=one), TransactionalState(txn_id=two)]
    control.roll_back(one)
    control.commit(two)
    receiver.link.set_credit(2, properties={"txn-id": None})
    net.run()
    assert receiver.bodies() == [b"a", b"c"]


@pytest.mark.spec("4.4.4.3")
def test_an_outcome_belongs_to_the_transaction_of_the_acquisition(
    net: Network, control: Controller
) -> None:
    _fill(net, b"a", b"b")
    receiver = control.client.receiver("q")
    one = control.declare()
    acquire(receiver, one, 2)
    first, _ = receiver.take()
    retire(receiver, control.declare(), first)
    assert control.error is not None and control.error.condition == ROLLBACK
    assert net.queue("q").available == 2


def test_a_plain_outcome_ends_the_control_link(net: Network, control: Controller) -> None:
    _fill(net, b"a")
    receiver = control.client.receiver("q")
    acquire(receiver, control.declare(), 1)
    receiver.settle(ACCEPTED)
    assert control.error is not None and control.error.condition == ROLLBACK
    assert net.queue("q").available == 1


@pytest.mark.parametrize("outcome", [Accepted(), Rejected(), Released()])
def test_outcomes_of_acquired_messages_are_applied_on_commit(
    net: Network, control: Controller, outcome: Accepted | Rejected | Released
) -> None:
    _fill(net, b"a")
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 1)
    retire(receiver, txn, *receiver.take(), outcome=outcome)
    control.commit(txn)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (isinstance(outcome, Released), 0)


@pytest.mark.parametrize("end", ["commit", "roll_back"])
def test_a_link_may_go_with_what_it_acquired(net: Network, control: Controller, end: str) -> None:
    _fill(net, b"a", b"b")
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 2)
    one, _ = receiver.take()
    retire(receiver, txn, one)
    receiver.close()
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (0, 2)
    getattr(control, end)(txn)
    assert (queue.available, queue.acquired) == ((1, 0) if end == "commit" else (2, 0))


def test_a_transaction_that_is_full_acquires_no_more(net: Network, control: Controller) -> None:
    net.broker.transaction_limits.work = 2
    _fill(net, b"a", b"b", b"c")
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 3)
    assert receiver.bodies() == [b"a", b"b"]
    # The client that asks for the rest learns that there is none for now.
    receiver.drain()
    assert receiver.drained == 1
    receiver.credit(1)
    control.commit(txn)
    assert receiver.bodies() == [b"a", b"b", b"c"]


def test_a_link_acquires_nothing_for_a_transaction_that_is_over(
    net: Network, control: Controller
) -> None:
    net.broker.transaction_limits.timeout = 1000
    receiver = control.client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 3)
    net.advance(2)
    _fill(net, b"a")
    assert receiver.deliveries == []
    receiver.drain()
    assert receiver.drained == 1
    assert control.refused(txn).startswith("amqp:transaction:timeout")
    receiver.credit(1)
    assert receiver.deliveries[0].remote_state is None


@pytest.mark.spec("4.4.3")
@pytest.mark.parametrize("committed", [True, False])
def test_a_message_that_is_half_sent_is_sent_to_its_end(net: Network, committed: bool) -> None:
    client = net.connect(incoming_window=4, max_frame_size=512)
    control = Controller(client)
    _fill(net, b"x" * 4000)
    receiver = client.receiver("q")
    txn = control.declare()
    # The client takes a few frames, and no more for the time being.
    net.clients.remove(client)
    receiver.link.set_credit(1, properties={"txn-id": txn})
    client.handler.receive_data(client.engine.data_to_send(), net.now)

    discharge = control.link.send(
        encode(AmqpValue(value=Discharge(txn_id=txn, fail=not committed)))
    )
    client.handler.receive_data(client.engine.data_to_send(), net.now)
    assert net.queue("q").acquired == 1
    # A rollback waits for the message, a commit does not.
    assert len(client.handler.parts.transactions.waiting) == (not committed)
    net.clients.append(client)
    net.run()
    (delivery,) = receiver.deliveries
    assert len(delivery.payload) > 4000
    assert discharge.remote_state == ACCEPTED
    assert net.queue("q").available == (not committed)


def test_subscribers_acquire_as_well(net: Network, control: Controller) -> None:
    net.space.create("t", TopicPolicy())
    receiver = control.client.receiver("t")
    net.connect().sender("t").send(b"a")
    txn = control.declare()
    acquire(receiver, txn, 1)
    assert len(receiver.take()) == 1
    control.roll_back(txn)
    receiver.credit(1)
    assert receiver.bodies() == [b"a"]


def test_one_active_consumer_stays_the_one(net: Network, control: Controller) -> None:
    net.declare("q", QueuePolicy(single_active=True))
    _fill(net, b"a", b"b")
    receiver = control.client.receiver("q")
    waiting = net.connect().receiver("q", credit=9)
    txn = control.declare()
    acquire(receiver, txn, 1)
    control.roll_back(txn)
    assert waiting.deliveries == []
    receiver.credit(5)
    assert receiver.bodies()[-2:] == [b"a", b"b"]


# -- streams ---------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_rollback_winds_a_reader_back(net: Network, control: Controller, partitions: int) -> None:
    net.space.create("s", StreamPolicy(partitions=partitions))
    receiver = control.client.receiver("s")
    sender = net.connect().sender("s")
    sender.send(*(b"%d" % i for i in range(9)))
    receiver.credit(3)
    before = set(receiver.bodies())
    receiver.take()
    txn = control.declare()
    acquire(receiver, txn, 3)
    deliveries = receiver.take()
    assert all(d.remote_state == TransactionalState(txn_id=txn) for d in deliveries)
    control.roll_back(txn)
    assert all(d.remote_state == Released() for d in deliveries)
    receiver.credit(20)
    rest = receiver.bodies()
    assert len(rest) == 6 and set(rest) == {b"%d" % i for i in range(9)} - before


def test_a_commit_leaves_a_reader_where_it_is(net: Network, control: Controller) -> None:
    net.space.create("s", StreamPolicy())
    receiver = control.client.receiver("s")
    net.connect().sender("s").send(b"a", b"b")
    txn = control.declare()
    acquire(receiver, txn, 1)
    retire(receiver, txn, *receiver.take())
    control.commit(txn)
    receiver.credit(9)
    assert receiver.bodies() == [b"b"]


@pytest.mark.parametrize("forgiving", [True, False])
def test_a_reader_cannot_be_wound_back_to_what_is_gone(
    net: Network, control: Controller, forgiving: bool
) -> None:
    stream = net.space.create("s", StreamPolicy())
    properties: dict[str, object] = {"ferrymq:on-trim": "continue"} if forgiving else {}
    receiver = control.client.receiver("s", properties=properties)
    sender = net.connect().sender("s")
    sender.send(b"a", b"b")
    txn = control.declare()
    acquire(receiver, txn, 9)
    receiver.take()
    stream.clear()  # type: ignore[attr-defined]
    sender.send(b"c")
    control.roll_back(txn)
    if forgiving:
        receiver.credit(9)
        assert receiver.bodies()[-1:] == [b"c"]
    else:
        assert receiver.error is not None
        assert receiver.error.condition == "ferrymq:stream-trimmed"
