"""Proton: deliveries in parts, given up half-way, mixed, too large; links detached, not closed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from proton import Delivery, Event, Message
from proton.utils import BlockingConnection, LinkDetached

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import (
    EncodedReceiver,
    connect,
    receive_encoded,
    send_encoded,
    wait_until,
)
from tests.interop.proton_values import encode_sections
from tests.interop.values import DATA, binary

pytestmark = pytest.mark.interop

STRICT = """
[limits]
max-message-size = 100000
credit = 10

[nodes]
auto-create = false

[[queue]]
name = "declared"
"""


@pytest.fixture(scope="module")
def connection(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    with connect(broker.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def strict() -> Iterator[BrokerProcess]:
    """A broker with one queue, a small limit on messages and little credit."""
    with BrokerProcess(STRICT) as process:
        yield process


def data(size: int) -> bytes:
    return encode_sections([(DATA, binary(os.urandom(size)))])


@pytest.mark.spec("2.6.14")
def test_parts_of_a_message(connection: BlockingConnection, address: str) -> None:
    """Written piece by piece; the broker hands on the whole."""
    message = data(300_000)
    sender = connection.create_sender(address)
    link = sender.link
    wait_until(connection, lambda: link.credit, "credit")
    delivery = link.delivery("in parts")
    for start in range(0, len(message), 50_000):
        link.stream(message[start : start + 50_000])
        wait_until(connection, lambda: delivery.pending == 0, "the part to be written")
    link.advance()
    wait_until(connection, lambda: delivery.settled, "settlement")
    assert delivery.remote_state == Delivery.ACCEPTED
    delivery.settle()
    sender.close()
    assert receive_encoded(connection, address, 1) == [message]


@pytest.mark.spec("2.6.14")
def test_given_up_half_way(connection: BlockingConnection, address: str) -> None:
    """An aborted delivery leaves nothing behind, and the link goes on."""
    sender = connection.create_sender(address)
    link = sender.link
    wait_until(connection, lambda: link.credit, "credit")
    delivery = link.delivery("given up")
    link.stream(data(100_000)[:80_000])
    wait_until(connection, lambda: delivery.pending == 0, "the part to be written")
    delivery.abort()
    sender.send(Message(body="whole"))
    sender.close()
    receiver = EncodedReceiver(connection, address)
    message = Message()
    message.decode(receiver.accept())
    assert message.body == "whole"
    receiver.drain()
    assert receiver.waiting == 0
    receiver.close()


def test_large_messages_on_links_side_by_side(connection: BlockingConnection, address: str) -> None:
    """Frames of deliveries on different links may alternate."""
    messages = {f"{address}-{number}": data(500_000) for number in range(5)}
    deliveries = []
    for name, message in messages.items():
        link = connection.create_sender(name).link
        wait_until(connection, lambda link=link: link.credit, "credit")
        deliveries.append((link, link.delivery("large"), message))
    size = len(next(iter(messages.values())))
    for start in range(0, size, 20_000):
        for link, _, message in deliveries:
            link.stream(message[start : start + 20_000])
        wait_until(connection, lambda: all(d.pending == 0 for _, d, _ in deliveries), "writing")
    for link, _, _ in deliveries:
        link.advance()
    wait_until(connection, lambda: all(d.settled for _, d, _ in deliveries), "settlement")
    receivers = {name: EncodedReceiver(connection, name) for name in messages}
    assert {name: receiver.accept() for name, receiver in receivers.items()} == messages
    for receiver in receivers.values():
        receiver.close()


def test_many_large_messages_wait_for_a_slow_client(broker: BrokerProcess, address: str) -> None:
    """A client that does not read costs the broker neither memory for it nor its other clients."""
    messages = [data(200_000) for _ in range(50)]
    with connect(broker.url) as writer, connect(broker.url) as slow:
        receiver = EncodedReceiver(slow, address, credit=50)
        # Another link's answer shows that the broker knows the credit.
        EncodedReceiver(slow, f"{address}-probe").close()
        send_encoded(writer, address, *messages)
        # Meanwhile the slow client, which has not read, does not hold up anybody.
        send_encoded(writer, f"{address}-other", messages[0])
        assert receive_encoded(writer, f"{address}-other", 1) == messages[:1]
        assert [receiver.accept() for _ in messages] == messages
        receiver.close()


class DetachingReceiver(EncodedReceiver):
    """A receiver that sees when the broker has detached in turn."""

    answered = False

    def on_link_remote_detach(self, event: Event) -> None:
        self.answered = True


@pytest.mark.spec("2.6.1")
def test_detached_not_closed(connection: BlockingConnection, address: str) -> None:
    """A link that is only detached gives back too, and can be attached again by its name."""
    connection.create_sender(address).send(Message(body=1))
    receiver = DetachingReceiver(connection, address, credit=1, name="comes-back")
    receiver.take()
    receiver.link.detach()
    wait_until(connection, lambda: receiver.answered, "the answer")
    again = EncodedReceiver(connection, address, credit=1, name="comes-back")
    message = Message()
    message.decode(again.accept())
    assert (message.body, message.delivery_count) == (1, 0)
    again.close()


@pytest.mark.spec("2.7.3")
def test_message_larger_than_the_broker_takes(strict: BrokerProcess) -> None:
    with connect(strict.url) as connection:
        sender = connection.create_sender("declared")
        assert sender.link.remote_max_message_size == 100_000
        sender.send(Message(body=b"x" * 99_000, inferred=True))
        with pytest.raises(LinkDetached) as caught:
            sender.send(Message(body=b"x" * 200_000, inferred=True))
        assert caught.value.condition == "amqp:link:message-size-exceeded"
        # The connection goes on, and only the message that fitted is there.
        receiver = EncodedReceiver(connection, "declared")
        assert len(receiver.accept()) < 100_000
        receiver.drain()
        assert receiver.waiting == 0
        receiver.close()


def test_more_messages_than_credit(strict: BrokerProcess) -> None:
    """The sender waits for credit, which comes again and again."""
    with connect(strict.url) as connection:
        sender = connection.create_sender("declared")
        assert sender.link.credit <= 10
        for number in range(100):
            sender.send(Message(body=number))
        receiver = connection.create_receiver("declared", credit=100)
        bodies = []
        for _ in range(100):
            bodies.append(receiver.receive().body)
            receiver.accept()
        receiver.close()
    assert bodies == list(range(100))


@pytest.mark.parametrize("direction", ["sender", "receiver"])
def test_address_that_was_not_declared(strict: BrokerProcess, direction: str) -> None:
    with connect(strict.url) as connection:
        with pytest.raises(LinkDetached) as caught:
            getattr(connection, f"create_{direction}")("undeclared")
        assert caught.value.condition == "amqp:not-found"
