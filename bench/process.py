"""Server processes under test: start, port, resources, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final
from urllib.parse import urlsplit

from bench.machine import PEAK, memory_of
from bench.tree import Trees, command, environment

STOP_SECONDS: Final = 10.0
# The state of a socket in /proc/net/tcp.
_LISTENING: Final = "0A"


class Server:
    """A process that prints `listening URL` and then `ready`; it is a context manager.

    Its standard error is kept, and shown if it does not start.
    """

    def __init__(self, name: str, arguments: Sequence[str], path: list[str]) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.environment = environment(path)
        self.port = 0
        # The port of each scheme, if there are several.
        self.ports: dict[str, int] = {}
        # The URL of the monitoring endpoint; empty if there is none.
        self.monitoring = ""
        # Seconds from the start of the process until it was ready.
        self.seconds_to_ready = 0.0
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None

    def __enter__(self) -> Server:
        self._errors = tempfile.TemporaryFile()
        try:
            ready = self._start()
            errors = "" if ready else self.errors()
        except BaseException:
            self.stop()
            raise
        if not ready:
            self.stop()
            raise RuntimeError(f"{self.name} did not start:\n{errors}")
        return self

    def _start(self) -> bool:
        """Start the process and read its output; return whether it became ready."""
        began = time.perf_counter()
        self._process = subprocess.Popen(
            self.arguments,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self.environment,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, url = line.strip().partition(" ")
            if word == "listening":
                self.port = urlsplit(url).port or 0
                self.ports[urlsplit(url).scheme] = self.port
            elif word == "monitoring":
                self.monitoring = url
            elif word == "ready":
                self.seconds_to_ready = time.perf_counter() - began
                return True
        return False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def pin(self, cpu: int) -> None:
        """Keep the process on one processor, if the system supports it."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.pid, {cpu})

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int | None:
        """Stop the process as a service manager does; return its exit status, None if there is
        none."""
        process = self._process
        if process is None:
            self._forget_errors()
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._forget_errors()
        return process.returncode

    def _forget_errors(self) -> None:
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def errors(self) -> str:
        """Return the end of the process's standard error."""
        if self._errors is None:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4000))
        return self._errors.read().decode(errors="replace")

    def cpu_seconds(self) -> float | None:
        """Return the processor time in seconds; None if the system does not report it."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text("utf-8")
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_memory(self) -> int | None:
        """Return the peak memory in bytes; None if the system does not report it."""
        return memory_of(self.pid, PEAK)


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening_process(port: int) -> int:
    """Return the process that listens on a port of 127.0.0.1. Raises `RuntimeError` if none of
    those that this user can look into does."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text("utf-8").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                for descriptor in (process / "fd").iterdir():
                    if os.readlink(descriptor) in inodes:
                        return int(process.name)
    raise RuntimeError(f"no process listens on port {port}")


def broker(trees: Trees, config: Path | None = None, schemes: Sequence[str] = ("amqp",)) -> Server:
    """Return the broker, started as by a user, with a free port for each scheme."""
    arguments = ["serve", "--memory", "--log-level", "warning"]
    arguments += [f"--listen={scheme}://127.0.0.1:0" for scheme in schemes]
    if config is not None:
        arguments.append(f"--config={config}")
    return Server("ferrymq", command("ferrymq_broker", *arguments), trees.broker)


def durable_broker(
    trees: Trees, data: Path, preload: Mapping[str, str], config: Path | None = None
) -> Server:
    """Return the broker with a store, and with these environment variables."""
    arguments = ["serve", "--listen", "amqp://127.0.0.1:0", "--http", "http://127.0.0.1:0"]
    arguments += ["--data", str(data), "--log-level", "warning"]
    if config is not None:
        arguments.append(f"--config={config}")
    server = Server("ferrymq", command("ferrymq_broker", *arguments), trees.broker)
    server.environment.update(preload)
    return server


@contextlib.contextmanager
def roomy_broker(trees: Trees, folder: Path, limits: Mapping[str, int]) -> Iterator[Server]:
    """Run the broker without a store and with these limits. Its configuration is in a temporary
    folder within `folder`."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        config = Path(own, "limits.toml")
        lines = [f"{name} = {value}" for name, value in limits.items()]
        config.write_text("\n".join(["[limits]", *lines, ""]), "utf-8")
        with broker(trees, config) as server:
            yield server


@contextlib.contextmanager
def paging_broker(trees: Trees, folder: Path, page_out: int) -> Iterator[Server]:
    """Run the broker with a store and with queues paged out above `page_out` bytes of messages. Its
    files are in a temporary folder within `folder`."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        config = Path(own, "paging.toml")
        config.write_text(f"[store]\npage-out = {page_out}\n", "utf-8")
        with durable_broker(trees, Path(own, "data"), {}, config) as server:
            yield server


def echo(trees: Trees) -> Server:
    """Return the TCP echo, with which latency is compared."""
    return Server("echo", command("bench.peers.echo"), trees.loops)


def proton_broker(trees: Trees) -> Server:
    """Return a queue broker on Proton's Python binding."""
    return Server("Proton (Python)", command("bench.peers.proton_broker"), trees.loops)
