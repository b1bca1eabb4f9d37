"""The set-up of a scenario: a broker, a witness beside it, and the start of measuring."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.client import Peer
from bench.process import Server
from bench.standstill.passes import Passes
from bench.standstill.witness import processor_time
from bench.tree import Trees, command, environment

# The broker counts as idle when it used less than the share _QUIET of the processor for _IDLE
# seconds. The share includes the cost of the witness.
_QUIET: Final = 0.25
_IDLE: Final = 0.6
# Seconds to wait for the broker to be idle.
_PATIENCE: Final = 120.0


class Witness:
    """The process of `bench.standstill.witness`."""

    def __init__(self, trees: Trees, port: int, pid: int) -> None:
        self._process = subprocess.Popen(
            command("bench.standstill.witness", str(port), str(pid)),
            env=environment(trees.loops),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self) -> None:
        """Start counting."""
        self._tell("begin")
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> dict[str, float]:
        """Return ``messages``, and seconds of ``silence`` and ``processor`` time."""
        self._tell("end")
        found, _ = self._process.communicate(timeout=_PATIENCE)
        result: dict[str, float] = json.loads(found)
        return result

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Ground:
    """A broker and its witness, for one scenario. `shrink` divides every `size`."""

    def __init__(
        self, trees: Trees, server: Server, passes: Passes | None, shrink: int, folder: Path
    ) -> None:
        self.trees = trees
        self.server = server
        self.port = server.port
        self.monitoring = server.monitoring
        self.folder = folder
        self._shrink = shrink
        self._passes = passes
        self._witness = Witness(trees, server.port, server.pid)
        self._peers: list[Peer] = []

    def size(self, count: int) -> int:
        """Return a number divided by `shrink`."""
        return max(1, count // self._shrink)

    def peer(self, name: str) -> Peer:
        """Return a client that is closed at the end of the scenario."""
        peer = Peer(self.port, name)
        self._peers.append(peer)
        return peer

    def begin(self) -> None:
        """Start measuring, after everything is prepared."""
        self._settle()
        self._witness.begin()
        if self._passes is not None:
            self._passes.reset()

    def finish(self) -> dict[str, float]:
        """Wait until the broker is idle, and return the measured seconds."""
        self._settle()
        longest = long_ones = count = 0.0
        if self._passes is not None:
            longest = self._passes.longest()
            long_ones = self._passes.long_ones()
            count = self._passes.count()
        found = self._witness.end()
        return {
            "pass": longest,
            "passes": count,
            "long-passes": long_ones,
            "witness": found["processor"],
            "silence": found["silence"],
            "messages": found["messages"],
        }

    def _settle(self) -> None:
        """Wait until the broker does hardly anything except answer the witness."""
        pid = self.server.pid
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            before = processor_time(pid)
            time.sleep(_IDLE)
            if processor_time(pid) - before < _QUIET * _IDLE:
                return

    def close(self) -> None:
        """Stop the witness and close the clients."""
        self._witness.stop()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.close()


@contextlib.contextmanager
def ground(
    trees: Trees,
    config: str,
    *,
    durable: bool,
    library: Path | None,
    shrink: int,
    folder: Path,
) -> Iterator[Ground]:
    """Run a broker with this configuration, in TOML, and with a store if it is `durable`."""
    file = folder / "broker.toml"
    file.write_text(config, "utf-8")
    arguments = ["serve", "--log-level", "error", "--listen", "amqp://127.0.0.1:0"]
    arguments += ["--http", "http://127.0.0.1:0", "--config", str(file)]
    arguments += ["--data", str(folder / "data")] if durable else ["--memory"]
    passes: Passes | None = None
    server = Server("ferrymq", command("ferrymq_broker", *arguments), trees.broker)
    if library is not None:
        passes = Passes(library, folder / "passes")
        preload: Mapping[str, str] = passes.environment
        server.environment.update(preload)
    with contextlib.ExitStack() as stack:
        if passes is not None:
            stack.callback(passes.close)
        stack.enter_context(server)
        made = Ground(trees, server, passes, shrink, folder)
        stack.callback(made.close)
        yield made


def raise_file_limit() -> None:
    """Raise the limit of open sockets for this process and its children to the maximum."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def drop(peers: list[Peer]) -> None:
    """Drop all connections at once, as when the process that owns them dies."""
    for peer in peers:
        # With this option a close sends a reset, which the broker's event loop sees at once.
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for peer in peers:
        peer.close()
