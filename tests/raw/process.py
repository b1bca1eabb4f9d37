"""The broker under attack: a process of the build that is tested, and what it must still be after.

It lives, its log has no mistake of its own in it, and its memory is back where it was.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.conftest import running_variant
from tests.support.forking import COMMAND, FerrymqProcess

ROOT: Final = Path(__file__).resolve().parents[2]
# Seconds. Generous, for busy machines; nothing waits this long if all is well.
PATIENCE: Final = 30.0
MIB: Final = 1024 * 1024

_LISTENING: Final = re.compile(r"^listening \w+://127\.0\.0\.1:(\d+)$", re.MULTILINE)
_MONITORING: Final = re.compile(r"^monitoring (http://127\.0\.0\.1:\d+)", re.MULTILINE)
# What the log has of mistakes of the broker's own.
MISTAKES: Final = ("Traceback", "internal error", "[error", '"level": "error"', "never retrieved")

_LIMITED: Final = (
    "import os, resource, sys; limit = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)


class Broker:
    """`ferrymq serve` with a configuration, on loopback. ``with Broker(config) as broker``.

    `config` is the text of a file; without listeners in it, there is one for AMQP. `ports` are
    those of the listeners, in their order, `port` is the first. `descriptors` is how many files
    it may have open from its start on; 0 for as many as we may. `started`: it is no fork, and
    inherits what holds for this process.
    """

    def __init__(
        self,
        config: str = "",
        environment: dict[str, str] | None = None,
        descriptors: int = 0,
        started: bool = False,
    ) -> None:
        if "[[listener]]" not in config:
            config += '\n[[listener]]\nurl = "amqp://127.0.0.1:0"\n'
        self.ports: list[int] = []
        # Where it answers those who watch it, if it does.
        self.monitoring = ""
        self._directory = tempfile.TemporaryDirectory(prefix="ferrymq-hostile-")
        self._config = Path(self._directory.name, "ferrymq.toml")
        self._config.write_text(config, "utf-8")
        self._log = Path(self._directory.name, "stderr.txt")
        self._environment = environment or {}
        self._started = started
        # Sets the limit, and becomes the command that follows.
        self._before = (
            [sys.executable, "-c", _LIMITED, str(descriptors)] if descriptors else list[str]()
        )
        self._process: subprocess.Popen[bytes] | None = None
        # How much of the log has been looked at.
        self._seen = 0

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.ports[0]

    @property
    def url(self) -> str:
        """Where it listens: `amqp://127.0.0.1:PORT`."""
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def directory(self) -> Path:
        """Its working directory, gone when it is."""
        return Path(self._directory.name)

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written to standard error."""
        return self._log.read_text("utf-8", errors="replace") if self._log.exists() else ""

    def start(self) -> Self:
        """Start it and return when it is ready."""
        # It does not run where we do: what is relative here would be nothing there.
        paths = [
            str(Path(path).resolve())
            for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if path
        ]
        command = ["serve", "--config", str(self._config)]
        start: Callable[..., subprocess.Popen[bytes]] = FerrymqProcess
        if self._before or self._started:
            command = [*self._before, *COMMAND, *command]
            start = subprocess.Popen
        with self._log.open("ab") as log:
            self._process = start(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._directory.name,
                env={
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    "PYTHONPATH": os.pathsep.join(paths),
                    **self._environment,
                },
            )
        said = self._read_until_ready()
        self.ports = [int(port) for port in _LISTENING.findall(said)]
        self.monitoring = next(iter(_MONITORING.findall(said)), "")
        assert self.ports, f"the broker did not say where it listens: {said!r}"
        compiled = "__mypyc" in Path(f"/proc/{self.pid}/maps").read_text()
        assert compiled == (running_variant() == "compiled"), "the broker is of the other build"
        return self

    def _read_until_ready(self) -> str:
        process = self._process
        assert process is not None and process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not re.search(rb"^ready$", text, re.MULTILINE):
                left = deadline - time.monotonic()
                chunk = b""
                if left > 0 and selector.select(left):
                    chunk = os.read(process.stdout.fileno(), 4096)
                if not chunk:
                    self.kill()
                    raise AssertionError(f"the broker is not ready: {text!r}\n{self.log}")
                text += chunk
        return text.decode()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def stop(self) -> None:
        """End it by SIGTERM: in good order, whatever has been done to it."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the broker did not end after SIGTERM\n{self.log}") from None
        finally:
            self.kill()
        assert code == 0, f"the broker ended with {code}\n{self.log}"
        self.check_log()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._discard()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self._discard()

    def _discard(self) -> None:
        self.kill()
        self._directory.cleanup()

    # -- what must hold ----------------------------------------------------------------------

    def check(self) -> None:
        """It lives, and has made no mistake since the last look."""
        assert self._process is not None
        assert self._process.poll() is None, f"the broker has died\n{self.log}"
        self.check_log()

    def check_log(self) -> None:
        """Its log has no mistake of its own since the last look."""
        log = self.log
        fresh, self._seen = log[self._seen :], len(log)
        for word in MISTAKES:
            assert word not in fresh, f"the broker made a mistake:\n{fresh[-8000:]}"

    def memory(self) -> int:
        """What it has of the machine's memory, in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak(self) -> int:
        """The most it has had of the machine's memory since `forget_peak`, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def forget_peak(self) -> None:
        """Count the peak from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def memory_is_back(self, before: int, bound: int = 8 * MIB, patience: float = 15.0) -> None:
        """It has at most `bound` bytes more than `before`, now or soon: it tidies up at times."""
        deadline = time.monotonic() + patience
        while (now := self.memory()) > before + bound:
            assert (
                time.monotonic() < deadline
            ), f"{(now - before) / MIB:.1f} MiB more than before, {bound / MIB:.1f} are allowed"
            time.sleep(0.05)
