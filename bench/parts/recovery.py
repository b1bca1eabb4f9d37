"""Recovery: a broker with a long queue is killed, and started again with the same store.

Numbered durable messages are put into a queue without consumers. When all are accepted, the broker
gets SIGKILL. The next broker is timed from the start of its process until it reports that it is
ready. Then the queue is drained: every message must be there once, complete and in order, or there
is no figure. The files are still in the system's cache, as after any crash except one of the system
itself.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from bench.machine import NOW, memory_of
from bench.parts.broker import OURS, LoadFailed, run_load
from bench.parts.durable import DURABLE, IN_FLIGHT, SIZE
from bench.process import Server, durable_broker
from bench.results import Figure, Report
from bench.rows import spaced
from bench.tree import Trees

COUNT: Final = 1_000_000
# Seconds from the start of the process until it is ready.
DEMAND: Final = 10.0
SECONDS: Final = "s"
MIB: Final = "MiB"
# Seconds without any progress until a load gives up.
IDLE: Final = 10.0


def recover(trees: Trees, folder: Path, count: int) -> Report:
    """Measure recovery of `count` messages, in a temporary folder within `folder`; the report
    includes failures. With fewer messages than `COUNT` nothing is demanded."""
    case = f"ready again after SIGKILL, {spaced(count)} messages of {SIZE // 1024} KiB"
    report = Report("durable")
    try:
        with tempfile.TemporaryDirectory(dir=folder) as data:
            report.figures = _killed(trees, Path(data), case, count)
    except (LoadFailed, OSError, RuntimeError) as error:
        report.failures.append(f"{case}: {error}")
    return report


def _killed(trees: Trees, data: Path, case: str, count: int) -> list[Figure]:
    run = int.from_bytes(os.urandom(6), "big")
    with durable_broker(trees, data, {}) as server:
        _load(trees, server, "send", run, count)
        server.kill()
    with durable_broker(trees, data, {}) as server:
        used = server.cpu_seconds()
        occupied = memory_of(server.pid, NOW)
        _load(trees, server, "receive", run, count)
        demand = DEMAND if count >= COUNT else None
        figures = [Figure(case, OURS, SECONDS, [server.seconds_to_ready], demand)]
    if used is not None:
        figures.append(Figure(case, f"{OURS}, broker's processor time", SECONDS, [used]))
    if occupied is not None:
        figures.append(Figure(case, f"{OURS}, what it occupies then", MIB, [occupied / 2**20]))
    return figures


def _load(trees: Trees, server: Server, only: str, run: int, count: int) -> None:
    arguments = [
        f"--url=amqp://127.0.0.1:{server.port}",
        "--address=bench-recovery",
        f"--only={only}",
        f"--run={run}",
        f"--count={count}",
        "--warm-up=0",
        f"--size={SIZE}",
        f"--in-flight={IN_FLIGHT}",
        f"--credit={IN_FLIGHT}",
        f"--head={DURABLE}",
        f"--idle={IDLE}",
    ]
    run_load(trees, arguments)
