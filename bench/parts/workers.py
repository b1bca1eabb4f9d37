"""Two workers beside one: what the processor time of the busiest worker allows.

Two virtual hosts have a producer and a consumer each, at the same time. With one worker it serves
both, with two each serves one. Clients and workers share the processors, so messages per second of
the clock would measure how many processors there are. What counts is the processor time of the
busiest worker: a broker is at its limit when a worker has used up its processor. `capacity` is the
number of messages of both hosts for each second of that time.

Two further cases say what it costs that any worker accepts: connections that are opened and closed
one after another, of which the wrong worker accepts some and passes them on; and messages inside
TLS that one worker relays to the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.encoding import DURABLE_HEADER
from bench.machine import processor_seconds, versions
from bench.parts.broker import IN_FLIGHT, OURS, PROBE, LoadFailed, run_load
from bench.process import Server, broker, durable_broker
from bench.results import Figure, Report
from bench.tree import Trees, command, environment, variant_on

HOSTS: Final = ("vhost:default", "vhost:tenant")
ONE: Final = f"{OURS}, one worker"
TWO: Final = f"{OURS}, two workers"
CAPACITY: Final = "messages/s of processor time"
TIME: Final = "µs/message"
LOGIN_TIME: Final = "µs/connection"
AT_LEAST: Final = 1.6
"""The capacity of two workers, in that of one."""
WARM_UP: Final = 500
# Seconds for the clients of a load to connect.
_PATIENCE: Final = 10.0
_CONFIG: Final = """
workers = {workers}
[tls]
certificate = "server.pem"
key = "server-key.pem"
[[virtual-host]]
name = "tenant"
worker = {worker}
"""


class Case(NamedTuple):
    """A load of both virtual hosts."""

    name: str
    size: int
    durable: bool = False


CASES: Final = (
    Case("100 B, unsettled, two virtual hosts", 100),
    Case("1 KiB, durable, unsettled, two virtual hosts", 1024, True),
)
CONNECTING: Final = "connecting, some are passed with two workers"
RELAYED: Final = "100 B, unsettled, inside TLS, relayed with two workers"


class WorkerBench:
    """The whole part. `folder` gets the configurations, the certificates and the stores."""

    def __init__(
        self, trees: Trees, folder: Path, *, rounds: int, seconds: float, connections: int
    ) -> None:
        self.trees = trees
        self.folder = folder
        self.rounds = rounds
        self.seconds = seconds
        self.connections = connections
        options = {"rounds": rounds, "seconds": seconds, "connections": connections}
        self.report = Report("workers", options=options)

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        subprocess.run(
            command("ferrymq_broker", "cert", "--out", str(self.folder), "--host", "127.0.0.1"),
            env=environment(self.trees.broker),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        for case in CASES:
            with self._pair(case.durable) as pair:
                count = partial(self._count, pair[0], case)
                self._take_turns(case.name, CAPACITY, pair, partial(self._capacity, case), count)
            self.report.compare(case.name, TWO, ONE, unit=CAPACITY, at_least=AT_LEAST)
        with self._pair(False) as pair:
            self._take_turns(CONNECTING, LOGIN_TIME, pair, self._connect, lambda: self.connections)
            count = partial(self._count, pair[0], CASES[0])
            self._take_turns(RELAYED, TIME, pair, self._load_inside_tls, count)
        for name, unit in ((CONNECTING, LOGIN_TIME), (RELAYED, TIME)):
            self.report.compare(name, TWO, ONE, unit=unit)
        return self.report

    @contextlib.contextmanager
    def _pair(self, durable: bool) -> Iterator[tuple[Server, Server]]:
        """Run a broker with one worker, and one with two."""
        with contextlib.ExitStack() as stack:
            pair = [stack.enter_context(self._broker(count, durable)) for count in (1, 2)]
            yield pair[0], pair[1]

    def _broker(self, workers: int, durable: bool) -> Server:
        config = self.folder / f"workers-{workers}.toml"
        config.write_text(_CONFIG.format(workers=workers, worker=workers - 1), "utf-8")
        if durable:
            return durable_broker(self.trees, self.folder / f"data-{workers}", {}, config)
        return broker(self.trees, config, ("amqp", "amqps"))

    def _take_turns(
        self,
        case: str,
        unit: str,
        pair: tuple[Server, Server],
        run: Callable[[Server, int], float],
        count: Callable[[], int],
    ) -> None:
        """Measure both brokers in each round, and add the figures."""
        values: dict[str, list[float]] = {ONE: [], TWO: []}
        servers = dict(zip(values, pair, strict=True))
        try:
            number = count()
            for at in range(self.rounds):
                for name in list(servers)[:: -1 if at % 2 else 1]:
                    values[name].append(run(servers[name], number))
        except (LoadFailed, OSError) as error:
            self.report.failures.append(f"{case}: {error}")
            return
        for name, found in values.items():
            self.report.figures.append(Figure(case, name, unit, found))

    # -- loads ---------------------------------------------------------------------------

    def _count(self, server: Server, case: Case) -> int:
        """Return the number of messages for the seconds of a run, by a trial run."""
        rate = run_load(self.trees, self._load(server, case, HOSTS[0], PROBE))["rate"]
        return max(PROBE, int(rate * self.seconds))

    def _load(
        self, server: Server, case: Case, hostname: str, count: int, scheme: str = "amqp"
    ) -> list[str]:
        arguments = [
            f"--url={scheme}://127.0.0.1:{server.ports[scheme]}",
            f"--hostname={hostname}",
            f"--count={count}",
            f"--warm-up={WARM_UP}",
            f"--size={case.size}",
            f"--in-flight={IN_FLIGHT}",
            f"--credit={IN_FLIGHT}",
            f"--ca={self.folder / 'ca.pem'}",
        ]
        return [*arguments, f"--head={DURABLE_HEADER.hex()}"] if case.durable else arguments

    def _capacity(self, case: Case, server: Server, count: int) -> float:
        """Return the messages of both hosts for a second of the busiest worker."""
        pids = workers_of(server.pid)
        before = [processor_seconds(pid) for pid in pids]
        loads = [self._start(self._load(server, case, host, count)) for host in HOSTS]
        try:
            for load in loads:
                _finish(load)
        finally:
            for load in loads:
                load.kill()
                load.wait()
        used = [processor_seconds(pid) - least for pid, least in zip(pids, before, strict=True)]
        return len(HOSTS) * (count + WARM_UP) / max(used)

    def _connect(self, server: Server, count: int) -> float:
        """Return the processor time of all workers for a connection to the second host."""
        pids = workers_of(server.pid)
        before = sum(map(processor_seconds, pids))
        done = subprocess.run(
            command("bench.logins", f"--url=amqp://127.0.0.1:{server.ports['amqp']}",
                    f"--hostname={HOSTS[1]}", f"--count={count}"),
            env=environment(self.trees.loops), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise LoadFailed(done.stderr.strip() or f"exit status {done.returncode}")
        return 1e6 * (sum(map(processor_seconds, pids)) - before) / count

    def _load_inside_tls(self, server: Server, count: int) -> float:
        """Return the processor time of all workers for a message of the second host, whose
        connections the first worker has accepted."""
        pids = workers_of(server.pid)
        before = sum(map(processor_seconds, pids))
        port = server.ports["amqps"]
        stopped = pids[1:]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            load = self._start(self._load(server, CASES[0], HOSTS[1], count, "amqps"))
            _wait_until_accepted(port, 2)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        try:
            _finish(load)
        finally:
            load.kill()
            load.wait()
        return 1e6 * (sum(map(processor_seconds, pids)) - before) / (count + WARM_UP)

    def _start(self, arguments: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command("bench.load", *arguments),
            env=environment(self.trees.loops),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def measure(trees: Trees, folder: Path, *, rounds: int, seconds: float, connections: int) -> Report:
    """Measure the part, with so many seconds for each broker in a round."""
    bench = WorkerBench(trees, folder, rounds=rounds, seconds=seconds, connections=connections)
    report = bench.measure()
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def workers_of(pid: int) -> list[int]:
    """Return the processes of the workers of a broker: those that it has started, or itself."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8")
    return [int(each) for each in text.split()] or [pid]


def _finish(load: subprocess.Popen[str]) -> None:
    """Wait for the end of a load. Raises `LoadFailed`."""
    output, errors = load.communicate()
    try:
        result: dict[str, Any] = json.loads(output)
    except json.JSONDecodeError:
        raise LoadFailed(errors.strip() or f"exit status {load.returncode}") from None
    if not result["ok"]:
        raise LoadFailed(result["error"] or "not every message arrived once and in order")


def _wait_until_accepted(port: int, count: int) -> None:
    """Wait until so many connections to a port have been accepted: they have an inode then."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        accepted = 0
        for line in Path("/proc/net/tcp").read_text("utf-8").splitlines()[1:]:
            fields = line.split()
            here = int(fields[1].rpartition(":")[2], 16)
            accepted += here == port and fields[3] == "01" and fields[9] != "0"
        if accepted >= count:
            return
        if time.monotonic() > deadline:
            raise LoadFailed("the broker accepts no connection")
        time.sleep(0.001)
