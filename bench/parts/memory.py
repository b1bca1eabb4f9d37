"""The memory of the broker's process: long queues, many subscriptions, connections and queues.

Each case has its own broker. Long queues are filled and drained, and every message is counted;
in the other cases everything stays open while the memory is read. Some brokers have a store, and
may keep at most `PAGE_OUT` bytes of messages in memory, or as many as by default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from bench.client import Peer, drain, fill
from bench.encoding import DURABLE_HEADER, data_section
from bench.machine import NOW, PEAK, build, memory_of, processor_seconds
from bench.metrics import metric
from bench.results import Figure, Report
from bench.rows import spaced
from ferrymq.engine.receiver import ReceiverLink
from ferrymq_types.messaging import Source

MIB: Final = "MiB"
KIB: Final = "KiB"
BYTES: Final = "B"
MICROSECONDS: Final = "µs"
SIZE: Final = 1024
# The limit of messages in memory for paged queues, and the allowed memory of the process.
PAGE_OUT: Final = 64 * 2**20
DEMAND_PAGED: Final = 600e6 / 2**20
# The allowed memory of a broker with default settings while a queue is long.
DEMAND_WAITING: Final = 216.0
# Seconds within which the first message must be paged out.
PAGING_PATIENCE: Final = 10.0
# Links per session: the number that brokers allow by default.
LINKS: Final = 1_000
# An encoded message: a data section of `SIZE` bytes.
MESSAGE: Final = data_section(bytes(SIZE))
# The same message with a header whose field durable is true (AMQP 1.0 §3.2.1).
DURABLE: Final = DURABLE_HEADER + MESSAGE
# A message of 113 bytes, 108 of them data.
SMALL: Final = data_section(bytes(108))


class Watched:
    """A broker's process: its port, and its memory in bytes."""

    def __init__(self, port: int, pid: int, monitoring: str = "") -> None:
        self.port = port
        self._pid = pid
        self._monitoring = monitoring

    def memory(self, which: str = NOW) -> int:
        """Return the current or the peak memory. Raises `OSError` if it is not reported."""
        found = memory_of(self._pid, which)
        if found is None:
            raise OSError("this system does not report the memory of a process")
        return found

    def seconds(self) -> float:
        """Return the processor time. Raises `OSError` if it is not reported."""
        return processor_seconds(self._pid)

    def paged_out(self) -> int:
        """Return the number of messages paged out. Raises `OSError` if it is not reported."""
        return int(metric(self._monitoring, "ferrymq_store_paged_out_total"))


def long_queue(server: Watched, count: int) -> list[Figure]:
    """Fill a queue with `count` messages of 1 KiB and drain it, twice."""
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
    """Fill a paged queue with `count` durable messages of 1 KiB, and drain it."""
    return _paged(server, count, "durable messages", DURABLE)


def paged(server: Watched, count: int) -> list[Figure]:
    """Fill a paged queue with `count` messages that are not durable, and drain it."""
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


def waiting(server: Watched, count: int) -> list[Figure]:
    """Fill a queue with `count` durable messages of 1 KiB, and drain it; the broker has a store and
    default settings."""
    case = f"{spaced(count)} durable messages of 1 KiB in a queue, default settings"
    begin = server.seconds()
    fill(server.port, "long", DURABLE, count)
    full = server.memory()
    filled = server.seconds()
    drain(server.port, "long", count)
    drained = server.seconds()
    return [
        Figure(case, "ferrymq", MIB, [full / 2**20], DEMAND_WAITING),
        Figure(f"{case}: a message in", "ferrymq", MICROSECONDS, [(filled - begin) / count * 1e6]),
        Figure(f"{case}: a message out", "ferrymq", MICROSECONDS,
               [(drained - filled) / count * 1e6]),
    ]  # fmt: skip


def _wait_for_paging(server: Watched) -> None:
    """Wait until the first message is paged out, which may take long with a short durable queue.

    Raises `OSError` if none is.
    """
    end = time.monotonic() + PAGING_PATIENCE
    while not server.paged_out():
        if time.monotonic() > end:
            raise OSError(
                "no message was paged out, so the queue cannot be measured as a paged one"
            )
        time.sleep(0.05)


def small_messages(server: Watched, count: int) -> list[Figure]:
    """Fill a queue with `count` messages of 113 bytes each."""
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
    """Make `count` subscriptions of a topic, and send a message to all of them."""
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
    """Hold `count` connections with one session and one link each, all to one queue."""
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
    """Make `count` queues by attaching to them, and send a message to the last."""
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
    """Raise this process's limit of open sockets to the system's maximum."""
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Case(NamedTuple):
    """A load whose memory is measured: the function that makes it and how many times, whether the
    broker has a store and pages its queues above `PAGE_OUT`, or has a store and default settings,
    and the limits to raise for its one client (0 is no limit)."""

    run: Callable[[Watched, int], list[Figure]]
    times: int
    paging: bool = False
    default: bool = False
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
    "waiting": Case(waiting, 500_000, default=True),
    "small-messages": Case(small_messages, 1_000_000),
    "fan-out": Case(fan_out, 10_000, limits={"links": 20_000}),
    "idle-connections": Case(idle_connections, 10_000, limits=ANY_CONNECTIONS),
    "many-queues": Case(many_queues, 50_000),
}


def measure(case: str, port: int, pid: int, monitoring: str, shrink: int) -> Report:
    """Measure one case, `shrink` times smaller, with a new broker."""
    allow_files()
    report = Report("memory", build=build())
    run, times = CASES[case][:2]
    try:
        report.figures = run(Watched(port, pid, monitoring), times // shrink)
    except OSError as error:
        report.failures.append(f"{case}: {error}")
    return report
