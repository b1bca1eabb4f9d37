"""What the broker's process occupies: long queues, many subscriptions, connections and queues.

Each case has a broker of its own, so that none finds what another left. Long queues are filled and
drained, and every message is counted back; everything else is held while the memory is read.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Final

from bench.machine import NOW, PEAK, build, memory_of
from bench.results import Figure, Report
from ferrymq.engine.connection import Connection
from ferrymq.engine.events import DeliveryReceived
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_types.messaging import Accepted, Source, Target

MIB: Final = "MiB"
KIB: Final = "KiB"
BYTES: Final = "B"
SIZE: Final = 1024
CREDIT: Final = 5_000
# Links that one session carries here: what brokers allow without asking.
LINKS: Final = 1_000
PATIENCE: Final = 60.0
# An encoded message: a data section of `SIZE` bytes.
MESSAGE: Final = b"\x00\x53\x75\xb0" + SIZE.to_bytes(4, "big") + bytes(SIZE)
# One of 113 bytes, 108 of them data.
SMALL: Final = b"\x00\x53\x75\xa0\x6c" + bytes(108)


class Watched:
    """A broker's process: its port, and the memory it occupies, in bytes."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._pid = pid

    def memory(self, which: str = NOW) -> int:
        """Now, or at its peak. Raises `OSError` where the system does not tell."""
        found = memory_of(self._pid, which)
        if found is None:
            raise OSError("this system does not tell what a process occupies")
        return found


class Peer:
    """A client on a blocking socket: one connection, as many sessions as asked for."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = ConnectionSettings(container_id=name, initiator=True, incoming_window=50_000)
        self.engine = Connection(settings, time.monotonic())
        self.engine.open()
        self.both = select.poll()
        self.both.register(self.socket, select.POLLIN | select.POLLOUT)
        self.received = 0
        self.until(lambda: self.engine.opened)

    def session(self) -> Session:
        """A further session."""
        return self.engine.begin()

    def until(self, done: Callable[[], bool]) -> None:
        """Move bytes until `done()`. Raises `TimeoutError` if nothing more happens."""
        while True:
            self.flush()
            if done():
                return
            self.read()

    def read(self) -> None:
        """Take in what has arrived, or what arrives. Raises `ConnectionError` at the end."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker hung up")
        self.engine.receive_data(data, time.monotonic())
        self.handle()

    def flush(self) -> None:
        """Write what is to be written; read meanwhile, so that nobody waits for the other."""
        data = memoryview(self.engine.data_to_send())
        while data:
            # Not select(): it knows no more than 1024 sockets.
            ready = self.both.poll(PATIENCE * 1000)
            if not ready:
                raise TimeoutError("the broker neither reads nor writes")
            for _, mask in ready:
                if mask & ~select.POLLOUT:
                    self.read()
                if mask & select.POLLOUT:
                    data = data[self.socket.send(data[: 1 << 16]) :]

    def handle(self) -> None:
        """Accept what has arrived."""
        for event in self.engine.take_events():
            if isinstance(event, DeliveryReceived):
                self.received += 1
                event.delivery.settle(Accepted())
                link = event.delivery.link
                if link.credit < CREDIT // 2:
                    link.set_credit(CREDIT)

    def sender(self, session: Session, address: str) -> SenderLink:
        """A link to `address`, not attached yet when this returns."""
        return session.attach_sender(f"to-{address}", target=Target(address=address))

    def receiver(self, session: Session, address: str) -> ReceiverLink:
        """A link from `address`, with credit."""
        link = session.attach_receiver(f"from-{address}", source=Source(address=address))
        self.until(lambda: link.usable)
        link.set_credit(CREDIT)
        return link

    def supplied(self, links: list[SenderLink]) -> None:
        """Wait until all of these links have credit."""
        self.until(lambda: all(link.credit > 0 for link in links))

    def detach(self, links: list[SenderLink]) -> None:
        """Detach these links, and wait until the broker has done so too."""
        for link in links:
            link.detach()
        self.until(lambda: all(link.remote_detached for link in links))

    def close(self) -> None:
        """Drop the connection."""
        self.socket.close()


def fill(server: Watched, address: str, message: bytes, count: int) -> None:
    """Put `count` messages into a queue, and see each accepted."""
    peer = Peer(server.port, "filler")
    link = peer.sender(peer.session(), address)
    sent = 0
    while sent < count:
        peer.until(lambda: link.credit > 0)
        for _ in range(min(link.credit, count - sent, 500)):
            link.send(message)
            sent += 1
    session = link.session
    peer.until(lambda: not session.outgoing.unsettled)
    peer.close()


def drain(server: Watched, address: str, count: int) -> None:
    """Take `count` messages out of a queue."""
    peer = Peer(server.port, "drainer")
    peer.receiver(peer.session(), address)
    peer.until(lambda: peer.received == count)
    peer.close()


def spaced(count: int) -> str:
    """A number with its thousands apart."""
    return f"{count:,}".replace(",", " ")


