"""Proton: settlement modes, outcomes, and what they do to a message (AMQP 1.0 §2.6.12, §3.4)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import ConnectionException, Delivery, Link, Message, symbol
from proton.reactor import AtLeastOnce, AtMostOnce, LinkOption
from proton.utils import BlockingConnection

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import EncodedReceiver, connect, receive_encoded, wait_until
from tests.interop.relay import Relay

pytestmark = pytest.mark.interop


class SettleSecond(LinkOption):
    """Receiver-settle-mode second: both ends see the outcome before they forget."""

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND


@pytest.fixture(scope="module")
def connection(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    with connect(broker.url) as connection:
        yield connection


def expect_lost(connection: BlockingConnection) -> None:
    """The client finds its connection gone."""
    with pytest.raises(ConnectionException, match="disconnected"):
        wait_until(connection, lambda: False, "the end of the connection")
    connection.close()


def decoded(data: bytes) -> Message:
    message = Message()
    message.decode(data)
    return message


def fill(connection: BlockingConnection, address: str, *bodies: object) -> None:
    sender = connection.create_sender(address)
    for body in bodies:
        sender.send(Message(body=body))
    sender.close()


def remaining(connection: BlockingConnection, address: str) -> list[object]:
    """The bodies of what is left in the queue, and the queue is empty then."""
    receiver = EncodedReceiver(connection, address, credit=0)
    receiver.drain()
    bodies = [decoded(receiver.accept()).body for _ in range(receiver.waiting)]
    receiver.close()
    return bodies


def test_sent_settled(connection: BlockingConnection, address: str) -> None:
    """At most once: the sender forgets at once."""
    sender = connection.create_sender(address, options=AtMostOnce())
    assert sender.link.remote_snd_settle_mode == Link.SND_SETTLED
    for n in range(20):
        sender.send(Message(body=n))
    sender.close()
    assert remaining(connection, address) == list(range(20))


def test_sent_unsettled(connection: BlockingConnection, address: str) -> None:
    """At least once: the sender forgets when the broker has the message."""
    sender = connection.create_sender(address, options=AtLeastOnce())
    assert sender.link.remote_snd_settle_mode == Link.SND_UNSETTLED
    for n in range(20):
        delivery = sender.send(Message(body=n))
        assert delivery.remote_state == Delivery.ACCEPTED
    sender.close()
    assert remaining(connection, address) == list(range(20))


def test_received_settled(connection: BlockingConnection, address: str) -> None:
    """At most once: the broker forgets what it has sent, and never sends it again."""
    fill(connection, address, 1, 2, 3)
    receiver = EncodedReceiver(connection, address, credit=2, options=AtMostOnce())
    for body in (1, 2):
        data, delivery = receiver.take()
        assert decoded(data).body == body
        assert delivery.settled
    receiver.close()
    assert remaining(connection, address) == [3]


def test_received_unsettled_and_accepted(connection: BlockingConnection, address: str) -> None:
    fill(connection, address, 1, 2)
    receiver = EncodedReceiver(connection, address, credit=1, options=AtLeastOnce())
    data, delivery = receiver.take()
    assert decoded(data).body == 1
    assert not delivery.settled
    delivery.update(Delivery.ACCEPTED)
    delivery.settle()
    receiver.close()
    assert remaining(connection, address) == [2]


@pytest.mark.spec("3.4.4")
def test_released(connection: BlockingConnection, address: str) -> None:
    """A released message goes back to its place; nothing counts as failed."""
    fill(connection, address, 1, 2, 3)
    receiver = connection.create_receiver(address, credit=1)
    assert receiver.receive().body == 1
    receiver.release(delivered=False)
    again = receiver.receive()
    assert (again.body, again.delivery_count) == (1, 0)
    receiver.accept()
    receiver.close()
    assert remaining(connection, address) == [2, 3]


@pytest.mark.spec("3.4.5")
@pytest.mark.parametrize("failed", [False, True])
def test_modified(connection: BlockingConnection, address: str, failed: bool) -> None:
    """The header counts the deliveries that failed, and only those."""
    fill(connection, address, 1, 2)
    receiver = EncodedReceiver(connection, address, credit=4)
    _, last = receiver.take()
    receiver.take()
    for failures in (1, 2):
        last.local.failed = failed
        last.update(Delivery.MODIFIED)
        last.settle()
        data, last = receiver.take()
        message = decoded(data)
        assert (message.body, message.delivery_count) == (1, failures if failed else 0)
    receiver.close()
    assert remaining(connection, address) == [1, 2]


@pytest.mark.spec("3.4.5")
def test_modified_by_the_blocking_api(connection: BlockingConnection, address: str) -> None:
    """Proton's `release` is modified without delivery-failed."""
    fill(connection, address, 1, 2)
    receiver = connection.create_receiver(address, credit=1)
    assert receiver.receive().body == 1
    receiver.release()
    message = receiver.receive()
    assert (message.body, message.delivery_count) == (1, 0)
    receiver.accept()
    receiver.close()
    assert remaining(connection, address) == [2]


@pytest.mark.spec("3.4.5")
def test_modified_with_annotations(connection: BlockingConnection, address: str) -> None:
    sender = connection.create_sender(address)
    sender.send(Message(body=1, annotations={symbol("x-opt-old"): 1, symbol("x-opt-both"): 1}))
    sender.close()
    receiver = EncodedReceiver(connection, address, credit=1)
    _, delivery = receiver.take()
    delivery.local.annotations = {symbol("x-opt-new"): "2", symbol("x-opt-both"): "2"}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    receiver.link.flow(1)
    message = decoded(receiver.accept())
    receiver.close()
    assert message.annotations == {
        symbol("x-opt-old"): 1,
        symbol("x-opt-both"): "2",
        symbol("x-opt-new"): "2",
    }
    assert (message.body, message.delivery_count) == (1, 0)


