"""Durable messages: the rate, and the time of a single message, compared with the bare disk.

The disk is measured in the same round and with the same batches: bytes are appended to a file and
synced with `fdatasync`, with as many messages at a time as the broker's average batch. A single
message is sent and answered, and it is compared with as many bytes sent to a process that only
appends, syncs and answers.

Disks of virtual machines often sync in almost no time. So everything is measured again on *a disk
that syncs in 1 ms*: a library loaded before the C library delays every call that waits for the disk
by that time, for the broker and for the bare disk alike.

`bench.parts.recovery` measures how long a killed broker needs until it is ready again.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.metrics import metric
from bench.parts.broker import EXTERNAL, MESSAGES, OURS, LoadFailed, run_load
from bench.parts.latency import US, percentile
from bench.process import Server, durable_broker
from bench.results import Figure, Report
from bench.tree import Trees, command, environment

SIZE: Final = 1024
IN_FLIGHT: Final = 1000
DISK: Final = "append + fdatasync"
SYNCED: Final = "append + fdatasync between a TCP read and an answer"
AT_LEAST: Final = 0.4
# The allowed time of a single message, as a multiple of that of the process that only syncs.
AT_MOST: Final = {"p50": 1.25, "p99": 3.0}
SHARES: Final = {"p50": 0.50, "p99": 0.99}
SLOW_US: Final = 1000
DEMAND: Final = 60_000
# A header with only the field durable (AMQP 1.0 §3.2.1).
DURABLE: Final = "005370c0020141"
PROBE: Final = 2_000
# Seconds without any progress until a load gives up.
IDLE: Final = 10.0


class Disk(NamedTuple):
    """A disk, and the environment that sets its speed."""

    name: str
    preload: dict[str, str]
    slow: bool


def disks(folder: Path) -> tuple[list[Disk], str]:
    """Return this disk and, if a library can be built, one that syncs in 1 ms; also the reason if
    not."""
    found = [Disk("this disk", {}, False)]
    source = Path(__file__).parents[1] / "peers" / "slow_disk.c"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return found, "no C compiler: there is no disk that syncs in 1 ms"
    library = folder / "slow_disk.so"
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode:
        reason = built.stderr.strip() or f"{compiler} ended with status {built.returncode}"
        return found, f"no disk that syncs in 1 ms: {reason.splitlines()[-1]}"
    preload = {"LD_PRELOAD": str(library), "SLOW_DISK_US": str(SLOW_US)}
    return [*found, Disk("a disk that syncs in 1 ms", preload, True)], ""


class DurableBench:
    """The whole part. `tool` is an external load tool to use besides our own client."""

    def __init__(
        self,
        trees: Trees,
        folder: Path,
        *,
        rounds: int,
        seconds: float,
        pings: int,
        tool: str | None,
    ) -> None:
        self.trees = trees
        self.folder = folder
        self.rounds = rounds
        self.seconds = seconds
        self.pings = pings
        self.tool = tool
        options: dict[str, Any] = {"rounds": rounds, "bytes": SIZE, "in_flight": IN_FLIGHT}
        self.report = Report("durable", options=options)

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        found, why_not = disks(self.folder)
        if why_not:
            self.report.notes.append(why_not)
        for disk in found:
            with (
                tempfile.TemporaryDirectory(dir=self.folder) as data,
                durable_broker(self.trees, Path(data), disk.preload) as server,
            ):
                self._attempt(disk, server, self._through)
                self._attempt(disk, server, self._alone)
        return self.report

    def _attempt(self, disk: Disk, server: Server, measure: Callable[[Disk, Server], None]) -> None:
        try:
            measure(disk, server)
        except (LoadFailed, OSError) as error:
            self.report.failures.append(f"{disk.name}: {error}")

    # -- many ------------------------------------------------------------------------------

    def _through(self, disk: Disk, server: Server) -> None:
        contenders = [OURS] if self.tool is None else [OURS, EXTERNAL]
        batches: dict[str, list[float]] = {}
        for contender in contenders:
            rate = self._load(contender, server, PROBE, PROBE // 10)
            count = max(PROBE, int(rate * self.seconds))
            warm_up = max(PROBE // 10, count // 20)
            case = f"{disk.name}, {SIZE // 1024} KiB, {contender}"
            rates: list[float] = []
            bare: list[float] = []
            for _ in range(self.rounds):
                before = batches_of(server)
                rates.append(self._load(contender, server, count, warm_up))
                # The bare disk gets batches of the same size, including those with only outcomes.
                batch = max(1.0, (count + warm_up) / max(1, batches_of(server) - before))
                batches.setdefault(case, []).append(batch)
                bare.append(self._append(disk, max(1, round(batch))))
            demand = float(DEMAND) if disk.slow else None
            self.report.figures.append(Figure(case, OURS, MESSAGES, rates, demand))
            self.report.figures.append(Figure(case, DISK, MESSAGES, bare))
            self.report.compare(case, OURS, DISK, at_least=AT_LEAST, unit=MESSAGES)
        for case, sizes in batches.items():
            self.report.notes.append(
                f"{case}: {statistics.median(sizes):.0f} messages in a batch on average"
            )

    def _load(self, contender: str, server: Server, count: int, warm_up: int) -> float:
        if contender == EXTERNAL:
            return self._load_external(server, count, warm_up)
        arguments = [
            f"--url=amqp://127.0.0.1:{server.port}",
            "--address=bench-durable",
            f"--count={count}",
            f"--warm-up={warm_up}",
            f"--size={SIZE}",
            f"--in-flight={IN_FLIGHT}",
            f"--credit={IN_FLIGHT}",
            f"--head={DURABLE}",
            f"--idle={IDLE}",
        ]
        rate: float = run_load(self.trees, arguments)["rate"]
        return rate

    def _load_external(self, server: Server, count: int, warm_up: int) -> float:
        assert self.tool is not None
        arguments = [self.tool, "both", "-p", str(server.port), "-a", "bench-durable"]
        arguments += ["-n", str(count), "-w", str(warm_up), "-s", str(SIZE), "--durable"]
        arguments += ["-i", str(IN_FLIGHT), "-c", str(IN_FLIGHT)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        try:
            result = json.loads(done.stdout)
        except json.JSONDecodeError:
            reason = done.stderr.strip() or f"exit status {done.returncode}"
            raise LoadFailed(f"{self.tool}: {reason}") from None
        if not result["ok"]:
            raise LoadFailed(f"{self.tool}: {result['error']}")
        rate: float = result["through_msgs_s"]
        return rate

    def _append(self, disk: Disk, batch: int) -> float:
        """Return the messages per second that the bare disk takes in such batches."""
        seconds = self._bare(disk, "append", batch * SIZE, 0)[0]
        return batch / seconds

    def _bare(self, disk: Disk, what: str, size: int, count: int) -> list[float]:
        done = subprocess.run(
            command("bench.peers.bare_disk", what, str(self.folder), str(size), str(count)),
            env={**environment(self.trees.loops), **disk.preload},
            capture_output=True,
            text=True,
            check=True,
        )
        found: list[float] = json.loads(done.stdout)
        return found

    # -- one -------------------------------------------------------------------------------

    def _alone(self, disk: Disk, server: Server) -> None:
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(self.rounds):
            ours = self._sends(server)
            bare = [1e6 * each for each in self._bare(disk, "answered", SIZE, self.pings)]
            for contender, times in ((OURS, ours), (SYNCED, bare)):
                for name, share in SHARES.items():
                    found.setdefault((name, contender), []).append(percentile(times, share))
        for name in SHARES:
            case = f"{disk.name}, one alone until it is answered, {name}"
            for contender in (OURS, SYNCED):
                self.report.figures.append(Figure(case, contender, US, found[name, contender]))
            self.report.compare(case, OURS, SYNCED, at_most=AT_MOST[name], unit=US)

    def _sends(self, server: Server) -> list[float]:
        done = subprocess.run(
            command(
                "bench.peers.one_by_one", str(server.port), str(SIZE), str(self.pings), DURABLE
            ),
            env=environment(self.trees.loops),
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            found: list[float] = json.loads(done.stdout)
        except json.JSONDecodeError:
            raise LoadFailed(done.stderr.strip() or f"exit status {done.returncode}") from None
        return found


def batches_of(server: Server) -> int:
    """Return how many batches the broker has written. Raises `OSError` if it does not report it."""
    return int(metric(server.monitoring, "ferrymq_store_batches_total"))
