"""Proton: browsing, dynamic nodes, drain, sessions, anonymous relay, links that are refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import proton
import pytest
from proton import Delivery, Described, Endpoint, Event, Link, Message, Terminus, symbol
from proton.reactor import AtMostOnce, Copy, Filter, LinkOption, Move
from proton.utils import (
    BlockingConnection,
    LinkDetached,
    SendException,
    SyncRequestResponse,
)

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import EncodedReceiver, Scenario, connect, wait_until

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def connection(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    with connect(broker.url) as connection:
        yield connection


def body_of(data: bytes) -> object:
    message = Message()
    message.decode(data)
    # A binary is a view of memory that belongs to the message.
    return bytes(message.body) if isinstance(message.body, memoryview) else message.body


def fill(connection: BlockingConnection, address: str, *bodies: object) -> None:
    sender = connection.create_sender(address)
    for body in bodies:
        sender.send(Message(body=body))
    sender.close()


class MessageLimit(LinkOption):
    """A receiver that takes small messages only."""

    def apply(self, link: Link) -> None:
        link.max_message_size = 1000


# -- browsing ------------------------------------------------------------------------------


def test_browsers_see_everything_and_take_nothing(
    connection: BlockingConnection, address: str
) -> None:
    fill(connection, address, 1, 2, 3)
    browsers = [EncodedReceiver(connection, address, options=Copy()) for _ in range(2)]
    for browser in browsers:
        assert browser.link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
        assert [body_of(browser.accept()) for _ in range(3)] == [1, 2, 3]
    fill(connection, address, 4)
    for browser in browsers:
        assert body_of(browser.accept()) == 4
        browser.close()
    consumer = EncodedReceiver(connection, address, options=Move())
    assert consumer.link.remote_source.distribution_mode == Terminus.DIST_MODE_MOVE
    assert [body_of(consumer.accept()) for _ in range(4)] == [1, 2, 3, 4]
    consumer.close()


@pytest.mark.parametrize(
    "outcome", [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED]
)
def test_no_outcome_of_a_browser_matters(
    connection: BlockingConnection, address: str, outcome: int
) -> None:
    fill(connection, address, 1)
    browser = EncodedReceiver(connection, address, options=Copy())
    _, delivery = browser.take()
    delivery.update(outcome)
    delivery.settle()
    browser.drain()
    assert browser.waiting == 0
    browser.close()
    consumer = connection.create_receiver(address)
    assert consumer.receive().delivery_count == 0
    consumer.accept()
    consumer.close()


def test_browsing_settled(connection: BlockingConnection, address: str) -> None:
    fill(connection, address, 1, 2)
    browser = EncodedReceiver(connection, address, options=[Copy(), AtMostOnce()])
    assert [body_of(browser.take()[0]) for _ in range(2)] == [1, 2]
    browser.close()
    consumer = EncodedReceiver(connection, address)
    assert [body_of(consumer.accept()) for _ in range(2)] == [1, 2]
    consumer.close()


# -- competing consumers, credit, drain ----------------------------------------------------


def test_competing_consumers_share(broker: BrokerProcess, address: str) -> None:
    with connect(broker.url) as one, connect(broker.url) as two:
        first = EncodedReceiver(one, address, credit=10)
        second = EncodedReceiver(two, address, credit=10)
        fill(one, address, *range(20))
        mine = [body_of(first.accept()) for _ in range(10)]
        theirs = [body_of(second.accept()) for _ in range(10)]
        first.close()
        second.close()
    assert sorted([*mine, *theirs]) == list(range(20))
    assert mine == sorted(mine) and theirs == sorted(theirs)


@pytest.mark.spec("2.6.7")
def test_credit_is_the_limit(connection: BlockingConnection, address: str) -> None:
    fill(connection, address, *range(5))
    receiver = EncodedReceiver(connection, address, credit=2)
    assert [body_of(receiver.accept()) for _ in range(2)] == [0, 1]
    # The answer to another flow on the session shows that nothing more was on its way.
    probe = EncodedReceiver(connection, f"{address}-other", credit=0)
    probe.drain()
    probe.close()
    assert (receiver.waiting, receiver.link.credit) == (0, 0)
    receiver.link.flow(3)
    assert [body_of(receiver.accept()) for _ in range(3)] == [2, 3, 4]
    receiver.close()


@pytest.mark.spec("2.6.7")
def test_drain(connection: BlockingConnection, address: str) -> None:
    """What there is comes, and the rest of the credit goes back; later credit works again."""
    receiver = EncodedReceiver(connection, address, credit=0)
    receiver.drain()
    assert receiver.waiting == 0
    fill(connection, address, 1, 2, 3)
    receiver.drain()
    assert (receiver.waiting, receiver.link.credit) == (3, 0)
    assert [body_of(receiver.accept()) for _ in range(3)] == [1, 2, 3]
    receiver.link.drain_mode = False
    receiver.link.flow(1)
    fill(connection, address, 4)
    assert body_of(receiver.accept()) == 4
    receiver.close()


# -- sessions and links --------------------------------------------------------------------


def test_many_sessions_on_a_connection(connection: BlockingConnection, address: str) -> None:
    sessions = [connection.conn.session() for _ in range(10)]
    senders = []
    for number, session in enumerate(sessions):
        session.open()
        sender = session.sender(f"sender-{number}")
        sender.target.address = address
        sender.open()
        senders.append(sender)
    wait_until(connection, lambda: all(sender.credit for sender in senders), "credit")
    deliveries = [sender.send(Message(body=n)) for n, sender in enumerate(senders)]
    wait_until(connection, lambda: all(d.settled for d in deliveries), "settlement")
    receiver = EncodedReceiver(connection, address)
    assert sorted(body_of(receiver.accept()) for _ in range(10)) == list(range(10))
    receiver.close()
    for session in sessions:
        session.close()
    wait_until(
        connection,
        lambda: all(session.state & Endpoint.REMOTE_CLOSED for session in sessions),
        "the ends of the sessions",
    )


def test_ending_a_session_gives_back(connection: BlockingConnection, address: str) -> None:
    fill(connection, address, 1)
    session = connection.conn.session()
    session.open()
    link = session.receiver("one")
    link.source.address = address
    link.open()
    link.flow(1)
    wait_until(connection, lambda: link.queued, "a message")
    session.close()
    wait_until(connection, lambda: session.state & Endpoint.REMOTE_CLOSED, "the end")
    receiver = connection.create_receiver(address)
    assert receiver.receive().body == 1
    receiver.accept()
    receiver.close()


def test_one_name_for_both_directions(connection: BlockingConnection, address: str) -> None:
    sender = connection.create_sender(address, name="the-name")
    receiver = connection.create_receiver(address, name="the-name", credit=1)
    sender.send(Message(body=1))
    assert receiver.receive().body == 1
    receiver.accept()
    receiver.close()
    sender.send(Message(body=2))
    sender.close()


def test_many_links(connection: BlockingConnection, address: str) -> None:
    count = 100
    senders = [connection.create_sender(f"{address}-{n}") for n in range(count)]
    receivers = [connection.create_receiver(f"{address}-{n}") for n in range(count)]
    for number, sender in enumerate(senders):
        sender.send(Message(body=number))
    for number, receiver in enumerate(receivers):
        assert receiver.receive().body == number
        receiver.accept()
    for link in (*senders, *receivers):
        link.close()


# -- dynamic nodes, request and response ----------------------------------------------------


class Server(Scenario):
    """Answers every request on an address to where its reply-to says, `count` times."""

    def __init__(self, url: str, address: str, count: int) -> None:
        super().__init__()
        self.url = url
        self.address = address
        self.left = count
        self.ready = threading.Event()

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url, reconnect=False)
        self.receiver = event.container.create_receiver(connection, self.address)
        self.answers = event.container.create_sender(connection, None)

    def on_link_opened(self, event: Event) -> None:
        if event.link == self.receiver:
            self.ready.set()

    def on_message(self, event: Event) -> None:
        request = event.message
        self.answers.send(
            Message(
                address=request.reply_to,
                correlation_id=request.correlation_id,
                body=f"{request.body}, too",
            )
        )

    def on_accepted(self, event: Event) -> None:
        self.left -= 1
        if self.left == 0:
            event.connection.close()

    def on_connection_closed(self, event: Event) -> None:
        self.finish()


def test_request_and_response(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    """Proton's own request-response client: a dynamic source, and a server with a relay link."""
    server = Server(broker.url, address, 3)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.ready.wait(20)
        client = SyncRequestResponse(connection, address)
        assert client.reply_to
        for word in ("one", "two", "three"):
            assert client.call(Message(body=word)).body == f"{word}, too"
        client.receiver.close()
        client.sender.close()
    finally:
        thread.join(30)
    assert server.errors == []


