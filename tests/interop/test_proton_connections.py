"""Proton: authentication, heartbeats, orderly and sudden ends, reconnecting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import ConnectionException, Event, Handler, Message
from proton.reactor import Backoff
from proton.utils import BlockingConnection, ConnectionClosed

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import Scenario, connect, wait_until
from tests.interop.relay import Relay

pytestmark = pytest.mark.interop

USERS = """
[security]
anonymous = false
[security.users]
alice = "open sesame"
"""

IMPATIENT = """
[limits]
idle-time-out = 1.0
close-timeout = 0.5
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[BrokerProcess]:
    """A broker that knows its users."""
    with BrokerProcess(USERS) as process:
        yield process


@pytest.fixture(scope="module")
def impatient() -> Iterator[BrokerProcess]:
    """A broker that gives up clients that are silent for a second."""
    with BrokerProcess(IMPATIENT) as process:
        yield process


def exchange_one(connection: BlockingConnection, address: str) -> None:
    sender = connection.create_sender(address)
    sender.send(Message(body="hello"))
    receiver = connection.create_receiver(address)
    assert receiver.receive().body == "hello"
    receiver.accept()
    receiver.close()
    sender.close()


# -- authentication ------------------------------------------------------------------------


@pytest.mark.spec("5.3")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sasl_enabled": False},
        {"allowed_mechs": "ANONYMOUS"},
        {"allowed_mechs": "PLAIN", "user": "any", "password": "thing"},
        {"user": "any", "password": "thing"},
    ],
    ids=["default", "no SASL", "ANONYMOUS", "PLAIN", "credentials"],
)
def test_ways_in(broker: BrokerProcess, address: str, options: dict[str, Any]) -> None:
    with connect(broker.url, **options) as connection:
        exchange_one(connection, address)


def test_known_user(guarded: BrokerProcess, address: str) -> None:
    with connect(guarded.url, user="alice", password="open sesame") as connection:
        assert connection.conn.transport.sasl().mech == "PLAIN"
        exchange_one(connection, address)


@pytest.mark.parametrize(
    "options",
    [
        {"user": "alice", "password": "wrong"},
        {"user": "bob", "password": "open sesame"},
        {"allowed_mechs": "ANONYMOUS"},
        {"sasl_enabled": False},
    ],
    ids=["wrong password", "unknown user", "ANONYMOUS", "no SASL"],
)
def test_unknown_clients_stay_outside(guarded: BrokerProcess, options: dict[str, Any]) -> None:
    with pytest.raises(ConnectionException):
        BlockingConnection(guarded.url, timeout=10, **options)
    with connect(guarded.url, user="alice", password="open sesame"):
        pass


# -- heartbeats ------------------------------------------------------------------------------


@pytest.mark.spec("2.4.5")
def test_broker_keeps_a_silent_connection_alive(broker: BrokerProcess, address: str) -> None:
    """Proton closes when it hears nothing for its heartbeat; with nothing to say, frames come."""
    with connect(broker.url, heartbeat=0.4) as connection:
        exchange_one(connection, address)
        transport = connection.conn.transport
        before = transport.frames_input
        wait_until(connection, lambda: transport.frames_input >= before + 4, "empty frames")
        exchange_one(connection, address)


@pytest.mark.spec("2.4.5")
def test_client_keeps_a_silent_connection_alive(impatient: BrokerProcess, address: str) -> None:
    """Proton follows the idle time-out in the broker's open, and the broker is content."""
    with connect(impatient.url) as connection:
        transport = connection.conn.transport
        assert transport.remote_idle_timeout == 0.5
        before = transport.frames_output
        wait_until(connection, lambda: transport.frames_output >= before + 6, "empty frames")
        exchange_one(connection, address)


