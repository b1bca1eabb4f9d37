"""`python -m bench profile broker`: show where the broker spends its time under load.

perf native profile of the compiled broker; mypyc's C functions have the names of ours py-spy
flame graph with Python and native frames cprofile Python's own profiler, with the interpreted
broker
"""

from __future__ import annotations

import os
import pstats
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench.parts.broker import IN_MEMORY, Candidate, LoadFailed, run_client
from bench.process import Server, broker
from bench.tree import Trees, environment

TOOLS: Final = ("perf", "py-spy", "cprofile")
LINES: Final = 50


def profile_broker(tool: str, out: Path, *, seconds: float, case: int) -> int:
    """Load the broker for about `seconds`, write a profile to `out`, return the exit status."""
    if tool != "cprofile" and shutil.which(tool) is None:
        print(f"{tool} is not installed", file=sys.stderr)
        return 2
    trees = Trees(pure=tool == "cprofile")
    server = broker(trees)
    if tool == "cprofile":
        # `-m cProfile` must come before the module and its arguments.
        start = server.arguments.index("-m")
        server.arguments[start:start] = ["-m", "cProfile", "-o", str(out)]
    with server:
        watcher = _watch(tool, server, out)
        try:
            _load(trees, server, seconds, case)
        except LoadFailed as error:
            print(f"the load failed: {error}", file=sys.stderr)
            return 1
        finally:
            if watcher is not None:
                watcher.send_signal(signal.SIGINT)
                watcher.wait()
    _summary(tool, out)
    print(f"profile: {out}")
    return 0


def _watch(tool: str, server: Server, out: Path) -> subprocess.Popen[bytes] | None:
    pid = str(server.pid)
    if tool == "perf":
        arguments = ["perf", "record", "-q", "-g", "-F", "997", "-p", pid, "-o", str(out)]
    elif tool == "py-spy":
        arguments = ["py-spy", "record", "--native", "-r", "500", "-p", pid, "-o", str(out)]
    else:
        return None
    return subprocess.Popen(arguments)


def _load(trees: Trees, server: Server, seconds: float, case: int) -> None:
    to = Candidate("ferrymq", f"amqp://127.0.0.1:{server.port}", address=f"profile-{os.getpid()}")
    count = 5_000
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rate = run_client(trees, to, IN_MEMORY[case], count, 200)["rate"]
        count = max(5_000, int(min(seconds, max(0.5, end - time.monotonic())) * rate))


def _summary(tool: str, out: Path) -> None:
    """Print the top of the profile."""
    if tool == "perf":
        done = subprocess.run(
            ["perf", "report", "-i", str(out), "--stdio", "--no-children", "-g", "none",
             "--percent-limit", "0.5"],
            capture_output=True, text=True, check=False, env=environment([]),
        )  # fmt: skip
        rows = [line for line in done.stdout.splitlines() if line and not line.startswith("#")]
        print("\n".join(rows[:LINES]))
    elif tool == "cprofile":
        pstats.Stats(str(out)).sort_stats("tottime").print_stats(LINES // 2)
