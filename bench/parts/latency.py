"""The latency of one message in flight through the broker, compared with a TCP echo.

A ping is timed from just before the client writes one transfer frame until it has read a complete
transfer frame. Client and blocking sockets are the same for both; the echo gets the bytes of such a
frame. The broker's client sends on one connection and receives on another. Outcomes, settlements
and credit are exchanged between pings, outside the timed interval.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import time
from typing import Final, Protocol

from bench.loops.load import End, Plan, Receiver, Sender
from bench.machine import build
from bench.results import Figure, Report
from ferrymq_types import descriptors

SIZE: Final = 100
WARM_UP: Final = 50
US: Final = "µs"
ECHO: Final = "TCP echo"
OURS: Final = "ferrymq"


class Pinged(Protocol):
    """A target that sends a frame back."""

    name: str

    def before(self) -> bytes:
        """Return the next frame; no other frame is in flight when this returns."""

    def after(self, received: bytes) -> None:
        """Handle the frame that came back."""

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """Return the socket for writing and the socket for reading."""

    def close(self) -> None:
        """Close the connections."""


def connect(port: int) -> socket.socket:
    """Open a blocking connection to a server on this machine."""
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class EchoTarget:
    """The echo, which gets a broker's frame."""

    def __init__(self, port: int, frame: bytes) -> None:
        self.name = ECHO
        self.frame = frame
        self.socket = connect(port)

    def before(self) -> bytes:
        """Return the frame."""
        return self.frame

    def after(self, received: bytes) -> None:
        """Check that the frame is unchanged.

        Raises:
            RuntimeError: it was changed.
        """
        if received != self.frame:
            raise RuntimeError("the echo changed the frame")

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """Return the one socket twice."""
        return self.socket, self.socket

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class BrokerTarget:
    """A broker with a sender and a receiver attached to one queue."""

    def __init__(self, name: str, port: int, *, count: int, settled: bool) -> None:
        self.name = name
        plan = Plan(
            address=f"bench-latency-{os.getpid()}-{settled}",
            count=count,
            warm_up=0,
            size=SIZE,
            in_flight=1,
            credit=500,
            settled=settled,
            run=int.from_bytes(os.urandom(6), "big"),
        )
        self.plan = plan
        self.receiver, self.receiving = Receiver(plan), connect(port)
        self.sender, self.sending = Sender(plan), connect(port)
        while not self.receiver.attached:
            self._exchange(self.receiver, self.receiving)
        # The broker must get the receiver's credit.
        self.receiving.sendall(self.receiver.take())
        while not self.sender.attached or self._credit() == 0:
            self._exchange(self.sender, self.sending)

    def _credit(self) -> int:
        return 0 if self.sender.link is None else self.sender.link.credit

    def _exchange(self, end: End, pipe: socket.socket) -> None:
        """Write all output and wait for an answer."""
        pipe.sendall(end.take())
        data = pipe.recv(65536)
        if not data:
            raise RuntimeError(f"{self.name} closed the connection: {end.failure}")
        end.receive(data)
        if end.failure:
            raise RuntimeError(f"{self.name}: {end.failure}")

    def before(self) -> bytes:
        """Return the next transfer, once the last one is settled and there is credit."""
        while self.sender.settled < self.sender.sent or self._credit() == 0:
            self._exchange(self.sender, self.sending)
        # A flow may have arrived; it must not be read within the timed interval.
        while select.select([self.sending], [], [], 0)[0]:
            self._exchange(self.sender, self.sending)
        self.sending.sendall(self.sender.take())
        assert self.sender.link is not None
        self.sender.send_one(self.sender.link)
        return self.sender.take()

    def after(self, received: bytes) -> None:
        """Check and settle the message."""
        self.receiver.receive(received)
        self.receiving.sendall(self.receiver.take())

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """Return the sender's and the receiver's socket."""
        return self.sending, self.receiving

    def close(self) -> None:
        """Close both connections, and check that every message came once, in order.

        Raises:
            RuntimeError: it did not.
        """
        for end, pipe in ((self.sender, self.sending), (self.receiver, self.receiving)):
            end.close()
            pipe.sendall(end.take())
            pipe.close()
        tally = self.receiver.tally
        if tally.received != self.sender.sent or tally.reordered or tally.duplicated:
            raise RuntimeError(f"{self.name}: {tally.received} of {self.sender.sent} arrived")


def read_transfer(source: socket.socket) -> bytes:
    """Read until a complete transfer frame has arrived; return all bytes read."""
    data = source.recv(65536)
    while not _has_transfer(data):
        more = source.recv(65536)
        if not more:
            raise RuntimeError("the server closed the connection")
        data += more
    return data


def _has_transfer(data: bytes) -> bool:
    pos = 0
    while len(data) - pos >= 11:
        size = int.from_bytes(data[pos : pos + 4], "big")
        if len(data) - pos < size:
            return False
        if data[pos + 10] == descriptors.TRANSFER:
            return True
        pos += size
    return False


def pings(target: Pinged, count: int, pause: float) -> list[float]:
    """Return `count` round-trip times in µs, each after a pause of `pause` seconds."""
    out, back = target.sockets()
    clock = time.perf_counter_ns
    found: list[float] = []
    gc.collect()
    gc.disable()
    for _ in range(count):
        frame = target.before()
        if pause:
            time.sleep(pause)
        began = clock()
        out.sendall(frame)
        data = read_transfer(back)
        found.append((clock() - began) / 1000)
        target.after(data)
    gc.enable()
    return found


def percentile(values: list[float], share: float) -> float:
    """Return the value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure(
    brokers: dict[str, int], echo_port: int, *, rounds: int, count: int, pauses: dict[str, float]
) -> Report:
    """Ping all brokers, given by name and port, and the echo in turn, pre-settled and unsettled."""
    report = Report("latency", options={"rounds": rounds, "pings": count, "bytes": SIZE})
    for settled in (True, False):
        for pause_name, pause in pauses.items():
            total = rounds * count + WARM_UP
            targets: list[Pinged] = [
                BrokerTarget(name, port, count=total + 1, settled=settled)
                for name, port in brokers.items()
            ]
            frame = targets[0].before()
            targets[0].sockets()[0].sendall(frame)
            targets[0].after(read_transfer(targets[0].sockets()[1]))
            targets.append(EchoTarget(echo_port, frame))
            case = f"{'pre-settled' if settled else 'unsettled'}, {pause_name}"
            _measure_case(report, case, targets, rounds, count, pause)
            for target in targets:
                target.close()
    report.build = build()
    return report


def _measure_case(
    report: Report, case: str, targets: list[Pinged], rounds: int, count: int, pause: float
) -> None:
    shares = {"p50": 0.50, "p99": 0.99}
    found: dict[tuple[str, str], list[float]] = {}
    for target in targets:
        pings(target, WARM_UP, 0.0)
    for round in range(rounds):
        shift = round % len(targets)
        for target in [*targets[shift:], *targets[:shift]]:
            times = pings(target, count, pause)
            for name, share in shares.items():
                found.setdefault((name, target.name), []).append(percentile(times, share))
    for name in shares:
        for target in targets:
            values = found[name, target.name]
            report.figures.append(Figure(f"{case}, {name}", target.name, US, values))
        for target in targets[:-1]:
            limit = 2.0 if name == "p50" and target.name == OURS else None
            report.compare(f"{case}, {name}", target.name, ECHO, at_most=limit, unit=US)
