"""Recovery: a broker is killed with a long queue, and started again on what it has left.

Numbered durable messages are put into a queue and nobody takes them. The moment all are accepted
the broker gets SIGKILL. What is timed is the next one, from the start of its process until it says
that it is ready. Then the queue is drained: every message has to be there, once, whole and in
order, or there is no figure. The system's cache still has the files, as after any crash but its
own.
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
# Seconds from the start of the process.
DEMAND: Final = 10.0
SECONDS: Final = "s"
MIB: Final = "MiB"
# Seconds in which nothing happens until a load gives up.
IDLE: Final = 10.0


def recover(trees: Trees, folder: Path, count: int) -> Report:
    """Do it with `count` messages, in a folder of its own inside `folder`; failures are part of the
    report. Fewer messages than `COUNT` prove nothing: nothing is demanded then."""
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