def long_queue(server: Watched, count: int) -> list[Figure]:
    """Fill a queue with `count` messages of 1 KiB and drain it, and do both once more."""
    case = f"{spaced(count)} messages of 1 KiB in a queue"
    fill(server, "long", MESSAGE, count)
    full = server.memory()
    drain(server, "long", count)
    peak = server.memory(PEAK)
    empty = server.memory()
    fill(server, "long", MESSAGE, count)
    again = server.memory()
    drain(server, "long", count)
    return [
        Figure(case, "ferrymq", MIB, [full / 2**20], 1600.0),
        Figure(f"{case}, most while it was filled and drained", "ferrymq", MIB,
               [peak / 2**20], 1600.0),
        Figure(f"{case}, after that", "ferrymq", MIB, [empty / 2**20]),
        Figure(f"{case}, filled once more", "ferrymq", MIB, [again / 2**20], 1600.0),
    ]  # fmt: skip


def small_messages(server: Watched, count: int) -> list[Figure]:
    """Fill a queue with `count` messages of 113 bytes in all."""
    before = server.memory()
    fill(server, "small", SMALL, count)
    full = server.memory()
    drain(server, "small", count)
    case = f"{spaced(count)} messages of {len(SMALL)} B in a queue"
    each = (full - before) / count - len(SMALL)
    return [
        Figure(case, "ferrymq", MIB, [full / 2**20]),
        Figure(f"{case}: each, beyond its own bytes", "ferrymq", BYTES, [each]),
    ]


def fan_out(server: Watched, count: int) -> list[Figure]:
    """Make `count` subscriptions of a topic, and publish a message to all of them."""
    watcher = Peer(server.port, "subscribers")
    before = server.memory()
    session = watcher.session()
    links: list[ReceiverLink] = []
    for number in range(count):
        if number % LINKS == 0:
            session = watcher.session()
        source = Source(address="fan", capabilities=["topic"])
        links.append(session.attach_receiver(f"fan-{number}", source=source))
        if number % LINKS == LINKS - 1 or number == count - 1:
            watcher.until(lambda: all(link.usable for link in links))
    for link in links:
        link.set_credit(1)
    occupied = server.memory() - before
    publisher = Peer(server.port, "publisher")
    to = publisher.sender(publisher.session(), "fan")
    publisher.until(lambda: to.credit > 0)
    began = time.monotonic()
    to.send(MESSAGE)
    publisher.flush()
    watcher.until(lambda: watcher.received == count)
    seconds = time.monotonic() - began
    publisher.close()
    watcher.close()
    case = f"a subscription with its link; a topic has {spaced(count)}"
    return [
        Figure(case, "ferrymq", KIB, [occupied / count / 1024]),
        Figure(f"{case}: a copy of a message, with the client's work", "ferrymq", "µs",
               [seconds / count * 1e6]),
    ]  # fmt: skip


def idle_connections(server: Watched, count: int) -> list[Figure]:
    """Hold `count` connections with a session and a link each, all to one queue."""
    first = Peer(server.port, "first")
    before = server.memory()
    peers: list[Peer] = []
    for number in range(count):
        peer = Peer(server.port, f"idle-{number}")
        link = peer.sender(peer.session(), "idle")
        peer.supplied([link])
        peers.append(peer)
    occupied = server.memory() - before
    for peer in [first, *peers]:
        peer.close()
    case = f"an idle connection with a link; there are {spaced(count)}"
    return [Figure(case, "ferrymq", KIB, [occupied / count / 1024], 40.0)]


def many_queues(server: Watched, count: int) -> list[Figure]:
    """Make `count` queues by attaching to them, and put a message into the last."""
    peer = Peer(server.port, "maker")
    before = server.memory()
    session = peer.session()
    began = time.monotonic()
    for first in range(0, count, LINKS):
        links = [
            peer.sender(session, f"queue-{number}")
            for number in range(first, min(first + LINKS, count))
        ]
        peer.supplied(links)
        peer.detach(links)
    seconds = time.monotonic() - began
    link = peer.sender(session, f"queue-{count - 1}")
    peer.until(lambda: link.credit > 0)
    delivery = link.send(MESSAGE)
    peer.until(lambda: delivery.remote_settled)
    occupied = server.memory() - before
    peer.close()
    case = f"an empty queue; there are {spaced(count)}"
    return [
        Figure(case, "ferrymq", KIB, [occupied / count / 1024]),
        Figure(f"{case}: attach to make it, and detach", "ferrymq", "µs", [seconds / count * 1e6]),
    ]


def allow_files() -> None:
    """Open as many sockets as the system lets this process open."""
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


Case = Callable[[Watched, int], list[Figure]]
CASES: Final[dict[str, tuple[Case, int]]] = {
    "long-queue": (long_queue, 1_000_000),
    "small-messages": (small_messages, 1_000_000),
    "fan-out": (fan_out, 10_000),
    "idle-connections": (idle_connections, 10_000),
    "many-queues": (many_queues, 50_000),
}


def measure(case: str, port: int, pid: int, shrink: int) -> Report:
    """One case, made `shrink` times smaller, against a broker that has done nothing yet."""
    allow_files()
    report = Report("memory", build=build())
    run, count = CASES[case]
    try:
        report.figures = run(Watched(port, pid), count // shrink)
    except OSError as error:
        report.failures.append(f"{case}: {error}")
    return report
