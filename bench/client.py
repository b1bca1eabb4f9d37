"""A client on a blocking socket, for parts that fill a broker and then inspect it."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Final

from ferrymq.engine.connection import Connection
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.events import DeliveryReceived, Terminated
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_types.messaging import Accepted, Source, Target

CREDIT: Final = 5_000
PATIENCE: Final = 60.0


class Peer:
    """A client with one connection on a blocking socket, and any number of sessions."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = ConnectionSettings(container_id=name, initiator=True, incoming_window=50_000)
        self.engine = Connection(settings, time.monotonic())
        self.engine.open()
        self.both = select.poll()
        self.both.register(self.socket, select.POLLIN | select.POLLOUT)
        self.received = 0
        self.closed = False
        self.until(lambda: self.engine.opened)

    def session(self) -> Session:
        """Begin another session."""
        return self.engine.begin()

    def until(self, done: Callable[[], bool]) -> None:
        """Move bytes until `done()`. Raises `TimeoutError` if the broker does nothing."""
        while True:
            self.flush()
            if done():
                return
            self.read()

    def read(self) -> None:
        """Read and handle the next bytes. Raises `ConnectionError` at the end."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self.engine.receive_data(data, time.monotonic())
        self.handle()

    def flush(self) -> None:
        """Write all output, and read meanwhile, so that the peers do not wait for each other.

        Input may cause more output, such as credit, which is written too.
        """
        while data := memoryview(self.engine.data_to_send()):
            while data:
                # poll() is used because select() handles no more than 1024 sockets.
                ready = self.both.poll(PATIENCE * 1000)
                if not ready:
                    raise TimeoutError("the broker neither reads nor writes")
                for _, mask in ready:
                    if mask & ~select.POLLOUT:
                        self.read()
                    if mask & select.POLLOUT:
                        data = data[self.socket.send(data[: 1 << 16]) :]

    def handle(self) -> None:
        """Accept all messages that have arrived."""
        for event in self.engine.take_events():
            if isinstance(event, DeliveryReceived):
                self.received += 1
                event.delivery.settle(Accepted())
                link = event.delivery.link
                if link.credit < CREDIT // 2:
                    link.set_credit(CREDIT)
            elif isinstance(event, Terminated):
                self.closed = True

    def sender(self, session: Session, address: str) -> SenderLink:
        """Return a link to `address`, which is not attached yet."""
        return session.attach_sender(f"to-{address}", target=Target(address=address))

    def receiver(self, session: Session, address: str) -> ReceiverLink:
        """Attach a link from `address`, and give it credit."""
        link = session.attach_receiver(f"from-{address}", source=Source(address=address))
        self.until(lambda: link.usable)
        link.set_credit(CREDIT)
        return link

    def supplied(self, links: list[SenderLink]) -> None:
        """Wait until all of these links have credit."""
        self.until(lambda: all(link.credit > 0 for link in links))

    def answered(self, link: SenderLink) -> None:
        """Wait until all messages of this link's session have outcomes."""
        outgoing = link.session.outgoing
        self.until(lambda: not outgoing.unsettled)

    def detach(self, links: list[SenderLink]) -> None:
        """Detach these links, and wait for the broker's detaches."""
        for link in links:
            link.detach()
        self.until(lambda: all(link.remote_detached for link in links))

    def end(self) -> None:
        """Close the connection properly, so that the broker has read everything."""
        self.engine.close()
        self.until(lambda: self.closed)
        self.socket.close()

    def close(self) -> None:
        """Drop the connection."""
        self.socket.close()


def fill(port: int, address: str, message: bytes, count: int) -> None:
    """Put `count` messages into a queue, and wait until each is accepted."""
    peer = Peer(port, "filler")
    link = peer.sender(peer.session(), address)
    sent = 0
    while sent < count:
        peer.until(lambda: link.credit > 0)
        for _ in range(min(link.credit, count - sent, 500)):
            link.send(message)
            sent += 1
    peer.answered(link)
    peer.end()


class Holder(Peer):
    """A client that settles nothing until it is told to."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.deliveries: list[IncomingDelivery] = []

    def handle(self) -> None:
        """Keep all messages that have arrived."""
        for event in self.engine.take_events():
            if isinstance(event, DeliveryReceived):
                self.deliveries.append(event.delivery)
            elif isinstance(event, Terminated):
                self.closed = True


def hold(port: int, address: str, count: int) -> None:
    """Take `count` messages out of a queue: hold all of them at once, then accept them."""
    holder = Holder(port, "holder")
    link = holder.session().attach_receiver("held", source=Source(address=address))
    holder.until(lambda: link.usable)
    link.set_credit(count)
    holder.until(lambda: len(holder.deliveries) >= count)
    for number, delivery in enumerate(holder.deliveries):
        delivery.settle(Accepted())
        if number % 1_000 == 0:
            holder.flush()
    holder.end()


def drain(port: int, address: str, count: int) -> None:
    """Take `count` messages out of a queue. Raises `OSError` if there are more, and `TimeoutError`
    if there are fewer."""
    peer = Peer(port, "drainer")
    peer.receiver(peer.session(), address)
    peer.until(lambda: peer.received >= count)
    peer.end()
    if peer.received != count:
        raise OSError(f"{peer.received - count} messages too many came from {address}")
