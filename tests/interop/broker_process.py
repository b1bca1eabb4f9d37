"""A real broker in a process of its own: started on a free port, ended by SIGTERM."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.forking import FerrymqProcess

_LISTENING = re.compile(r"listening \w+://127\.0\.0\.1:(\d+)$")
# Seconds. Generous, for busy machines; nothing waits this long if all is well.
PATIENCE = 30.0


class BrokerProcess:
    """`ferrymq serve` on loopback. The build variant is the one the tests run with: the child
    inherits PYTHONPATH.

    `config` is the text of a configuration file. `port` is known after `start`, and kept by
    `start` after a `stop` or `kill`, so that clients find the broker again.
    """

    def __init__(self, config: str | None = None, scheme: str = "amqp") -> None:
        self.port = 0
        self.scheme = scheme
        self._directory = tempfile.TemporaryDirectory(prefix="ferrymq-interop-")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path(self._directory.name, "stderr.txt")
        self._config: Path | None = None
        if config is not None:
            self._config = Path(self._directory.name, "ferrymq.toml")
            self._config.write_text(config, "utf-8")

    @property
    def url(self) -> str:
        """Where it listens: `amqp://127.0.0.1:PORT`, or with the `scheme` it was given."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has written to stderr so far, over all its starts."""
        return self._log.read_text("utf-8", errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it and return when it has printed `ready`."""
        command = ["serve", "--listen", self.url]
        if self._config is not None:
            command += ["--config", str(self._config)]
        with self._log.open("ab") as log:
            self._process = FerrymqProcess(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._directory.name,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        for line in self._lines_until("ready"):
            match = _LISTENING.match(line)
            if match:
                self.port = int(match[1])
        assert self.port, "the broker did not say where it listens"

    def _lines_until(self, last: str) -> list[str]:
        process = self._process
        assert process is not None and process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        lines: list[str] = []
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while last not in lines:
                selector.select(max(0.0, deadline - time.monotonic()))
                chunk = (
                    os.read(process.stdout.fileno(), 4096) if time.monotonic() < deadline else b""
                )
                if not chunk:
                    self.kill()
                    raise AssertionError(f"the broker did not say {last!r}: {text!r}\n{self.log}")
                text += chunk
                lines = text.decode().splitlines()
        return lines

    def stop(self) -> None:
        """End it by SIGTERM and insist on exit code 0."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not end after SIGTERM\n{self.log}") from None
        self._forget()
        assert code == 0, f"the broker ended with {code}\n{self.log}"

    def kill(self) -> None:
        """End it without giving it a chance to say goodbye, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._directory.cleanup()