@pytest.mark.spec("3.5.3")
def test_dynamic_source(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    """Others can send to the address; it ends with the link, and sending to it with it."""
    with connect(broker.url) as other:
        receiver = EncodedReceiver(connection, None, dynamic=True)
        source = receiver.link.remote_source
        assert source.dynamic
        sender = other.create_sender(source.address)
        sender.send(Message(body="hello"))
        assert body_of(receiver.accept()) == "hello"
        receiver.close()
        with pytest.raises(LinkDetached) as caught:
            wait_until(other, lambda: False, "the end of the link")
    assert caught.value.condition == "amqp:resource-deleted"
    # A late answer must not make a queue that nobody will ever read.
    with pytest.raises((LinkDetached, proton.LinkException)):
        connection.create_sender(source.address)


def test_dynamic_nodes_have_different_addresses(connection: BlockingConnection) -> None:
    receivers = [EncodedReceiver(connection, None, dynamic=True) for _ in range(20)]
    assert len({receiver.link.remote_source.address for receiver in receivers}) == 20
    for receiver in receivers:
        receiver.close()


# -- the anonymous terminus ------------------------------------------------------------------


def test_anonymous_relay(connection: BlockingConnection, address: str) -> None:
    offered = list(connection.conn.remote_offered_capabilities)
    assert symbol("ANONYMOUS-RELAY") in offered
    sender = connection.create_sender(None)
    for number in range(3):
        sender.send(Message(address=f"{address}-{number}", body=number))
    for number in range(3):
        receiver = connection.create_receiver(f"{address}-{number}")
        received = receiver.receive()
        assert (received.body, received.address) == (number, f"{address}-{number}")
        receiver.accept()
        receiver.close()
    sender.close()


@pytest.mark.parametrize("to", [None, "$nothing/here"])
def test_anonymous_relay_without_a_way(connection: BlockingConnection, to: str | None) -> None:
    """The message is rejected, the link goes on."""
    sender = connection.create_sender(None)
    for _ in range(2):
        with pytest.raises(SendException) as caught:
            sender.send(Message(address=to, body="lost"))
        assert caught.value.state == Delivery.REJECTED
    delivery = sender.link.send(Message(address=to, body="lost"))
    wait_until(connection, lambda: delivery.settled, "settlement")
    assert delivery.remote.condition.name == "amqp:not-found"
    delivery.settle()
    sender.close()


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize("direction", ["sender", "receiver"])
def test_address_that_does_not_exist(connection: BlockingConnection, direction: str) -> None:
    create = getattr(connection, f"create_{direction}")
    with pytest.raises((LinkDetached, proton.LinkException)):
        create("$nothing/here")
    # The connection is none the worse.
    receiver = connection.create_receiver(None, dynamic=True)
    receiver.close()


def test_handler_is_told_why(broker: BrokerProcess, address: str) -> None:
    class Refused(Scenario):
        def on_start(self, event: Event) -> None:
            connection = event.container.connect(broker.url, reconnect=False)
            event.container.create_receiver(connection, "$nothing/here")

        def on_link_error(self, event: Event) -> None:
            condition = event.link.remote_condition
            self.errors.append(f"{condition.name}: {condition.description}")
            event.connection.close()

        def on_connection_closed(self, event: Event) -> None:
            self.finish()

    refused = Refused()
    refused.run()
    assert len(refused.errors) == 1
    assert refused.errors[0].startswith("amqp:not-found: ")
    assert "$nothing/here" in refused.errors[0]


def test_filters_that_do_not_work_are_not_promised(
    connection: BlockingConnection, address: str
) -> None:
    """A filter that nobody knows: the answer does not name it, as the specification wants."""
    unknown = Described(symbol("example:colour-filter"), "green")
    receiver = EncodedReceiver(connection, address, options=Filter({symbol("colour"): unknown}))
    answered = receiver.link.remote_source.filter
    answered.rewind()
    assert not answered.next() or answered.get_object() in (None, {})
    receiver.close()


def test_message_larger_than_a_receiver_takes(connection: BlockingConnection, address: str) -> None:
    """It waits for a receiver that takes it, and does not stand in the way of others."""
    sender = connection.create_sender(address)
    sender.send(Message(body=b"x" * 2000, inferred=True))
    sender.send(Message(body="small"))
    sender.close()
    modest = EncodedReceiver(connection, address, options=MessageLimit())
    assert body_of(modest.accept()) == "small"
    modest.close()
    receiver = EncodedReceiver(connection, address)
    assert body_of(receiver.accept()) == b"x" * 2000
    receiver.close()