@pytest.mark.spec("2.4.5")
def test_silent_client_is_given_up(impatient: BrokerProcess, address: str) -> None:
    with Relay(impatient.port) as relay:
        connection = BlockingConnection(relay.url, timeout=10)
        exchange_one(connection, address)
        relay.deafen()
        with pytest.raises(ConnectionClosed) as caught:
            wait_until(connection, lambda: False, "the end of the connection")
        assert caught.value.condition == "amqp:resource-limit-exceeded"
        relay.cut()


# -- ends and beginnings -----------------------------------------------------------------------


def test_sigterm_closes_connections() -> None:
    """Clients are told that the end is the operator's will, and the broker exits with 0."""
    with BrokerProcess() as process:
        connection = BlockingConnection(process.url, timeout=20)
        stopping = threading.Thread(target=process.stop)
        stopping.start()
        with pytest.raises(ConnectionClosed) as caught:
            wait_until(connection, lambda: False, "the end of the connection")
        connection.close()
        stopping.join(30)
        assert not stopping.is_alive()
    assert caught.value.condition == "amqp:connection:forced"


def test_many_connections(broker: BrokerProcess, address: str) -> None:
    connections = [BlockingConnection(broker.url, timeout=20) for _ in range(50)]
    for connection in connections:
        connection.create_sender(address).send(Message(body="one"))
    receiver = connections[0].create_receiver(address, credit=50)
    for _ in connections:
        assert receiver.receive().body == "one"
        receiver.accept()
    for connection in connections:
        connection.close()


class Survivor(Scenario):
    """Sends itself a message at a time; the broker is restarted after the first.

    Proton opens connection and links again by itself; the handler only sees that it may send.
    """

    def __init__(self, url: str, address: str, restart: Callable[[], None]) -> None:
        super().__init__()
        self.url = url
        self.address = address
        self.restart = restart
        self.received: list[object] = []
        self.disconnections = 0
        self.thread: threading.Thread | None = None

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(
            self.url, reconnect=Backoff(initial=0.01, factor=2, max_delay=0.2)
        )
        self.sender = event.container.create_sender(connection, self.address)
        event.container.create_receiver(connection, self.address)
        self.unsent = ["before", "after", "later"]

    def on_sendable(self, event: Event) -> None:
        self._send_next()

    def on_message(self, event: Event) -> None:
        self.received.append(event.message.body)
        if len(self.received) == 3:
            event.connection.close()
        elif len(self.received) == 1:
            self.thread = threading.Thread(target=self.restart)
            self.thread.start()
        else:
            self._send_next()

    def _send_next(self) -> None:
        number = len(self.received)
        waits = number == 1 and not self.disconnections
        if self.sender.credit and len(self.unsent) == 3 - number and not waits:
            self.sender.send(Message(body=self.unsent.pop(0)))

    def on_disconnected(self, event: Event) -> None:
        self.disconnections += 1

    def on_connection_closed(self, event: Event) -> None:
        self.finish()


@pytest.mark.parametrize("sudden", [True, False], ids=["killed", "stopped"])
def test_reconnecting(address: str, sudden: bool) -> None:
    """Proton finds a broker that was restarted, and its links work again.

    It does not answer a close that is forced, nor read on after it: it notices the end of the
    transport when it cannot write its empty frames, so the idle time-out is a short one here.
    """
    with BrokerProcess(IMPATIENT) as process:

        def restart() -> None:
            if sudden:
                process.kill()
            else:
                process.stop()
            process.start()

        survivor = Survivor(process.url, address, restart)
        survivor.run(30)
        assert survivor.thread is not None
        survivor.thread.join(30)
    assert survivor.received == ["before", "after", "later"]
    assert survivor.disconnections >= 1


