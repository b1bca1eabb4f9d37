"""What the broker's process occupies: long queues, many subscriptions, connections and queues.

Each case has a broker of its own, so that none finds what another left. Long queues are filled and
drained, and every message is counted back; everything else is held while the memory is read. Some
have a store, and may have no more than `PAGE_OUT` bytes of messages in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from bench.client import Peer, drain, fill
from bench.encoding import DURABLE_HEADER, data_section
from bench.machine import NOW, PEAK, build, memory_of
from bench.metrics import metric
from bench.results import Figure, Report
from bench.rows import spaced
from ferrymq.engine.receiver import ReceiverLink
from ferrymq_types.messaging import Source

MIB: Final = "MiB"
KIB: Final = "KiB"
BYTES: Final = "B"
SIZE: Final = 1024
# What may be in memory of messages where queues are paged; and what the process may then occupy.
PAGE_OUT: Final = 64 * 2**20
DEMAND_PAGED: Final = 600e6 / 2**20
# Seconds until the first has to be paged out.
PAGING_PATIENCE: Final = 10.0
# Links that one session carries here: what brokers allow without asking.
LINKS: Final = 1_000
# An encoded message: a data section of `SIZE` bytes.
MESSAGE: Final = data_section(bytes(SIZE))
# The same with a header that says durable (AMQP 1.0 §3.2.1).
DURABLE: Final = DURABLE_HEADER + MESSAGE
# One of 113 bytes, 108 of them data.
SMALL: Final = data_section(bytes(108))


class Watched:
    """A broker's process: its port, and the memory it occupies, in bytes."""

    def __init__(self, port: int, pid: int, monitoring: str = "") -> None:
        self.port = port
        self._pid = pid
        self._monitoring = monitoring

    def memory(self, which: str = NOW) -> int:
        """Now, or at its peak. Raises `OSError` where the system does not tell."""
        found = memory_of(self._pid, which)
        if found is None:
            raise OSError("this system does not tell what a process occupies")
        return found

    def paged_out(self) -> int:
        """How many messages have left memory for the disk. Raises `OSError` if it does not say."""
        return int(metric(self._monitoring, "ferrymq_store_paged_out_total"))


def long_queue(server: Watched, count: int) -> list[Figure]:
    """Fill a queue with `count` messages of 1 KiB and drain it, and do both once more."""
    case = f"{spaced(count)} messages of 1 KiB in a queue"
    fill(server.port, "long", MESSAGE, count)
    full = server.memory()
    drain(server.port, "long", count)
    peak = server.memory(PEAK)
    empty = server.memory()
    fill(server.port, "long", MESSAGE, count)
    again = server.memory()
    drain(server.port, "long", count)
    return [
        Figure(case, "ferrymq", MIB, [full / 2**20], 1600.0),
        Figure(f"{case}, most while it was filled and drained", "ferrymq", MIB,
               [peak / 2**20], 1600.0),
        Figure(f"{case}, after that", "ferrymq", MIB, [empty / 2**20]),
        Figure(f"{case}, filled once more", "ferrymq", MIB, [again / 2**20], 1600.0),
    ]  # fmt: skip


def paged_durable(server: Watched, count: int) -> list[Figure]:
    """Fill a queue that is paged with `count` durable messages of 1 KiB, and drain it."""
    return _paged(server, count, "durable messages", DURABLE)


def paged(server: Watched, count: int) -> list[Figure]:
    """The same with messages that are not durable, and on disk only because they are paged."""
    return _paged(server, count, "messages", MESSAGE)


def _paged(server: Watched, count: int, kind: str, message: bytes) -> list[Figure]:
    case = f"{spaced(count)} {kind} of 1 KiB in a paged queue"
    fill(server.port, "long", message, count)
    full = server.memory()
    _wait_for_paging(server)
    drain(server.port, "long", count)
    empty = server.memory()
    peak = server.memory(PEAK)
    return [
        Figure(case, "ferrymq", MIB, [full / 2**20], DEMAND_PAGED),
        Figure(f"{case}, most while it was filled and drained", "ferrymq", MIB, [peak / 2**20]),
        Figure(f"{case}, drained", "ferrymq", MIB, [empty / 2**20]),
    ]


def _wait_for_paging(server: Watched) -> None:
    """Until the first message has left memory, which a short queue of durable ones may take its
    time for. Raises `OSError` if none does."""
    end = time.monotonic() + PAGING_PATIENCE
    while not server.paged_out():
        if time.monotonic() > end:
            raise OSError("no message has left memory: this would be the figure of another thing")
        time.sleep(0.05)


def small_messages(server: Watched, count: int) -> list[Figure]:
    """Fill a queue with `count` messages of 113 bytes in all."""
    before = server.memory()
    fill(server.port, "small", SMALL, count)
    full = server.memory()
    drain(server.port, "small", count)
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


class Case(NamedTuple):
    """What is done to a broker, how many times, whether the broker pages its queues, and which of
    its limits allow that from one client, 0 being none."""

    run: Callable[[Watched, int], list[Figure]]
    times: int
    paging: bool = False
    limits: Mapping[str, int] = {}


ANY_CONNECTIONS: Final = {
    "connections": 0,
    "connections-per-address": 0,
    "connections-per-user": 0,
}

CASES: Final = {
    "long-queue": Case(long_queue, 1_000_000),
    "paged-durable": Case(paged_durable, 1_000_000, paging=True),
    "paged": Case(paged, 1_000_000, paging=True),
    "small-messages": Case(small_messages, 1_000_000),
    "fan-out": Case(fan_out, 10_000, limits={"links": 20_000}),
    "idle-connections": Case(idle_connections, 10_000, limits=ANY_CONNECTIONS),
    "many-queues": Case(many_queues, 50_000),
}


def measure(case: str, port: int, pid: int, monitoring: str, shrink: int) -> Report:
    """Measure one case, made `shrink` times smaller, with a broker that has done nothing yet."""
    allow_files()
    report = Report("memory", build=build())
    run, times = CASES[case][:2]
    try:
        report.figures = run(Watched(port, pid, monitoring), times // shrink)
    except OSError as error:
        report.failures.append(f"{case}: {error}")
    return report
