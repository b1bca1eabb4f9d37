"""The machine and the versions with which a figure was measured, and what a process uses."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "librt",
    "mypy",
    "uvloop",
    "python-qpid-proton",
    "azure-eventhub",
    "pyspark",
    "pyarrow",
)

# Lines of a process's status file: resident memory now, and at its peak.
NOW: Final = "VmRSS:"
PEAK: Final = "VmHWM:"


def machine() -> dict[str, str]:
    """Return the machine, its system and its current load."""
    return {
        "processor": processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else
                     os.cpu_count()),
        "memory": memory(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load": load(),
    }  # fmt: skip


def processor() -> str:
    """Return the processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory() -> str:
    """Return the size of the machine's memory."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return "unknown"
    return f"{size / 2**30:.0f} GiB"


def load() -> str:
    """Return the load average of the last minute, which shows whether other processes were busy."""
    try:
        return f"{os.getloadavg()[0]:.2f}"
    except (AttributeError, OSError):
        return "unknown"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect a figure."""
    found = {"python": f"{platform.python_implementation()} {platform.python_version()}"}
    for name in ("ferrymq", *PACKAGES):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def variant(module: str) -> str:
    """Return how `module` runs in this process: `compiled` or `pure`."""
    file = importlib.import_module(module).__file__ or ""
    return "pure" if file.endswith(".py") else "compiled"


def memory_of(pid: int, which: str) -> int | None:
    """Return `NOW` or `PEAK` of a process, in bytes; None if the system does not report it."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(which):
            return int(line.split()[1]) * 1024
    return None


def build() -> dict[str, str]:
    """Return the variant of each package in this process, and the versions."""
    return {
        "codec": variant("ferrymq_codec.reader"),
        "types": variant("ferrymq_types.transport"),
        "engine": variant("ferrymq.engine.connection"),
        "loops": variant("bench.loops.transfer"),
        **versions(),
    }


def two_processors() -> tuple[int, int]:
    """Return two processors that this process may use; the same one twice if there is only one."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return usable[0], usable[-1]


@contextmanager
def apart(servers: Iterable[int]) -> Iterator[None]:
    """Keep the threads of these processes on one processor, and this process and its children on
    another."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    first, last = two_processors()
    pids = list(servers)
    usable = os.sched_getaffinity(0)
    for pid in pids:
        _keep(pid, {first})
    os.sched_setaffinity(0, {last})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)
        for pid in pids:
            _keep(pid, usable)


def _keep(pid: int, processors: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), processors)


def processor_seconds(pid: int) -> float:
    """Return the processor time in seconds of a process, by its clock in the kernel: that of
    /proc has steps of 10 ms."""
    # What clock_getcpuclockid(3) returns.
    return time.clock_gettime((~pid << 3) | 2)
