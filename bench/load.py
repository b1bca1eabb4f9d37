"""`python -m bench.load`: send numbered messages through a broker and receive them again.

One thread of one process runs a loop over the sockets of one connection for the sender and one for
each receiver, around the compiled ends in `bench.loops.load`. Every receiver must get every
message. The command prints one JSON object. Its exit status is 0 if every message arrived once,
complete and in order, else 1.

With `--rate` messages are sent at even intervals, whether earlier ones have arrived or not, and the
result has the times from when a message was due until it arrived. Between them the process sleeps.

With `--only send` the messages stay at the broker: status 0 says that each was accepted. With
`--only receive` and the same `--run` they are received from there, possibly much later.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from bench.loops.load import End, Plan, Receiver, Sender
from bench.parts.latency import percentile
from ferrymq_types.filters import SelectorFilter

READ_SIZE: Final = 1 << 18
# With more unwritten bytes than this, the sender waits for the transport.
HIGH_WATER: Final = 1 << 18
# The name of a selector among the filters of a source.
SELECTOR: Final = "apache.org:selector-filter:string"
# The percentiles of latencies in the result.
SHARES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
# The nanoseconds for which this process may sleep longer, of Linux.
SLACK: Final = Path("/proc/self/timerslack_ns")
# Seconds to wait for steps that are not measured.
LINGER: Final = 1.0


class Pipe:
    """A sender or receiver with its socket, which uses TLS if there is a context for it."""

    def __init__(self, end: End, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.end = end
        self.socket = socket.create_connection((host, port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.socket.setblocking(False)
        self.unwritten = b""
        self.eof = False

    def read(self) -> None:
        """Read and handle the bytes that have arrived."""
        try:
            data = self.socket.recv(READ_SIZE)
            if isinstance(self.socket, ssl.SSLSocket):
                # A call returns one record, and poll() does not report further buffered ones.
                while self.socket.pending():
                    data += self.socket.recv(READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            data = b""
        if data:
            self.end.receive(data)
        else:
            self.eof = True
            self.end.connection.receive_eof(time.monotonic())
            self.end.handle()

    def write(self) -> None:
        """Write as much output as the socket accepts."""
        data = self.end.take()
        if data:
            self.unwritten = self.unwritten + data if self.unwritten else data
        if self.unwritten:
            try:
                sent = self.socket.send(self.unwritten)
            except (BlockingIOError, ssl.SSLWantWriteError):
                return
            except OSError:
                self.unwritten = b""
                return
            self.unwritten = self.unwritten[sent:]


class Load:
    """A run of a plan against one broker, which ends when it is done or nothing happens any more.

    Without `receivers` messages are only sent, and with `sends` false only received. `rate` is in
    messages per second; 0 sends as many as plan and credit allow.
    """

    def __init__(
        self, plan: Plan, host: str, port: int, idle: float, *,
        receivers: int = 1, ordered: bool = True, sends: bool = True,
        tls: ssl.SSLContext | None = None, rate: int = 0,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.rate = rate
        # When the first message was due.
        self.started = 0.0
        self.idle = idle
        self.ordered = ordered
        self.poll = select.poll()
        # The receiver attaches first: it may be the one that creates the queue.
        self.receivers = [Receiver(plan, number) for number in range(receivers)]
        self.sender = Sender(plan) if sends else None
        ends: list[End] = [*self.receivers]
        if self.sender is not None:
            ends.append(self.sender)
        self.pipes = {
            pipe.socket.fileno(): pipe for pipe in (Pipe(end, host, port, tls) for end in ends)
        }
        for fd in self.pipes:
            self.poll.register(fd, select.POLLIN)

    def run(self) -> dict[str, Any]:
        """Run the plan and return the result."""
        cpu = time.process_time()
        receivers, sender = self.receivers, self.sender
        began = time.perf_counter()
        finished = self._until(
            lambda: (sender is None or sender.finished)
            and all(each.ended > 0 for each in receivers)
        )
        took = time.perf_counter() - began
        cpu = time.process_time() - cpu
        if finished:
            # Messages still at the broker would be duplicates. Not every broker answers a drain.
            for each in receivers:
                each.drain()
            self._until(lambda: all(each.drained for each in receivers), LINGER)
        for pipe in self.pipes.values():
            pipe.end.close()
        self._until(lambda: all(pipe.end.closed for pipe in self.pipes.values()), LINGER)
        for pipe in self.pipes.values():
            pipe.socket.close()
        return self._result(finished, took, cpu)

    def _until(self, done: Callable[[], bool], idle: float | None = None) -> bool:
        """Move bytes until `done()`; return false if nothing happens for the idle time."""
        patience = (self.idle if idle is None else idle) * 1000
        more = False
        last = time.monotonic()
        while True:
            for fd, pipe in self.pipes.items():
                if not pipe.eof:
                    pipe.write()
                    blocked = bool(pipe.unwritten)
                    self.poll.modify(fd, select.POLLIN | (select.POLLOUT if blocked else 0))
            if done():
                return True
            if self._broken():
                return False
            if more:
                ready = self.poll.poll(0)
            else:
                ready = self._sleep(patience / 1000) if self.rate else self.poll.poll(patience)
            if ready or more:
                last = time.monotonic()
            elif time.monotonic() - last >= patience / 1000:
                return False
            for fd, mask in ready:
                if mask & ~select.POLLOUT:
                    self.pipes[fd].read()
                    if self.pipes[fd].eof:
                        self.poll.unregister(fd)
            more = self._pump()

    def _sleep(self, patience: float) -> list[tuple[int, int]]:
        """Return what `poll` does, after so many seconds or when the next message is due."""
        sender = self.sender
        if sender is not None and self.started and sender.sent < self.plan.total:
            rest = self.started + sender.sent / self.rate - time.perf_counter()
            patience = max(0.0, min(patience, rest))
        # poll() waits for whole milliseconds.
        reading = [fd for fd, pipe in self.pipes.items() if not pipe.eof]
        writing = [fd for fd, pipe in self.pipes.items() if pipe.unwritten]
        readable, writable, _ = select.select(reading, writing, [], patience)
        return [(fd, select.POLLIN) for fd in readable] + [(fd, select.POLLOUT) for fd in writable]

    def _pump(self) -> bool:
        """Start the sender once all receivers are attached; return whether it has more."""
        sender = self.sender
        if sender is None or not all(each.attached for each in self.receivers):
            return False
        for pipe in self.pipes.values():
            if pipe.end is sender and len(pipe.unwritten) > HIGH_WATER:
                return False
        if self.receivers:
            sender.arrived = min(each.tally.received for each in self.receivers)
        else:
            # Arrivals are unknown: a message counts as in flight only until it is written.
            sender.arrived = sender.sent
        if self.rate:
            now = time.perf_counter()
            self.started = self.started or now
            sender.due = min(self.plan.total, 1 + int((now - self.started) * self.rate))
        if self.plan.in_flight == 1 and sender.arrived < sender.sent:
            # An outcome may come before the message has arrived.
            return False
        return sender.pump()

    def _broken(self) -> bool:
        return any(
            bool(pipe.end.failure) or (pipe.eof and not pipe.end.closed)
            for pipe in self.pipes.values()
        )

    def _result(self, finished: bool, took: float, cpu: float) -> dict[str, Any]:
        plan, sender = self.plan, self.sender
        tallies = [each.tally for each in self.receivers]
        count, seconds = plan.total, took
        if sender is not None and self.receivers:
            last = max(self.receivers, key=lambda each: each.ended)
            count, seconds = plan.count, last.ended - last.began
        refused = 0 if sender is None else sender.settled - sender.accepted
        errors = [pipe.end.failure for pipe in self.pipes.values() if pipe.end.failure]
        error = errors[-1] if errors else ""
        if not error and not finished:
            error = f"nothing happened for {self.idle:g} s"
        faults = {
            "lost": sum(tally.lost for tally in tallies),
            "duplicated": sum(tally.duplicated for tally in tallies),
            "reordered": sum(tally.reordered for tally in tallies) if self.ordered else 0,
            "damaged": sum(tally.damaged for tally in tallies),
            "foreign": sum(tally.foreign for tally in tallies),
            "refused": refused,
        }
        ok = finished and not error and not any(faults.values())
        return {
            "ok": ok,
            "error": error,
            "messages": plan.count,
            "warm_up": plan.warm_up,
            "size": plan.size,
            "in_flight": plan.in_flight,
            "credit": plan.credit,
            "settled": plan.settled,
            "drained": all(each.drained for each in self.receivers),
            "seconds": seconds if ok else None,
            "rate": count / seconds if ok else None,
            "client_cpu_seconds": cpu,
            "latency_us": self._latencies() if ok and self.rate else None,
            **faults,
        }

    def _latencies(self) -> dict[str, float]:
        """Return percentiles of the times in which measured messages have arrived, in µs."""
        times = [
            1e6 * (arrived - self.started - number / self.rate)
            for each in self.receivers
            for number, arrived in enumerate(each.times)
            if number >= self.plan.warm_up
        ]
        return {name: percentile(times, share) for name, share in SHARES.items()}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    made.add_argument("--url", default="amqp://127.0.0.1:5672", help="the broker")
    made.add_argument("--ca", metavar="FILE", help="CA certificates for an amqps URL")
    made.add_argument("--hostname", default="localhost", help="the virtual host")
    made.add_argument("--address", default="bench", help="the queue")
    made.add_argument("--source", default="", help="the address to receive from, if different")
    made.add_argument("--capability", default="", help="the capability receivers ask the node for")
    made.add_argument("--receivers", type=int, default=1, help="how many get every message")
    made.add_argument("--only", choices=("send", "receive"), help="only send, or only receive")
    made.add_argument("--run", type=int, help="the run's number in every message; default: random")
    made.add_argument("--selector", default="", help="a filter of the receivers")
    made.add_argument(
        "--head", action="append", default=[], type=bytes.fromhex, metavar="HEX",
        help="sections before the body; several are used in turn, one per message",
    )  # fmt: skip
    made.add_argument("--unordered", action="store_true", help="messages may come in any order")
    made.add_argument("--count", type=int, default=100_000, help="measured messages")
    made.add_argument("--warm-up", type=int, default=5_000, help="messages before measuring")
    made.add_argument("--size", type=int, default=100, help="bytes of body, 16 at least")
    made.add_argument("--in-flight", type=int, default=500, help="the most messages in flight")
    made.add_argument("--credit", type=int, default=500, help="the receiver's credit")
    made.add_argument("--rate", type=int, default=0, help="messages per second; default: no limit")
    made.add_argument("--settled", action="store_true", help="pre-settled both ways")
    made.add_argument("--idle", type=float, default=10.0, help="seconds of silence until giving up")
    return made


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parser().parse_args(argv)
    url = urlsplit(arguments.url)
    plan = Plan(
        address=arguments.address,
        count=arguments.count,
        warm_up=arguments.warm_up,
        size=arguments.size,
        in_flight=arguments.in_flight,
        credit=arguments.credit,
        settled=arguments.settled,
        source=arguments.source,
        heads=arguments.head,
        filter={SELECTOR: SelectorFilter(arguments.selector)} if arguments.selector else None,
        capability=arguments.capability,
        hostname=arguments.hostname,
        run=int.from_bytes(os.urandom(6), "big") if arguments.run is None else arguments.run,
        timed=arguments.rate > 0,
    )
    if arguments.rate:
        # A collection of garbage would count as latency of the broker, and so would the 50 µs for
        # which Linux may sleep longer than asked to.
        gc.disable()
        if SLACK.exists():
            SLACK.write_text("1")
    load = Load(
        plan,
        url.hostname or "127.0.0.1",
        url.port or 5672,
        arguments.idle,
        receivers=0 if arguments.only == "send" else arguments.receivers,
        sends=arguments.only != "receive",
        ordered=not arguments.unordered,
        tls=ssl.create_default_context(cafile=arguments.ca) if url.scheme == "amqps" else None,
        rate=arguments.rate,
    )
    result = load.run()
    json.dump(result, sys.stdout)
    print()
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
