"""The processes of a cluster that no test has started: executors, and Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started and that run."""
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(word) for task in tasks for word in task.read_text("ascii").split()]
    return []


def executors_of(worker: int) -> Iterator[int]:
    """Yield the executors (JVMs) of a worker."""
    for pid in children_of(worker):
        if "CoarseGrainedExecutorBackend" in _command_of(pid):
            yield pid


def python_workers_of(executor: int) -> Iterator[int]:
    """Yield the Python workers of an executor, which its Python daemon has forked."""
    for daemon in children_of(executor):
        if "pyspark.daemon" in _command_of(daemon):
            yield from children_of(daemon)


def _command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
