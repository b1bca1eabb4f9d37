"""Messages posted in transactions: what is told when, and who sees them (AMQP 1.0 §4.4.1)."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import (
    ExchangePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)
from ferrymq_types.messaging import (
    Accepted,
    Data,
    MessageAnnotations,
    Rejected,
    Released,
    Source,
    Target,
    TerminusExpiryPolicy,
)
from ferrymq_types.messaging import Properties as MessageProperties
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error, ReceiverSettleMode, Transfer
from tests.broker.harness import Client, Network, encode
from tests.broker.transactions.kit import (
    ACCEPTED,
    ROLLBACK,
    Controller,
    frames,
    post,
    post_sections,
    provisional,
)


@pytest.mark.spec("4.4.1")
def test_a_message_is_there_when_its_transaction_is_committed(
    net: Network, control: Controller
) -> None:
    watcher = net.connect().receiver("q", credit=9)
    txn = control.declare()
    (delivery,) = post(control.client.sender("q"), txn, b"a")
    assert provisional(delivery, txn) == ACCEPTED
    assert watcher.bodies() == []
    control.commit(txn)
    assert watcher.bodies() == [b"a"]
    assert delivery.remote_settled and delivery.remote_state == ACCEPTED


@pytest.mark.spec("4.4.4.1")
def test_a_message_is_nowhere_when_its_transaction_is_rolled_back(
    net: Network, control: Controller
) -> None:
    watcher = net.connect().receiver("q", credit=9)
    txn = control.declare()
    unsettled, _ = post(control.client.sender("q"), txn, b"a") + post(
        control.client.sender("q"), txn, b"b", settled=True
    )
    control.client.wire = []
    control.roll_back(txn)
    assert watcher.bodies() == []
    assert net.queue("q").message_count() == 0
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0
    # It is over, and has no outcome: what was told was provisional.
    assert unsettled.remote_settled and isinstance(unsettled.remote_state, TransactionalState)
    states = [frame.body.state for who, frame in frames(control.client) if who == "broker"]
    assert states == [ACCEPTED, None]


@pytest.mark.spec("4.4.4.1")
def test_settled_messages_are_posted_as_well(net: Network, control: Controller) -> None:
    txn = control.declare()
    post(control.client.sender("q"), txn, b"a", b"b", settled=True)
    assert net.queue("q").available == 0
    control.commit(txn)
    assert net.connect().receiver("q", credit=9).bodies() == [b"a", b"b"]


def test_messages_keep_the_order_in_which_they_were_posted(
    net: Network, control: Controller
) -> None:
    first, second = control.client.sender("q"), control.client.sender("q")
    txn = control.declare()
    for body in (b"1", b"2", b"3", b"4"):
        post(first if body in b"13" else second, txn, body)
    first.send(b"0")
    control.commit(txn)
    assert net.connect().receiver("q", credit=9).bodies() == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.spec("4.5.7")
def test_many_transactions_in_one_session_and_many_sessions_in_one_transaction(
    net: Network, control: Controller
) -> None:
    client = control.client
    here, there = client.sender("q"), client.sender("r", session=client.begin())
    one, two = control.declare(), control.declare()
    for body in (b"a", b"b"):
        post(here, one, b"1" + body)
        post(there, one, b"1" + body)
        post(here, two, b"2" + body)
    control.roll_back(two)
    control.commit(one)
    watcher = net.connect()
    assert watcher.receiver("q", credit=9).bodies() == [b"1a", b"1b"]
    assert watcher.receiver("r", credit=9).bodies() == [b"1a", b"1b"]


def test_a_commit_is_seen_whole(net: Network, control: Controller) -> None:
    """One client reads two queues; at no time is there something of a commit in one only."""
    watcher = net.connect()
    queues = [watcher.receiver(name, credit=99) for name in ("q", "r")]
    senders = [control.client.sender(name) for name in ("q", "r")]
    for round in range(3):
        txn = control.declare()
        for sender in senders:
            post(sender, txn, b"%d" % round)
            assert [len(queue.deliveries) for queue in queues] == [round, round]
        control.commit(txn)
        assert [len(queue.deliveries) for queue in queues] == [round + 1, round + 1]


@pytest.mark.spec("4.4.1")
def test_a_large_message_names_its_transaction_in_every_frame(net: Network) -> None:
    client = net.connect(max_frame_size=512)
    client.handler.connection.remote_max_frame_size = 512
    control = Controller(client)
    sender = client.sender("q")
    txn = control.declare()
    client.engine.remote_max_frame_size = 512
    client.wire = []
    (delivery,) = post(sender, txn, b"x" * 2000)
    transfers = [frame.body for who, frame in frames(client) if isinstance(frame.body, Transfer)]
    assert len(transfers) > 3
    assert all(frame.state == TransactionalState(txn_id=txn) for frame in transfers)
    control.commit(txn)
    assert net.connect().receiver("q", credit=1).bodies() == [b"x" * 2000]
    assert delivery.remote_state == ACCEPTED


def _begin_delivery(client: Client, sender: object, state: TransactionalState | None) -> None:
    link = sender.link  # type: ignore[attr-defined]
    link.session._send(
        Transfer(
            handle=link.handle,
            delivery_id=link.session.outgoing.next_delivery_id,
            delivery_tag=b"partial",
            message_format=0,
            more=True,
            state=state,
        )
    )
    link.session.outgoing.next_delivery_id += 1
    client.net.run()


@pytest.mark.spec("4.4.1")
def test_the_rest_of_the_delivery_may_come_in_the_same_read(
    net: Network, control: Controller
) -> None:
    client = control.client
    sender = client.sender("q")
    txn = control.declare()
    net.clients.remove(client)
    _begin_delivery(client, sender, TransactionalState(txn_id=txn))
    control.discharge(txn)
    sender.link.session._send(
        Transfer(handle=sender.link.handle, state=TransactionalState(txn_id=txn))
    )
    net.clients.append(client)
    net.run()
    assert control.error is not None and control.error.condition == ROLLBACK
    assert net.queue("q").available == 0


@pytest.mark.spec("2.6.12")
def test_in_receiver_settle_mode_second_the_client_settles_last(
    net: Network, control: Controller
) -> None:
    lasting = Target(address="q", expiry_policy=TerminusExpiryPolicy("never"))
    sender = control.client.sender("q", target=lasting, rcv=ReceiverSettleMode.SECOND)
    txn = control.declare()
    (delivery,) = post(sender, txn, b"a")
    assert provisional(delivery, txn) == ACCEPTED
    control.commit(txn)
    assert delivery.remote_state == ACCEPTED and not delivery.remote_settled
    delivery.settle()
    net.run()
    assert not control.client.handler.connection.channels.by_remote[0].incoming.unsettled


# -- other nodes -----------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_topics(net: Network, control: Controller, committed: bool) -> None:
    net.space.create("t", TopicPolicy())
    readers = [net.connect().receiver("t", credit=9) for _ in range(2)]
    txn = control.declare()
    (delivery,) = post(control.client.sender("t"), txn, b"a")
    assert provisional(delivery, txn) == ACCEPTED
    assert [reader.bodies() for reader in readers] == [[], []]
    control.discharge(txn, not committed)
    assert [reader.bodies() for reader in readers] == [[b"a"] * committed] * 2


@pytest.mark.parametrize("address", ["s", "s::1"])
@pytest.mark.parametrize("committed", [True, False])
def test_streams(net: Network, control: Controller, address: str, committed: bool) -> None:
    net.space.create("s", StreamPolicy(partitions=2))
    reader = net.connect().receiver("s", credit=9)
    txn = control.declare()
    (delivery,) = post(control.client.sender(address), txn, b"a")
    assert provisional(delivery, txn) == ACCEPTED
    assert reader.bodies() == []
    control.discharge(txn, not committed)
    assert reader.bodies() == [b"a"] * committed
    net.space.nodes["s"].clear()  # type: ignore[attr-defined]
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0


@pytest.mark.parametrize("address", ["x", "x::red"])
@pytest.mark.parametrize("committed", [True, False])
def test_exchanges(net: Network, control: Controller, address: str, committed: bool) -> None:
    exchange = net.space.create("x", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    for name in ("q", "r"):
        net.declare(name)
        exchange.bind(name)
    txn = control.declare()
    (delivery,) = post(control.client.sender(address), txn, b"a")
    assert provisional(delivery, txn) == ACCEPTED
    control.discharge(txn, not committed)
    assert [net.queue(name).available for name in ("q", "r")] == [committed] * 2
    assert exchange.published == committed


@pytest.mark.parametrize("committed", [True, False])
def test_the_anonymous_terminus(net: Network, control: Controller, committed: bool) -> None:
    sender = control.client.sender(None)
    txn = control.declare()
    for name in ("q", "r"):
        delivery = post_sections(sender, txn, MessageProperties(to=name), Data(value=b"a"))
        assert provisional(delivery, txn) == ACCEPTED
    control.discharge(txn, not committed)
    assert [net.queue(name).available for name in ("q", "r")] == [committed] * 2


def test_scheduled_messages_come_later_than_their_transaction(
    net: Network, control: Controller
) -> None:
    txn = control.declare()
    later = MessageAnnotations(value={"x-opt-delivery-delay": 5000})
    post_sections(control.client.sender("q"), txn, later, Data(value=b"a"))
    net.advance(60)
    control.commit(txn)
    assert net.queue("q").available == 0
    net.advance(6)
    assert net.queue("q").available == 1


# -- refusals --------------------------------------------------------------------------


def _doomed(control: Controller, txn: bytes, reason: str) -> None:
    told = control.refused(txn)
    assert told.startswith(f"{ROLLBACK}: the transaction was rolled back: a message was refused")
    assert reason in told


@pytest.mark.spec("4.4.4.1")
@pytest.mark.parametrize("settled", [True, False])
def test_a_message_without_room_dooms_its_transaction(
    net: Network, control: Controller, settled: bool
) -> None:
    net.declare("q", QueuePolicy(max_length=1, overflow="reject"))
    control.client.sender("q").send(b"full")
    txn = control.declare()
    (good,) = post(control.client.sender("r"), txn, b"good")
    (bad,) = post(control.client.sender("q"), txn, b"bad", settled=settled)
    if not settled:
        outcome = provisional(bad, txn)
        assert isinstance(outcome, Rejected) and outcome.error is not None
        assert outcome.error.condition == "amqp:resource-limit-exceeded"
    # What was told of the other is neither taken back nor kept.
    assert provisional(good, txn) == ACCEPTED
    _doomed(control, txn, "amqp:resource-limit-exceeded")
    assert good.remote_settled
    assert net.queue("r").message_count() == 0


def test_what_a_doomed_transaction_is_sent_is_rejected_at_once(
    net: Network, control: Controller
) -> None:
    net.declare("q", QueuePolicy(max_length=1, overflow="reject"))
    sender = control.client.sender("q")
    txn = control.declare()
    post(sender, txn, b"a", b"b")
    (late,) = post(control.client.sender("r"), txn, b"c")
    assert isinstance(late.remote_state, Rejected)
    assert late.remote_state.error is not None
    assert late.remote_state.error.condition == ROLLBACK
    control.roll_back(txn)


def test_a_message_that_goes_nowhere_dooms_its_transaction(
    net: Network, control: Controller
) -> None:
    net.space.create("x", ExchangePolicy(type="direct"))
    txn = control.declare()
    (delivery,) = post(control.client.sender("x::nobody"), txn, b"a")
    assert isinstance(provisional(delivery, txn), Released)
    _doomed(control, txn, "no binding")


def test_an_address_that_does_not_exist_dooms_the_transaction() -> None:
    net = Network(auto_create=False)
    control = Controller(net.connect())
    txn = control.declare()
    sender = control.client.sender(None)
    delivery = post_sections(sender, txn, MessageProperties(to="none"), Data(value=b"a"))
    assert isinstance(provisional(delivery, txn), Rejected)
    _doomed(control, txn, "amqp:not-found")


def test_a_malformed_message_dooms_the_transaction(net: Network, control: Controller) -> None:
    txn = control.declare()
    sender = control.client.sender("q")
    delivery = sender.send_encoded(b"\x00\x53\x70\xc0\xff", state=TransactionalState(txn_id=txn))
    assert isinstance(provisional(delivery, txn), Rejected)
    _doomed(control, txn, "amqp:decode-error")


def test_a_partition_that_does_not_exist_dooms_the_transaction(
    net: Network, control: Controller
) -> None:
    net.space.create("s", StreamPolicy(partitions=2))
    txn = control.declare()
    wrong = MessageAnnotations(value={"x-opt-partition": 7})
    delivery = post_sections(control.client.sender("s"), txn, wrong, Data(value=b"a"))
    outcome = provisional(delivery, txn)
    if isinstance(outcome, Accepted):
        pytest.fail("the partition is taken for one that exists")
    _doomed(control, txn, "amqp:")


def test_an_outcome_that_is_not_agreed_is_not_told(net: Network, control: Controller) -> None:
    net.declare("q", QueuePolicy(max_length=1, overflow="reject"))
    source = Source(outcomes=["amqp:accepted:list"])
    sender = control.client.sender("q", source=source)
    txn = control.declare()
    _, refused = post(sender, txn, b"a", b"b")
    assert refused.remote_state is None
    _doomed(control, txn, "amqp:resource-limit-exceeded")


def test_requests_are_not_part_of_transactions(net: Network, control: Controller) -> None:
    install(net.space, net.broker)
    txn = control.declare()
    (delivery,) = post(control.client.sender("$management"), txn, b"x")
    assert isinstance(provisional(delivery, txn), Rejected)
    _doomed(control, txn, "amqp:not-implemented")


@pytest.mark.parametrize("address", ["q", "x"])
def test_a_node_that_is_deleted_takes_the_transaction_with_it(
    net: Network, control: Controller, address: str
) -> None:
    net.declare("q")
    exchange = net.space.create("x", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    exchange.bind("q")
    txn = control.declare()
    post(control.client.sender("r"), txn, b"kept back")
    post(control.client.sender(address), txn, b"a")
    net.space.remove(net.queue("q"))
    _doomed(control, txn, "amqp:not-found")
    assert net.queue("r").message_count() == 0
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0


# -- room ------------------------------------------------------------------------------


def test_room_is_kept_for_a_transaction(net: Network, control: Controller) -> None:
    net.declare("q", QueuePolicy(max_length=2, overflow="reject"))
    txn = control.declare()
    post(control.client.sender("q"), txn, b"a")
    other = net.connect().sender("q")
    one, two = other.send(b"b", b"c")
    assert one.remote_state == ACCEPTED
    assert isinstance(two.remote_state, Rejected)
    control.commit(txn)
    assert net.connect().receiver("q", credit=9).bodies() == [b"b", b"a"]


def test_room_is_free_again_after_a_rollback(net: Network, control: Controller) -> None:
    net.declare("q", QueuePolicy(max_length=1, overflow="reject", max_bytes=1000))
    sender = control.client.sender("q")
    for _ in range(3):
        txn = control.declare()
        post(sender, txn, b"a")
        control.roll_back(txn)
    (delivery,) = sender.send(b"b")
    assert delivery.remote_state == ACCEPTED


def test_credit_used_in_a_transaction_stays_used_until_it_is_over(
    net: Network, control: Controller
) -> None:
    queue = net.declare("q", QueuePolicy(max_length=4, overflow="block"))
    sender = control.client.sender("q")
    txn = control.declare()
    while sender.link.credit:
        post(sender, txn, b"a")
    assert queue.promised == 4
    (waiting,) = [net.connect().sender("q")]
    assert waiting.link.credit == 0
    control.roll_back(txn)
    assert waiting.link.credit > 0
    assert sender.link.credit + waiting.link.credit <= 4


def test_a_bound_is_kept_by_transactions(net: Network, control: Controller) -> None:
    queue = net.declare("q", QueuePolicy(max_length=4, overflow="block"))
    sender = control.client.sender("q")
    txn = control.declare()
    while sender.link.credit:
        post(sender, txn, b"a")
    control.commit(txn)
    assert (queue.available, queue.promised) == (4, 0)
    assert sender.link.credit == 0


def test_a_guest_has_room_in_a_bounded_queue_or_none(net: Network, control: Controller) -> None:
    queue = net.declare("q", QueuePolicy(max_length=2, overflow="block"))
    sender = control.client.sender(None)
    to = MessageProperties(to="q")
    txn = control.declare()
    for body in (b"a", b"b"):
        delivery = post_sections(sender, txn, to, Data(value=body))
        assert provisional(delivery, txn) == ACCEPTED
    assert queue.promised == 2
    delivery = post_sections(sender, txn, to, Data(value=b"c"))
    assert isinstance(provisional(delivery, txn), Rejected)
    assert queue.promised == 0
    _doomed(control, txn, "amqp:resource-limit-exceeded")


def test_messages_of_open_transactions_count_as_memory(net: Network, control: Controller) -> None:
    net.broker.limit_memory(1000)
    sender = control.client.sender("q")
    txn = control.declare()
    post(sender, txn, b"a" * 2000)
    assert net.broker.alarms == {"memory"}
    control.roll_back(txn)
    assert not net.broker.alarms


def test_duplicates_are_told_when_the_transaction_is_committed(
    net: Network, control: Controller
) -> None:
    net.declare("q", QueuePolicy(duplicate_window=60_000))
    sender = control.client.sender("q")
    properties = MessageProperties(message_id="one")
    for end in (control.roll_back, control.commit, control.commit):
        txn = control.declare()
        post_sections(sender, txn, properties, Data(value=b"a"))
        end(txn)
    assert net.queue("q").available == 1


def test_a_resent_delivery_of_a_transaction_that_was_rolled_back_is_taken(
    net: Network, control: Controller
) -> None:
    client = control.client
    options = {"delivery-mode": "exactly-once"}
    for end, count in ((control.roll_back, 0), (control.commit, 1), (control.commit, 1)):
        sender = client.sender("q", name="steady", properties=dict(options))
        txn = control.declare()
        sender.link.send(encode(Data(value=b"a")), tag=b"tag", state=TransactionalState(txn_id=txn))
        net.run()
        # The link goes before the client has seen the settlement.
        sender.close(closed=False)
        end(txn)
        assert net.queue("q").available == count


@pytest.mark.spec("4.4.4.1")
@pytest.mark.parametrize("settled", [True, False])
def test_a_message_that_comes_when_its_node_has_gone_dooms_the_transaction(
    net: Network, control: Controller, settled: bool
) -> None:
    client = control.client
    going, sender = client.sender("q"), client.sender("r")
    txn = control.declare()
    post(sender, txn, b"a")
    # The message is under way when the queue is deleted.
    net.clients.remove(client)
    post(going, txn, b"b", settled=settled)
    data = client.engine.data_to_send()
    net.queue("q").delete(Error(condition="amqp:resource-deleted"))
    client.handler.receive_data(data, net.now)
    net.clients.append(client)
    net.run()
    assert control.refused(txn).startswith(ROLLBACK)
    assert net.queue("r").message_count() == 0
