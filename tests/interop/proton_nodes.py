"""What tests of nodes ask Proton for: termini in every detail, messages with their deliveries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from proton import UNDESCRIBED, Array, Data, Delivery, Described, Link, Message, Terminus, symbol
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection, SendException

from tests.interop.proton_client import TIMEOUT, EncodedReceiver

POSITION = "ferrymq:position"


def symbols(names: Sequence[str]) -> Array:
    """An array of symbols."""
    return Array(UNDESCRIBED, Data.SYMBOL, *[symbol(name) for name in names])


def symbolic(values: dict[str, Any]) -> dict[symbol, Any]:
    """A map whose keys are symbols."""
    return {symbol(key): value for key, value in values.items()}


class Asking(LinkOption):
    """What a link asks for; the terminus is the source of a receiver, the target of a sender."""

    def __init__(
        self,
        *,
        properties: dict[str, Any] | None = None,
        capabilities: Sequence[str] = (),
        filters: dict[str, Any] | None = None,
        outcomes: Sequence[str] = (),
        mode: int | None = None,
        durability: int | None = None,
        expiry: int | None = None,
        timeout: int | None = None,
        node: dict[str, Any] | None = None,
        no_source: bool = False,
    ) -> None:
        self.properties = properties
        self.capabilities = capabilities
        self.filters = filters
        self.outcomes = outcomes
        self.mode = mode
        self.durability = durability
        self.expiry = expiry
        self.timeout = timeout
        self.node = node
        self.no_source = no_source

    def apply(self, link: Link) -> None:
        """Proton calls it before the link is opened."""
        terminus = link.source if link.is_receiver else link.target
        if self.properties is not None:
            link.properties = symbolic(self.properties)
        if self.capabilities:
            terminus.capabilities.put_object(symbols(self.capabilities))
        if self.filters is not None:
            described = {
                symbol(name): Described(symbol(name), value) for name, value in self.filters.items()
            }
            terminus.filter.put_object(described)
        if self.outcomes:
            link.source.outcomes.put_object(symbols(self.outcomes))
        if self.node is not None:
            terminus.properties.put_object(symbolic(self.node))
        if self.mode is not None:
            terminus.distribution_mode = self.mode
        if self.durability is not None:
            terminus.durability = self.durability
        if self.expiry is not None:
            terminus.expiry_policy = self.expiry
        if self.timeout is not None:
            terminus.timeout = self.timeout
        if self.no_source:
            link.source.type = Terminus.UNSPECIFIED


class Inbox(EncodedReceiver):
    """A receiver whose messages and deliveries the test sees, and settles as it likes."""

    def get(self) -> tuple[Message, Delivery]:
        """The next message and its delivery, not settled."""
        data, delivery = self.take()
        message = Message()
        message.decode(data)
        return message, delivery

    def next(self) -> Message:
        """The next message, accepted."""
        message, delivery = self.get()
        settle(delivery, Delivery.ACCEPTED)
        return message

    def bodies(self, count: int) -> list[Any]:
        """The bodies of the next messages, accepted."""
        return [self.next().body for _ in range(count)]

    def rest(self) -> list[Any]:
        """The bodies of all that there is for it now, accepted."""
        self.drain()
        return self.bodies(self.waiting)


def settle(delivery: Delivery, outcome: int, **local: Any) -> None:
    """Settle with the outcome; `local` are fields of it: failed, undeliverable, annotations."""
    for name, value in local.items():
        setattr(delivery.local, name, value)
    delivery.update(outcome)
    delivery.settle()


@contextmanager
def connect_as(url: str, container_id: str, **options: Any) -> Iterator[BlockingConnection]:
    """A connection of a container with that name."""
    container = Container()
    container.container_id = container_id
    connection = BlockingConnection(url, timeout=TIMEOUT, container=container, **options)
    try:
        yield connection
    finally:
        connection.close()


def fence(connection: BlockingConnection) -> None:
    """Return when the broker has read all that was sent over the connection before."""
    Inbox(connection, None, dynamic=True).close()


def send(connection: BlockingConnection, address: str | None, *messages: Any) -> list[int]:
    """Send messages, or bodies of such, one after the other; their outcomes."""
    sender = connection.create_sender(address)
    outcomes: list[int] = []
    for message in messages:
        if not isinstance(message, Message):
            message = Message(body=message)
        try:
            outcomes.append(sender.send(message).remote_state)
        except SendException as error:
            outcomes.append(error.state)
    sender.close()
    return outcomes


def left(connection: BlockingConnection, address: str) -> list[Any]:
    """The bodies of the messages in a queue, which is empty then."""
    inbox = Inbox(connection, address, credit=0)
    bodies = inbox.rest()
    inbox.close()
    return bodies


def detach(connection: BlockingConnection, inbox: EncodedReceiver) -> None:
    """Detach the link without closing it; return when the broker knows.

    What a program does between two turns of its loop Proton sends in an order of its own: attaches,
    then dispositions, then detaches.
    """
    inbox.link.detach()
    fence(connection)


def lost_to(connection: BlockingConnection, inbox: EncodedReceiver) -> tuple[str, str | None]:
    """Wait for the broker to detach the link, not closing it; its error and description."""
    link = inbox.link
    connection.wait(lambda: link.remote_condition is not None, msg="Detaching")
    return link.remote_condition.name, link.remote_condition.description
