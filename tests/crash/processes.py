"""Brokers as processes: started, traced, killed, and what they said."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

# A broker that is not ready after so many seconds has failed.
START: Final = 60.0


class NotReady(Exception):
    """The broker did not come up. The text is what it said."""


class Starter:
    """Forks brokers; see `starter`. To be used from one event loop, one request at a time.

    `environment` is for what a process has to know when it begins, such as libraries to load.
    """

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.starter", str(other.fileno())],
                cwd=ROOT,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | (environment or {}),
            )
        if self._control.recv(64) != b"loaded":
            self._process.wait()
            raise NotReady("the broker's modules cannot be loaded")

    def start(
        self,
        arguments: list[str],
        log: Path,
        environment: dict[str, str] | None = None,
        strace: list[str] | None = None,
    ) -> Life:
        """Start `ferrymq` with these arguments; what it writes to its standard error goes to the
        log. With arguments for strace, these see it from its first call on."""
        output, write_output = os.pipe()
        files = [write_output, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)]
        gate = None
        if strace is not None:
            read_gate, gate = os.pipe()
            files.append(read_gate)
        request = {"arguments": arguments, "environment": environment or {}}
        began = time.monotonic()
        socket.send_fds(self._control, [json.dumps(request).encode()], files)
        pid = json.loads(self._control.recv(64))
        for file in files:
            os.close(file)
        life = Life(self, pid, output, log, began)
        if strace is not None and gate is not None:
            try:
                life.trace(strace)
            finally:
                os.close(gate)
        return life

    def reap(self, pid: int) -> int:
        """The exit status of a broker that has ended; the negative number of a signal."""
        self._control.send(json.dumps({"reap": pid}).encode())
        status: int = json.loads(self._control.recv(64))
        return status

    def close(self) -> None:
        """End it, and every broker that still runs."""
        self._control.close()
        self._process.wait()


class Life:
    """One life of a broker: the process from its start to its end.

    `port` is where it listens once it is `ready`; `status` how it has ended, None while it runs.
    """

    def __init__(self, starter: Starter, pid: int, output: int, log: Path, began: float) -> None:
        self.pid = pid
        self.log = log
        self.port = 0
        self.status: int | None = None
        self.began = began
        # Seconds from the start to `ready`.
        self.start_time = 0.0
        # Where in the log this life begins.
        self._log_start = log.stat().st_size
        self._starter = starter
        self._pidfd = os.pidfd_open(pid)
        self._output = output
        self._strace: subprocess.Popen[bytes] | None = None
        self._over: asyncio.Future[int] | None = None

    def trace(self, arguments: list[str]) -> None:
        """Have strace see and change its calls."""
        command = ["strace", "-f", "-p", str(self.pid), *arguments]
        self._strace = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True
        )
        assert self._strace.stderr is not None
        line = self._strace.stderr.readline()
        if b"attached" not in line:
            raise NotReady(f"strace: {line.decode()}")

    def untrace(self) -> None:
        """Let strace go, and the process run as it is."""
        if self._strace is not None:
            self._strace.terminate()
            self._strace.communicate()
            self._strace = None

    async def ready(self, timeout: float = START) -> None:
        """Wait until it is ready. Raises `NotReady` if it ends instead, or takes too long."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        pipe = os.fdopen(self._output, "rb", 0)
        self._output = -1
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            async with asyncio.timeout(timeout):
                while (line := (await reader.readline()).decode().strip()) != "ready":
                    if not line:
                        await self.ended()
                        raise NotReady(f"status {self.status}: {self.said().strip()}")
                    if match := re.fullmatch(r"listening amqp://127\.0\.0\.1:(\d+)", line):
                        self.port = int(match[1])
            self.start_time = time.monotonic() - self.began
        except TimeoutError:
            raise NotReady(f"not ready after {timeout} s: {self.said().strip()}") from None
        finally:
            transport.close()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it has not ended."""
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            pass

    async def ended(self, timeout: float | None = START) -> int:
        """Wait for its end; how it ended. Raises `TimeoutError`."""
        if self._over is None:
            loop = asyncio.get_running_loop()
            self._over = loop.create_future()
            loop.add_reader(self._pidfd, self._end, loop)
        async with asyncio.timeout(timeout):
            return await asyncio.shield(self._over)

    async def kill(self) -> None:
        """SIGKILL."""
        if self.status is None:
            self.signal(signal.SIGKILL)
            await self.ended()

    def said(self) -> str:
        """What this life has written to its standard error."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._pidfd)
        if self._strace is not None:
            # It ends with the last process it traces, which is dead already.
            self._strace.communicate()
        self.status = self._starter.reap(self.pid)
        os.close(self._pidfd)
        if self._output >= 0:
            os.close(self._output)
            self._output = -1
        assert self._over is not None
        self._over.set_result(self.status)


# More ports than a run of the crash tests needs.
_PORTS: Final = 101


def free_port(taken: Container[int] = ()) -> int:
    """A port that nobody uses and that the system gives to nobody who does not ask for it: clients
    that try again while the broker is away would otherwise meet strangers, or themselves. `taken`
    are those for which others have plans."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    # Test processes of one run have neighbouring ids, and each needs some ports in a row: another
    # one must not find them free before they are in use.
    begin = first - 1 - os.getpid() * _PORTS % 20_000
    for port in range(begin, 1024, -1):
        if port in taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise NotReady("no port is free")
