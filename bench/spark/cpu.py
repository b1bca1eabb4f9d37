"""Processor time of processes and their children, which shows what is busy while Spark runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Times(NamedTuple):
    """Processor seconds so far: of the broker, of the Java process, of Spark's Python workers."""

    broker: float
    java: float
    python: float

    def since(self, before: Times) -> Times:
        """Return the time used between `before` and this."""
        return Times(*(now - then for now, then in zip(self, before, strict=True)))


class _Process(NamedTuple):
    parent: int
    # The time of the process itself, and that of its children that have ended.
    own: float
    children: float


def times_of(broker: int, java: int) -> Times:
    """Return the times of a broker, a Java process, and the Python processes below that.

    The time of a worker that has ended counts for its parent. Raises `OSError` if the system does
    not report times.
    """
    found = _processes()
    if broker not in found or java not in found:
        raise OSError(f"the system does not report the processor time of {broker} and {java}")
    below = _below(java, found)
    python = found[java].children + sum(found[pid].own + found[pid].children for pid in below)
    return Times(found[broker].own + found[broker].children, found[java].own, python)


def processes_below(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    return _below(pid, _processes())


def _below(pid: int, found: dict[int, _Process]) -> list[int]:
    below: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        own = [number for number, process in found.items() if process.parent == parent]
        below += own
        waiting += own
    return below


def _processes() -> dict[int, _Process]:
    tick = os.sysconf("SC_CLK_TCK")
    found: dict[int, _Process] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = Path(folder, "stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            # The process has ended meanwhile.
            continue
        used = [int(field) / tick for field in fields[11:15]]
        found[int(folder.name)] = _Process(int(fields[1]), sum(used[:2]), sum(used[2:]))
    return found
