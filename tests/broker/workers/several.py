"""A broker of two workers in processes of their own, of which a test chooses the one that accepts.

The kernel gives a new connection to whichever worker is the first to ask. So a test stops the other
one while it connects, until the one that is left has accepted.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.raw.client import Client
from tests.raw.frames import open_frame
from tests.raw.process import PATIENCE, Broker
from tests.raw.values import string

# The default virtual host is at worker 0, and this one at worker 1.
TENANT: Final = """
[[virtual-host]]
name = "tenant"
hostnames = ["tenant.example"]
worker = 1
"""
# The hostnames of the two virtual hosts, by the worker that serves them.
HOSTS: Final = ("vhost:default", "vhost:tenant")


def opening(hostname: str, container: str = "client") -> bytes:
    """An open for a virtual host."""
    return open_frame(string(container), string(hostname))


class WorkerBroker(Broker):
    """`ferrymq serve` with two workers. `pids` has the processes of the workers, by number."""

    def __init__(self, config: str = "", **more: object) -> None:
        super().__init__(f"workers = 2\n{config}", **more)  # type: ignore[arg-type]
        self.pids: list[int] = []

    def start(self) -> WorkerBroker:
        """Start it and return when all workers are ready."""
        super().start()
        self.pids = children(self.pid)
        assert len(self.pids) == 2, self.log
        return self

    def hostname_url(self, worker: int, scheme: str = "amqp", listener: int = 0) -> str:
        """The URL with which a client reaches the virtual host of a worker."""
        port = self.ports[listener]
        return f"{scheme}://127.0.0.1:{port}?hostname={HOSTS[worker]}"

    @contextmanager
    def accepting(self, worker: int, listener: int = 0) -> Iterator[None]:
        """The first connection that is made inside is accepted by this worker."""
        port = self.ports[listener]
        others = [pid for number, pid in enumerate(self.pids) if number != worker]
        before = _accepted(port)
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
            _wait_for_state(pid, "T")
        ended = threading.Event()

        def go_on() -> None:
            while not ended.is_set() and not _accepted(port) - before:
                time.sleep(0.001)
            for pid in others:
                os.kill(pid, signal.SIGCONT)

        waiting = threading.Thread(target=go_on)
        waiting.start()
        try:
            yield
        finally:
            ended.set()
            waiting.join()

    def connect(self, worker: int, listener: int = 0) -> Client:
        """Return a client on a new connection that this worker has accepted, or refused."""
        port = self.ports[listener]
        with self.accepting(worker, listener):
            client = Client(port)
            here = client.socket.getsockname()[1]
            wait_until(
                lambda: here in _accepted(port) or _is_readable(client.socket.fileno(), 0.0),
                "nobody accepts the connection",
            )
        return client

    def kill_worker(self, worker: int) -> None:
        """End the process of a worker at once, and wait until the process is gone."""
        ended = os.pidfd_open(self.pids[worker])
        os.kill(self.pids[worker], signal.SIGKILL)
        assert _is_readable(ended, PATIENCE), "the process does not end"
        os.close(ended)

    def wait_for_worker(self, worker: int) -> None:
        """Wait until a worker that has ended runs again and is ready."""
        others = set(self.pids)
        wait_until(lambda: bool(set(children(self.pid)) - others), "no worker starts again")
        (self.pids[worker],) = set(children(self.pid)) - others
        wait_until(self._all_are_back, "the worker is not ready again")
        # The log has an error about the end of the worker, which the test has wanted.
        self._seen = len(self.log)

    def _all_are_back(self) -> bool:
        log = self.log
        return log.count("a worker is ready again") == log.count("a worker has ended")


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended, the first one first."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descriptors(pid: int) -> int:
    """How many file descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_until(condition: Callable[[], bool], reason: str, patience: float = PATIENCE) -> None:
    """Wait for something that a process does soon."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, reason
        time.sleep(0.005)


def _accepted(port: int) -> set[int]:
    """The ports of the clients whose connections to this port have been accepted. A connection that
    waits has no inode yet."""
    found: set[int] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].partition(":")[2], 16) == port and fields[3] == "01" and fields[9] != "0":
            found.add(int(fields[2].partition(":")[2], 16))
    return found


def _wait_for_state(pid: int, state: str) -> None:
    wait_until(
        lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == state,
        f"process {pid} does not stop",
    )


def _is_readable(descriptor: int, patience: float) -> bool:
    return bool(select.select([descriptor], [], [], patience)[0])
