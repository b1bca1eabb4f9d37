"""The outcomes of a delivery and what they do to the message (AMQP 1.0 §3.4)."""

from __future__ import annotations

import pytest

from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_types.messaging import (
    Accepted,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
)
from ferrymq_types.transport import Error, ReceiverSettleMode, SenderSettleMode
from tests.broker.harness import Network, encode, header, message_annotations, text


@pytest.mark.spec("3.4.2")
def test_accepted_removes_the_message(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    client.receiver("q", credit=1).settle(Accepted())
    assert net.queue("q").available == net.queue("q").acquired == 0


@pytest.mark.spec("3.4.3")
def test_rejected_removes_and_counts_the_message(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=10)
    receiver.settle(Rejected(error=Error(condition="amqp:decode-error")))
    queue = net.queue("q")
    assert (queue.available, queue.acquired, queue.rejected) == (0, 0, 1)
    assert receiver.deliveries == []


@pytest.mark.spec("3.4.4")
def test_released_leaves_the_delivery_count_alone(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=2)
    receiver.settle(Released())
    (again,) = receiver.take()
    assert header(again.payload).delivery_count == 0


@pytest.mark.spec("3.4.5")
def test_modified_counts_failed_deliveries_only(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=10)
    receiver.settle(Modified(delivery_failed=True))
    receiver.settle(Modified(delivery_failed=False))
    receiver.settle(Modified())
    receiver.settle(Modified(delivery_failed=True))
    (again,) = receiver.take()
    assert header(again.payload).delivery_count == 2
    assert text(again.payload) == b"a"


def test_the_senders_own_delivery_count_is_added_to(net: Network) -> None:
    client = net.connect()
    client.sender("q").send_sections(
        Header(delivery_count=5, durable=True, priority=7, ttl=60000, first_acquirer=True),
        Data(value=b"a"),
    )
    receiver = client.receiver("q", credit=10)
    (first,) = receiver.take()
    assert header(first.payload).first_acquirer
    receiver.settle(Modified(delivery_failed=True), first)
    (again,) = receiver.take()
    assert header(again.payload) == Header(
        delivery_count=6, durable=True, priority=7, ttl=60000, first_acquirer=False
    )


def test_a_released_message_has_had_an_acquirer(net: Network) -> None:
    client = net.connect()
    client.sender("q").send_sections(Header(first_acquirer=True), Data(value=b"a"))
    receiver = client.receiver("q", credit=10)
    receiver.settle(Released())
    (again,) = receiver.take()
    assert not header(again.payload).first_acquirer


@pytest.mark.spec("3.4.5")
def test_modified_merges_annotations(net: Network) -> None:
    client = net.connect()
    client.sender("q").send_sections(
        MessageAnnotations(value={"x-opt-a": "old", "x-opt-b": 1}), Data(value=b"body")
    )
    receiver = client.receiver("q", credit=10)
    receiver.settle(Modified(message_annotations={"x-opt-a": "new", "x-opt-c": True}))
    receiver.settle(Modified(delivery_failed=True, message_annotations={"x-opt-d": "more"}))
    (again,) = receiver.take()
    assert message_annotations(again.payload) == {
        "x-opt-a": "new",
        "x-opt-b": 1,
        "x-opt-c": True,
        "x-opt-d": "more",
    }
    assert header(again.payload).delivery_count == 1
    assert text(again.payload) == b"body"


@pytest.mark.spec("3.4.5")
def test_undeliverable_here_goes_to_others_only(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a", b"b")
    picky = client.receiver("q", credit=10)
    a, b = picky.take()
    picky.settle(Modified(undeliverable_here=True), a)
    picky.settle(Released(), b)
    # What is behind the message it does not want still comes.
    assert picky.bodies() == [b"b"]
    other = client.receiver("q", credit=10)
    assert other.bodies() == [b"a"]


def test_undeliverable_everywhere_waits_for_a_new_consumer(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receivers = [client.receiver("q", credit=10) for _ in range(2)]
    for receiver in receivers:
        receiver.settle(Modified(undeliverable_here=True))
    assert [r.deliveries for r in receivers] == [[], []]
    assert net.queue("q").available == 1
    client.sender("q").send(b"b")
    receivers[0].settle(Accepted())
    newcomer = client.receiver("q", credit=10)
    assert newcomer.bodies()[0] == b"a"


def test_undeliverable_here_waits_for_anothers_credit(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    picky = client.receiver("q", credit=10)
    other = client.receiver("q")
    picky.settle(Modified(undeliverable_here=True))
    assert picky.deliveries == []
    other.credit(1)
    assert other.bodies() == [b"a"]


@pytest.mark.spec("3.4.1")
def test_received_is_no_outcome(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=10)
    (delivery,) = receiver.take()
    delivery.update(Received(section_number=0, section_offset=1))
    net.run()
    assert net.queue("q").acquired == 1
    receiver.settle(Accepted(), delivery)
    assert net.queue("q").acquired == 0


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize(
    ("default", "available", "count"),
    [
        (None, 1, 0),
        (Released(), 1, 0),
        (Modified(delivery_failed=True), 1, 1),
        (Accepted(), 0, 0),
        (Rejected(), 0, 0),
    ],
)
def test_settled_without_an_outcome_means_the_default_one(
    net: Network,
    default: Accepted | Released | Modified | Rejected | None,
    available: int,
    count: int,
) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1, default_outcome=default)
    receiver.settle(None)
    assert (net.queue("q").available, net.queue("q").acquired) == (available, 0)
    if available:
        (again,) = client.receiver("q", credit=1).take()
        assert header(again.payload).delivery_count == count


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize("default", [Accepted(), Rejected()])
def test_a_lost_link_settles_by_its_default_outcome(
    net: Network, default: Accepted | Rejected
) -> None:
    client = net.connect()
    net.connect().sender("q").send(b"a", b"b")
    client.receiver("q", credit=1, default_outcome=default)
    client.lose()
    assert (net.queue("q").available, net.queue("q").acquired) == (1, 0)


@pytest.mark.parametrize(("lost", "count"), [(True, 1), (False, 0)])
def test_only_a_lost_connection_counts_as_a_failed_delivery(
    net: Network, lost: bool, count: int
) -> None:
    net.connect().sender("q").send(b"a")
    client = net.connect()
    assert client.receiver("q", credit=1).bodies() == [b"a"]
    if lost:
        client.lose()
    else:
        client.close()
    (again,) = net.connect().receiver("q", credit=1).take()
    assert header(again.payload).delivery_count == count


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("rcv", list(ReceiverSettleMode))
@pytest.mark.parametrize("snd", list(SenderSettleMode))
def test_every_settle_mode_delivers_and_settles(
    net: Network, snd: SenderSettleMode, rcv: ReceiverSettleMode
) -> None:
    client = net.connect()
    sender = client.sender("q", snd=snd, rcv=rcv)
    settled = snd is SenderSettleMode.SETTLED
    sent = sender.send(b"a", b"b", settled=settled)
    for delivery in sent:
        if settled:
            assert delivery.remote_state is None
        else:
            assert isinstance(delivery.remote_state, Accepted)
            # Where deliveries end with their link, the broker answers mode first.
            assert delivery.remote_settled
            delivery.settle()
    net.run()
    receiver = client.receiver("q", credit=10, snd=snd, rcv=rcv)
    assert receiver.bodies() == [b"a", b"b"]
    deliveries = receiver.take()
    assert [d.remote_settled for d in deliveries] == [settled, settled]
    if not settled:
        receiver.settle(Accepted(), *deliveries)
        assert all(d.settled for d in deliveries)
        if rcv is ReceiverSettleMode.SECOND:
            # The broker confirmed, repeating the outcome.
            assert all(isinstance(d.remote_state, Accepted) for d in deliveries)
    assert (net.queue("q").available, net.queue("q").acquired) == (0, 0)
    (consumer,) = net.queue("q").consumers
    assert isinstance(consumer, ConsumerLink)
    broker_session = consumer.link.session
    assert not broker_session.incoming.unsettled
    assert not broker_session.outgoing.unsettled


def test_a_confirmed_rejection_does_not_repeat_the_error(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1, rcv=ReceiverSettleMode.SECOND)
    (delivery,) = receiver.take()
    receiver.settle(Rejected(error=Error(condition="amqp:decode-error")), delivery)
    assert delivery.remote_settled
    assert delivery.remote_state == Rejected()


def test_a_confirmation_is_sent_when_the_receiver_does_not_settle(net: Network) -> None:
    """Some clients send an unsettled outcome and wait, whatever the settle mode says."""
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1)
    (delivery,) = receiver.take()
    delivery.update(Accepted())
    net.run()
    assert delivery.remote_settled
    assert net.queue("q").acquired == 0


@pytest.mark.spec("broker-2.3.5")
def test_contradictory_outcomes_cost_the_link(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a", b"b", b"c")
    receiver = client.receiver("q", credit=2, rcv=ReceiverSettleMode.SECOND)
    first, _ = receiver.take()
    first.update(Accepted())
    first.update(Rejected())
    net.run()
    assert receiver.detached
    assert receiver.error is not None and receiver.error.condition == "amqp:illegal-state"
    assert "accepted" in str(receiver.error.description)
    assert "rejected" in str(receiver.error.description)
    # What was said first has been done; what else the link held is there for others.
    queue = net.queue("q")
    assert (queue.available, queue.acquired, queue.rejected) == (2, 0, 0)
    assert client.receiver("q", credit=10).bodies() == [b"b", b"c"]


@pytest.mark.spec("broker-2.3.5")
def test_an_outcome_may_be_stated_again(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1, rcv=ReceiverSettleMode.SECOND)
    (delivery,) = receiver.take()
    delivery.update(Accepted())
    delivery.settle(Accepted())
    net.run()
    assert not receiver.detached
    assert (net.queue("q").available, net.queue("q").acquired) == (0, 0)


def test_an_undecodable_message_is_rejected(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    delivery = sender.send_encoded(b"\x00\x53\x70\xd0\x00\x00\xff\xff\x00\x00\x00\x01")
    assert isinstance(delivery.remote_state, Rejected)
    assert delivery.remote_state.error is not None
    assert delivery.remote_state.error.condition == "amqp:decode-error"
    assert net.queue("q").available == 0
    sender.send(b"fine")
    assert net.queue("q").available == 1


def test_an_undecodable_presettled_message_costs_the_link(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    sender.send_encoded(b"\x00\x53\x70\xff", settled=True)
    assert sender.detached
    assert sender.error is not None and sender.error.condition == "amqp:decode-error"
    assert not client.engine.finished


def test_other_message_formats_pass_unchanged(net: Network) -> None:
    client = net.connect()
    payload = b"whatever this is"
    client.sender("q").send_encoded(payload, message_format=0x80010000)
    receiver = client.receiver("q", credit=10)
    receiver.settle(Modified(delivery_failed=True, message_annotations={"x": 1}))
    (again,) = receiver.take()
    assert again.payload == payload
    assert again.message_format == 0x80010000


def test_the_terms_of_the_source_come_back(net: Network) -> None:
    receiver = net.connect().receiver(
        "q",
        source=Source(
            address="q",
            outcomes=["amqp:accepted:list"],
            default_outcome=Modified(delivery_failed=True),
        ),
    )
    assert receiver.remote_source.outcomes == ["amqp:accepted:list"]
    assert receiver.remote_source.default_outcome == Modified(delivery_failed=True)


def test_an_unchanged_message_is_forwarded_byte_for_byte(net: Network) -> None:
    client = net.connect()
    payload = encode(Header(durable=True), MessageAnnotations(value={"a": 1}), Data(value=b"x"))
    client.sender("q").send_encoded(payload)
    (delivery,) = client.receiver("q", credit=1).take()
    assert delivery.payload == payload
