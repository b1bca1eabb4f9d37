"""The processor time of starts: the commands, a program with the client, a broker for tests.

Each is a process of its own, and its processor time is user time and system time together. The
interpreter alone and `import asyncio` are measured in the same rounds, because no start can take
less than the one, and no client less than the other. A process before the rounds, which is not
counted, has the interpreter write its bytecode files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from bench.machine import processor_seconds
from bench.parts.broker import OURS
from bench.process import Server
from bench.results import Figure, Report
from bench.tree import Trees, command, environment

MS: Final = "ms"
PYTHON: Final = "Python alone"
CASE: Final = "processor time"
# A second start, as of the second test of a suite; it prints its own processor time in seconds.
LOCAL_BROKER: Final = """
import time
from ferrymq.testing import LocalBroker
with LocalBroker():
    pass
begun = time.process_time()
with LocalBroker(queues=["orders"]):
    print(time.process_time() - begun)
"""


def measure(trees: Trees, rounds: int) -> Report:
    """Measure the part `start`, in `rounds` rounds."""
    report = Report("start", options={"rounds": rounds})
    path = _environment(trees)
    measured: list[tuple[Figure, Callable[[], float]]] = [
        (Figure("the interpreter", PYTHON, MS, []), lambda: _whole(path, "-c", "pass")),
        (Figure("import asyncio", PYTHON, MS, []), lambda: _whole(path, "-c", "import asyncio")),
        (
            Figure("from ferrymq import connect, Message", OURS, MS, [], 80.0),
            lambda: _whole(path, "-c", "from ferrymq import connect, Message"),
        ),
        (
            Figure("ferrymq --version", OURS, MS, [], 120.0),
            lambda: _whole(path, "-m", "ferrymq_broker", "--version"),
        ),
        (
            Figure("ferrymq --help", OURS, MS, []),
            lambda: _whole(path, "-m", "ferrymq_broker", "--help"),
        ),
        (Figure("ferrymq serve, until it is ready", OURS, MS, [], 250.0), lambda: _serve(trees)),
        (
            Figure("LocalBroker(queues=[…]), the second of a process", OURS, MS, [], 100.0),
            lambda: _printed(path, LOCAL_BROKER),
        ),
    ]
    for _, take in measured:
        take()
    for _ in range(rounds):
        for figure, take in measured:
            figure.values.append(take() * 1000)
    report.figures = [figure for figure, _ in measured]
    report.build = {"ferrymq": trees.broker_variant()}
    return report


def _environment(trees: Trees) -> dict[str, str]:
    found = environment(trees.broker)
    # Without bytecode files each start would compile all modules again, which no user sees.
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def _whole(path: dict[str, str], *arguments: str) -> float:
    """Return the seconds of a process from its start to its end."""
    process = subprocess.Popen(
        [sys.executable, "-P", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=path,
    )
    assert process.stderr is not None
    with process.stderr:
        errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(errors.decode(errors="replace"))
    return used.ru_utime + used.ru_stime


def _serve(trees: Trees) -> float:
    """Return the seconds of a broker until it is ready."""
    server = Server(
        OURS,
        command("ferrymq_broker", "serve", "--memory", "--listen=amqp://127.0.0.1:0"),
        trees.broker,
    )
    server.environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with server:
        return processor_seconds(server.pid)


def _printed(path: dict[str, str], code: str) -> float:
    """Return the number that a program prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=path, capture_output=True, text=True, check=True
    )
    return float(done.stdout)