class Resender(Scenario):
    """Sends numbers, and those that were not settled again after the connection was cut."""

    def __init__(self, url: str, address: str, count: int, cut: Callable[[], None]) -> None:
        super().__init__()
        self.url = url
        self.address = address
        self.unsettled = set(range(count))
        self.in_flight: set[int] = set()
        self.cut_at = count // 2
        self.cut = cut
        self.disconnections = 0

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url, reconnect=Backoff(initial=0.01))
        self.sender = event.container.create_sender(connection, self.address)

    def on_sendable(self, event: Event) -> None:
        self._send()

    def _send(self) -> None:
        for number in sorted(self.unsettled - self.in_flight):
            if len(self.in_flight) == 20 or not self.sender.credit:
                break
            self.in_flight.add(number)
            self.sender.send(Message(body=number)).number = number

    def on_accepted(self, event: Event) -> None:
        number = event.delivery.number
        self.in_flight.discard(number)
        self.unsettled.discard(number)
        if not self.unsettled:
            event.connection.close()
        elif len(self.unsettled) == self.cut_at and not self.disconnections:
            self.cut()
        else:
            self._send()

    def on_disconnected(self, event: Event) -> None:
        self.disconnections += 1
        self.in_flight.clear()

    def on_connection_closed(self, event: Event) -> None:
        self.finish()


def test_at_least_once_over_a_lost_connection(broker: BrokerProcess, address: str) -> None:
    """Nothing that was not settled is forgotten, nothing that was settled is lost."""
    count = 300
    with Relay(broker.port) as relay:
        resender = Resender(relay.url, address, count, relay.cut)
        resender.run()
    assert resender.disconnections >= 1
    with connect(broker.url) as connection:
        receiver = connection.create_receiver(address, credit=100)
        seen: set[object] = set()
        while len(seen) < count:
            seen.add(receiver.receive().body)
            receiver.accept()
        receiver.close()
    assert seen == set(range(count))


class Pipeliner(Scenario):
    """Sends and receives on two connections at once, everything in flight that credit allows."""

    def __init__(self, url: str, address: str, count: int) -> None:
        super().__init__(prefetch=100)
        self.url = url
        self.address = address
        self.count = count
        self.sent = 0
        self.settled = 0
        self.received: list[int] = []

    def on_start(self, event: Event) -> None:
        connect = event.container.connect
        self.connections = [connect(self.url, reconnect=False) for _ in range(2)]
        event.container.create_sender(self.connections[0], self.address)
        event.container.create_receiver(self.connections[1], self.address)

    def on_sendable(self, event: Event) -> None:
        while event.sender.credit and self.sent < self.count:
            event.sender.send(Message(body=self.sent))
            self.sent += 1

    def on_settled(self, event: Event) -> None:
        self.settled += 1
        self._check(event)

    def on_message(self, event: Event) -> None:
        self.received.append(event.message.body)
        self._check(event)

    def _check(self, event: Event) -> None:
        if self.settled == self.count == len(self.received):
            for connection in self.connections:
                connection.close()

    def on_connection_closed(self, event: Event) -> None:
        self.connections.remove(event.connection)
        if not self.connections:
            self.finish()


def test_pipelined(broker: BrokerProcess, address: str) -> None:
    pipeliner = Pipeliner(broker.url, address, 5000)
    pipeliner.run()
    assert pipeliner.received == list(range(5000))
    assert pipeliner.errors == []


def test_handlers_can_be_plain(broker: BrokerProcess) -> None:
    """A handler without Proton's conveniences sees the open of the broker."""

    class Plain(Scenario):
        def on_start(self, event: Event) -> None:
            event.container.connect(broker.url, reconnect=False, handler=Opened(self))

    class Opened(Handler):
        def __init__(self, scenario: Scenario) -> None:
            super().__init__()
            self.scenario = scenario

        def on_connection_remote_open(self, event: Event) -> None:
            self.scenario.errors.append(event.connection.remote_container)
            event.connection.close()

        def on_connection_remote_close(self, event: Event) -> None:
            self.scenario.finish()

    plain = Plain()
    plain.run()
    assert plain.errors and plain.errors[0].startswith("ferrymq")