@pytest.mark.spec("3.4.5")
def test_undeliverable_here(connection: BlockingConnection, address: str) -> None:
    """Nobody gets the message but another receiver, and that one gets it first."""
    fill(connection, address, 1, 2)
    receiver = EncodedReceiver(connection, address, credit=1)
    _, delivery = receiver.take()
    delivery.local.undeliverable = True
    delivery.local.failed = True
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    receiver.link.flow(1)
    assert decoded(receiver.accept()).body == 2
    other = EncodedReceiver(connection, address, credit=1)
    message = decoded(other.accept())
    assert (message.body, message.delivery_count) == (1, 1)
    other.close()
    receiver.close()
    assert remaining(connection, address) == []


@pytest.mark.spec("3.4.3")
def test_rejected(connection: BlockingConnection, address: str) -> None:
    """A rejected message does not come back."""
    fill(connection, address, 1, 2)
    receiver = connection.create_receiver(address, credit=1)
    assert receiver.receive().body == 1
    receiver.reject()
    assert receiver.receive().body == 2
    receiver.accept()
    receiver.close()
    assert remaining(connection, address) == []


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("outcome", [Delivery.ACCEPTED, Delivery.RELEASED])
def test_receiver_that_settles_second(
    connection: BlockingConnection, address: str, outcome: int
) -> None:
    """The receiver names the outcome, the broker settles with it, then the receiver does."""
    fill(connection, address, 1)
    receiver = EncodedReceiver(connection, address, credit=1, options=SettleSecond())
    assert receiver.link.remote_rcv_settle_mode == Link.RCV_SECOND
    _, delivery = receiver.take()
    delivery.update(outcome)
    wait_until(connection, lambda: delivery.settled, "the broker's settlement")
    assert delivery.remote_state == outcome
    delivery.settle()
    receiver.close()
    assert remaining(connection, address) == ([] if outcome == Delivery.ACCEPTED else [1])


@pytest.mark.spec("2.6.12")
def test_sender_that_wants_to_settle_first(connection: BlockingConnection, address: str) -> None:
    """The broker settles first where deliveries end with their link, and says so."""
    sender = connection.create_sender(address, options=SettleSecond())
    delivery = sender.link.send(Message(body=1))
    wait_until(connection, lambda: delivery.remote_state, "the outcome")
    assert delivery.remote_state == Delivery.ACCEPTED
    assert delivery.settled
    delivery.settle()
    sender.close()
    assert remaining(connection, address) == [1]


def test_order_survives_outcomes_out_of_order(connection: BlockingConnection, address: str) -> None:
    fill(connection, address, *range(6))
    receiver = EncodedReceiver(connection, address, credit=6)
    deliveries = [receiver.take()[1] for _ in range(6)]
    for index, state in (
        (4, Delivery.RELEASED),
        (1, Delivery.ACCEPTED),
        (3, Delivery.MODIFIED),
        (0, Delivery.RELEASED),
        (5, Delivery.ACCEPTED),
        (2, Delivery.REJECTED),
    ):
        deliveries[index].update(state)
        deliveries[index].settle()
    receiver.close()
    assert remaining(connection, address) == [0, 3, 4]


def test_outcomes_of_a_thousand_in_few_frames(connection: BlockingConnection, address: str) -> None:
    """Neighbours share a disposition; the range covers each of them."""
    count = 400
    sender = connection.create_sender(address)
    link = sender.link
    wait_until(connection, lambda: link.credit >= count, "credit")
    deliveries = [link.send(Message(body=n)) for n in range(count)]
    wait_until(connection, lambda: all(d.settled for d in deliveries), "settlement")
    assert {d.remote_state for d in deliveries} == {Delivery.ACCEPTED}
    sender.close()
    receiver = EncodedReceiver(connection, address, credit=count)
    taken = [receiver.take() for _ in range(count)]
    assert [decoded(data).body for data, _ in taken] == list(range(count))
    for number, (_, delivery) in enumerate(taken):
        delivery.update(Delivery.RELEASED if number % 50 == 0 else Delivery.ACCEPTED)
        delivery.settle()
    receiver.close()
    assert remaining(connection, address) == list(range(0, count, 50))


def test_closing_the_link_gives_back(connection: BlockingConnection, address: str) -> None:
    fill(connection, address, 1, 2, 3)
    receiver = EncodedReceiver(connection, address, credit=2)
    receiver.take()
    receiver.take()
    receiver.close()
    assert remaining(connection, address) == [1, 2, 3]


def test_lost_connection_gives_back(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    """The client may have seen the messages, so their delivery-count rises; their order stays."""
    fill(connection, address, 1, 2, 3)
    other = EncodedReceiver(connection, address, credit=0)
    with Relay(broker.port) as relay:
        lost = BlockingConnection(relay.url, timeout=5)
        receiver = EncodedReceiver(lost, address, credit=2)
        assert [decoded(receiver.take()[0]).body for _ in range(2)] == [1, 2]
        other.link.flow(3)
        messages = [decoded(other.accept())]
        relay.cut()
        messages += [decoded(other.accept()) for _ in range(2)]
        expect_lost(lost)
    other.close()
    assert [(m.body, m.delivery_count) for m in messages] == [(3, 0), (1, 1), (2, 1)]


def test_what_was_sent_before_the_connection_was_lost_is_there(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    with Relay(broker.port) as relay:
        lost = BlockingConnection(relay.url, timeout=5)
        lost.create_sender(address).send(Message(body="accepted"))
        relay.cut()
        expect_lost(lost)
    (data,) = receive_encoded(connection, address, 1)
    assert decoded(data).body == "accepted"
