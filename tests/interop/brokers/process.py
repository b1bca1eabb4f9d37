"""Brokers that others wrote, as processes: started on loopback, awaited, ended with their children.

A `ForeignProcess` reads what its process prints, and is ready when a line says so. At its end,
everything that it has started must be gone. A `ForeignBroker` has such processes and a folder.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

# Seconds. Generous, for busy machines; nothing waits this long if all is well.
PATIENCE = 90.0
_LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
_LISTENING = "0A"


def free_ports(count: int) -> list[int]:
    """Return different ports of loopback that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [one.getsockname()[1] for one in sockets]


class ForeignProcess:
    """A process that is `ready` when it has printed a line that matches."""

    def __init__(self, ready: str) -> None:
        self._ready = re.compile(ready)
        self._process: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._seen = threading.Event()
        self._lines: list[str] = []
        self.match: re.Match[str] | None = None

    @property
    def log(self) -> str:
        """The output of the process so far, over all its starts."""
        return "".join(self._lines)

    @property
    def running(self) -> bool:
        """Whether it has been started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process, while it runs."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start it, and return when it is ready."""
        self._seen.clear()
        self.match = None
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
        # Ends the broker if this process is killed, and cannot do it any more.
        self._guard = subprocess.Popen(
            ["sh", "-c", f"read end || kill -9 {self._process.pid}"],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        self._seen.wait(PATIENCE)
        if self.match is None:
            self.kill()
            raise AssertionError(f"{command[0]} did not become ready\n{self.log[-8000:]}")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._lines.append(line)
                if self.match is None and (match := self._ready.search(line)):
                    self.match = match
                    self._seen.set()
        # The end of the process also ends the wait for it.
        self._seen.set()

    def kill(self) -> None:
        """End it without giving it a chance to say goodbye, and all that it has started."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, by SIGTERM, and wait until it and all that it has started are gone."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # Helpers of Erlang lead sessions of their own: who belongs to it shows only while it runs.
        family = family_of(process.pid)
        with suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            process.wait(PATIENCE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            _end_all(family)
            if self._guard is not None:
                self._guard.communicate("end\n")
            assert self._reader is not None
            self._reader.join(PATIENCE)


class ForeignBroker(ABC):
    """A broker with a folder of its own, in `parent`. The first of its processes is the broker."""

    port: int

    def __init__(self, prefix: str, *processes: ForeignProcess, parent: Path | None = None) -> None:
        self._processes = processes
        self._directory = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
        self._folder = Path(self._directory.name)

    @property
    def log(self) -> str:
        """The output of the broker so far."""
        return self._processes[0].log

    @property
    def pid(self) -> int:
        """The broker's process, while it runs."""
        return self._processes[0].pid

    @property
    def running(self) -> bool:
        """Whether the broker runs: some requests end it."""
        return self._processes[0].running

    @abstractmethod
    def start(self) -> None:
        """Start the broker, on the ports that it had before, and return when it is ready."""

    def open(self) -> None:
        """Start the broker; if that fails, close it."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def kill(self) -> None:
        """End the broker as a crash would; `start` starts it again with what it has stored."""
        self._processes[0].kill()

    def close(self) -> None:
        """End all processes and remove the folder."""
        with ExitStack() as stack:
            stack.callback(self._directory.cleanup)
            for process in reversed(self._processes):
                stack.callback(process.kill)

    def expect_loopback(self) -> None:
        """Raise AssertionError if a process listens for other machines."""
        for process in self._processes:
            beyond = listening_beyond_loopback(process.pid)
            assert not beyond, f"it listens for strangers: {beyond}"


def _end_all(family: dict[int, str]) -> None:
    """Wait until the processes of the family are gone; end those that stay for two seconds."""
    patient = time.monotonic() + 2
    deadline = time.monotonic() + PATIENCE
    while rest := [pid for pid, start in family.items() if _state(pid)[1:] == (start,)]:
        if time.monotonic() > patient:
            for pid in rest:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < deadline, f"these processes do not end: {rest}"
        time.sleep(0.01)


def _state(pid: int) -> tuple[int, str] | tuple[()]:
    """Return the parent of a process and when it started; nothing if it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return ()
    return () if fields[0] in ("Z", "X") else (int(fields[1]), fields[19])


def family_of(leader: int) -> dict[int, str]:
    """Return the process and all that descend from it, each with the time of its start."""
    states = {
        int(folder.name): state
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and (state := _state(int(folder.name)))
    }
    family = {leader: states[leader][1]} if leader in states else {}
    grown = True
    while grown:
        more = {
            pid: start
            for pid, (parent, start) in states.items()
            if parent in family and pid not in family
        }
        family |= more
        grown = bool(more)
    return family


def listening_beyond_loopback(leader: int) -> list[str]:
    """Return where a process and its descendants listen that strangers can reach, from /proc."""
    sockets: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for row in Path("/proc/net", table).read_text("utf-8").splitlines()[1:]:
                fields = row.split()
                if fields[3] == _LISTENING and fields[1].partition(":")[0] not in _LOOPBACK:
                    sockets[f"socket:[{fields[9]}]"] = fields[1]
    found = []
    for pid in family_of(leader):
        with suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if local := sockets.get(os.readlink(descriptor)):
                        found.append(local)
    return found
