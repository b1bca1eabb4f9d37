"""Proton as the tests use it: the blocking API, raw messages beside it, and bounded event loops."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from proton import Delivery, Event, Handler, SSLDomain, _reactor
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

# Seconds until a wait gives up; nothing waits this long if all is well.
TIMEOUT = 20.0

_tags = itertools.count(1)
_names = itertools.count(1)


class _SharedSslConfig(_reactor.SSLConfig):
    """The settings for TLS of each container, which no test changes. To make them, Proton reads all
    certificates of the system, twice, also for connections without TLS."""

    def __init__(self) -> None:
        self.client, self.server = _ssl_domains()


@functools.cache
def _ssl_domains() -> tuple[SSLDomain, SSLDomain]:
    return SSLDomain(SSLDomain.MODE_CLIENT), SSLDomain(SSLDomain.MODE_SERVER)


_reactor.SSLConfig = _SharedSslConfig


@contextmanager
def connect(url: str, **options: Any) -> Iterator[BlockingConnection]:
    """A blocking connection; `options` are those of `Container.connect`."""
    connection = BlockingConnection(url, timeout=TIMEOUT, **options)
    try:
        yield connection
    finally:
        connection.close()


def send_encoded(connection: BlockingConnection, address: str, *messages: bytes) -> None:
    """Send messages that are encoded already; return when the broker has accepted them all."""
    sender = connection.create_sender(address)
    link = sender.link
    connection.wait(lambda: link.credit >= len(messages))
    deliveries = []
    for message in messages:
        deliveries.append(link.delivery(str(next(_tags))))
        link.stream(message)
        link.advance()
    connection.wait(lambda: all(delivery.settled for delivery in deliveries))
    assert {delivery.remote_state for delivery in deliveries} == {Delivery.ACCEPTED}
    for delivery in deliveries:
        delivery.settle()
    sender.close()


class EncodedReceiver(Handler):
    """A receiver that hands out messages as they were encoded, and settles what it is told to."""

    def __init__(
        self, connection: BlockingConnection, address: str | None, credit: int = 10, **options: Any
    ) -> None:
        super().__init__()
        self._connection = connection
        self._arrived: collections.deque[tuple[bytes, Delivery]] = collections.deque()
        # Proton would give all receivers of a connection on one address the same name.
        options.setdefault("name", f"receiver-{next(_names)}")
        self.receiver = connection.create_receiver(address, credit=credit, handler=self, **options)

    @property
    def link(self) -> Any:
        """Proton's link."""
        return self.receiver.link

    def on_delivery(self, event: Event) -> None:
        """Proton's event: some of a message has come, or a delivery has been settled."""
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            data = delivery.link.recv(delivery.pending) or b""
            delivery.link.advance()
            self._arrived.append((bytes(data), delivery))
            event.container.yield_()

    def take(self) -> tuple[bytes, Delivery]:
        """The next message, not settled."""
        self._connection.wait(lambda: bool(self._arrived), msg="Receiving")
        return self._arrived.popleft()

    def drain(self) -> None:
        """Let come what there is and no more."""
        link = self.link
        link.drain(10_000)
        self._connection.wait(lambda: not link.draining() and link.queued == 0, msg="Draining")

    @property
    def waiting(self) -> int:
        """How many messages have come that nobody took."""
        return len(self._arrived)

    def accept(self) -> bytes:
        """The next message, accepted and settled."""
        data, delivery = self.take()
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        return data

    def close(self) -> None:
        """Close the link."""
        self.receiver.close()


def receive_encoded(connection: BlockingConnection, address: str, count: int) -> list[bytes]:
    """The next `count` messages as they were encoded, accepted."""
    receiver = EncodedReceiver(connection, address, credit=count)
    messages = [receiver.accept() for _ in range(count)]
    receiver.close()
    return messages


class Scenario(MessagingHandler):
    """A handler whose event loop is bounded in time and stops when `done` says so."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.errors: list[str] = []
        self._container: Container | None = None
        self._timed_out = False

    def run(self, seconds: float = TIMEOUT) -> None:
        """Run until the handler calls `finish`. Fails the test if it does not in time."""
        scenario = self

        class Watchdog(Handler):
            def on_timer_task(self, event: Event) -> None:
                scenario._timed_out = True
                scenario.finish()

        container = Container(self)
        self._container = container
        watchdog = container.schedule(seconds, Watchdog())
        self._watchdog = watchdog
        container.run()
        assert not self._timed_out, f"the scenario did not end in {seconds} s: {vars(self)}"

    def finish(self) -> None:
        """End the event loop, closing what is open."""
        container = self._container
        assert container is not None
        self._watchdog.cancel()
        container.stop()

    def on_link_error(self, event: Event) -> None:
        """A link was refused or closed with an error: note it, go on."""
        self.errors.append(f"link: {event.link.remote_condition}")

    def on_connection_error(self, event: Event) -> None:
        """The connection was closed with an error: note it."""
        self.errors.append(f"connection: {event.connection.remote_condition}")

    def on_transport_error(self, event: Event) -> None:
        """The transport failed: note it."""
        self.errors.append(f"transport: {event.transport.condition}")


def wait_until(connection: BlockingConnection, condition: Callable[[], Any], what: str) -> None:
    """Let events happen until the condition holds."""
    connection.wait(lambda: bool(condition()), msg=what)
