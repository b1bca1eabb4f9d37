"""rhea, driven through `node rhea/run.js`: scenarios by name, parameters and results as JSON."""

from __future__ import annotations

import json
import selectors
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess

FOLDER = Path(__file__).parent / "rhea"
# Seconds until a scenario gives up; none takes this long if all is well.
TIMEOUT = 30.0


def missing() -> str | None:
    """Why rhea cannot be driven here, if it cannot."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not (FOLDER / "node_modules" / "rhea").is_dir():
        return "rhea is not installed: npm ci --prefix tests/interop/rhea"
    return None


needs_rhea = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def run(broker: BrokerProcess, scenario: str, **parameters: Any) -> Any:
    """Play the scenario against the broker; its result."""
    with Scenario(broker, scenario, **parameters) as playing:
        return playing.result()


class Scenario:
    """A scenario that is being played, for tests that do something meanwhile."""

    def __init__(self, broker: BrokerProcess, name: str, **parameters: Any) -> None:
        self._name = name
        self._input = json.dumps(
            {"scenario": name, "port": broker.port, "seconds": TIMEOUT, **parameters}
        )
        self._lines: list[dict[str, Any]] = []

    def __enter__(self) -> Scenario:
        self._process = subprocess.Popen(
            ["node", "run.js"],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(self._input.encode())
        self._process.stdin.close()
        self._text = b""
        return self

    def wait_for(self, event: str) -> None:
        """Return when the scenario has told the event."""
        while not any(line.get("event") == event for line in self._lines):
            self._read()

    def result(self) -> Any:
        """What the scenario has returned."""
        while not (self._lines and "result" in self._lines[-1]):
            self._read()
        return self._lines[-1]["result"]

    def _read(self) -> None:
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        deadline = time.monotonic() + TIMEOUT + 5
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(deadline - time.monotonic()), f"{self._name} hangs"
            chunk = process.stdout.read1(1 << 20)  # type: ignore[attr-defined]
        if not chunk:
            process.wait()
            raise AssertionError(f"{self._name} failed: {process.stderr.read().decode()}")
        *lines, self._text = (self._text + chunk).split(b"\n")
        self._lines += [json.loads(line) for line in lines if line.startswith(b"{")]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if kind is not None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
