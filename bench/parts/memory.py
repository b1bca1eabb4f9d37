"""What the broker's process occupies: a long queue, many idle connections, many queues.

Each case has a broker of its own, so that none finds what another left. A long queue is filled and
drained, and every message is counted back; the other two are held while the memory is read.
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
SIZE: Final = 1024
CREDIT: Final = 5_000
# Links that one session carries here: what brokers allow without asking.
LINKS: Final = 1_000
PATIENCE: Final = 60.0
# An encoded message: a data section of `SIZE` bytes.
MESSAGE: Final = b"\x00\x53\x75\xb0" + SIZE.to_bytes(4, "big") + bytes(SIZE)


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
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the broker hung up")
            self.engine.receive_data(data, time.monotonic())
            self.handle()

    def flush(self) -> None:
        """Write what is to be written; read meanwhile, so that nobody waits for the other."""
        data = memoryview(self.engine.data_to_send())
        while data:
            readable, writable, _ = select.select([self.socket], [self.socket], [], PATIENCE)
            if readable:
                self.engine.receive_data(self.socket.recv(1 << 18), time.monotonic())
                self.handle()
            if writable:
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

    def close(self) -> None:
        """Drop the connection."""
        self.socket.close()


def long_queue(server: Watched, count: int) -> list[Figure]:
    """Fill a queue with `count` messages of 1 KiB and drain it again."""
    peer = Peer(server.port, "filler")
    link = peer.sender(peer.session(), "long")
    sent = 0
    while sent < count:
        peer.until(lambda: link.credit > 0)
        for _ in range(min(link.credit, count - sent, 500)):
            link.send(MESSAGE)
            sent += 1
    session = link.session
    peer.until(lambda: not session.outgoing.unsettled)
    full = server.memory()
    drained = Peer(server.port, "drainer")
    drained.receiver(drained.session(), "long")
    drained.until(lambda: drained.received == count)
    peer.close()
    drained.close()
    case = f"{count:,} messages of 1 KiB in a queue".replace(",", " ")
    return [
        Figure(case, "ferrymq", MIB, [full / 2**20], 1600.0),
        Figure(f"{case}, most while it was filled and drained", "ferrymq", MIB,
               [server.memory(PEAK) / 2**20], 1600.0),
    ]  # fmt: skip


def idle_connections(server: Watched, count: int) -> list[Figure]:
    """Hold `count` connections with a session and a link each, all to one queue."""
    first = Peer(server.port, "first")
    before = server.memory()
    peers: list[Peer] = []
    for number in range(count):
        peer = Peer(server.port, f"idle-{number}")
        link = peer.sender(peer.session(), "idle")
        peer.until(lambda link=link: link.credit > 0)  # type: ignore[misc]
        peers.append(peer)
    occupied = server.memory() - before
    for peer in [first, *peers]:
        peer.close()
    case = f"an idle connection with a link, of {count:,}".replace(",", " ")
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
        peer.until(lambda links=links: all(link.credit > 0 for link in links))  # type: ignore[misc]
        for link in links:
            link.detach()
        peer.until(
            lambda links=links: all(link.remote_detached for link in links)  # type: ignore[misc]
        )
    seconds = time.monotonic() - began
    link = peer.sender(session, f"queue-{count - 1}")
    peer.until(lambda: link.credit > 0)
    delivery = link.send(MESSAGE)
    peer.until(lambda: delivery.remote_settled)
    occupied = server.memory() - before
    peer.close()
    case = f"a queue, of {count:,}".replace(",", " ")
    return [
        Figure(case, "ferrymq", KIB, [occupied / count / 1024]),
        Figure(f"{case}: attach to make it, and detach", "ferrymq", "µs", [seconds / count * 1e6]),
    ]


Case = Callable[[Watched, int], list[Figure]]
CASES: Final[dict[str, tuple[Case, int]]] = {
    "long-queue": (long_queue, 1_000_000),
    "idle-connections": (idle_connections, 10_000),
    "many-queues": (many_queues, 50_000),
}


def measure(case: str, port: int, pid: int, shrink: int) -> Report:
    """One case, made `shrink` times smaller, against a broker that has done nothing yet."""
    report = Report("memory", build=build())
    run, count = CASES[case]
    try:
        report.figures = run(Watched(port, pid), count // shrink)
    except OSError as error:
        report.failures.append(f"{case}: {error}")
    return report
