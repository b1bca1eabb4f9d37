"""A client's program as a process: it is asked for cases by lines of JSON.

What such a program reads and writes is in `trial`, and in `client.js` for Node.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]

# Seconds for a case and for the start of a client; the client itself gives up earlier.
LIMIT: Final = 90.0


@dataclass(frozen=True)
class Outcome:
    """The result of a feature: `passed`, `failed` with an error, or `absent` from the client."""

    verdict: str
    error: str
    seconds: float


class ClientProcess:
    """The program of a client: started for the first case, and again after one that failed.

    `command` returns what starts it, `environment` is added to that of this process, and `folder`
    gets what it writes to stderr.
    """

    def __init__(
        self, command: Callable[[], Sequence[str]], environment: Mapping[str, str], folder: Path
    ) -> None:
        self._command = command
        self._environment = environment
        self._path = folder / "client.log"
        self._process: subprocess.Popen[str] | None = None

    def play(
        self, question: Mapping[str, Any], answer: Callable[[dict[str, Any]], None]
    ) -> Outcome:
        """Ask the program for a case, and return what came of it.

        `answer` does what the case asks for in between.
        """
        start = time.monotonic()
        said = self._ask(question, answer)
        seconds = round(time.monotonic() - start, 2)
        if said.get("absent"):
            return Outcome("absent", "", seconds)
        error = str(said.get("error", ""))
        if error:
            # A case that failed may leave threads and connections.
            self.end()
        return Outcome("failed" if error else "passed", error, seconds)

    def _ask(
        self, question: Mapping[str, Any], answer: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        process = self._process
        if process is None:
            process = self._process = self._start()
        assert process.stdin is not None and process.stdout is not None
        watchdog = threading.Timer(LIMIT, process.kill)
        watchdog.start()
        try:
            self._write(process, question)
            while line := process.stdout.readline():
                said: dict[str, Any] = json.loads(line)
                if "error" in said or "absent" in said:
                    return said
                answer(said)
                self._write(process, {})
        except BrokenPipeError:
            pass
        finally:
            watchdog.cancel()
        self.end()
        return {"error": f"the client ended within {LIMIT:.0f} seconds: {self._log()}"}

    @staticmethod
    def _write(process: subprocess.Popen[str], line: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()

    def _start(self) -> subprocess.Popen[str]:
        with self._path.open("w") as log:
            return subprocess.Popen(
                self._command(),
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _log(self) -> str:
        lines = self._path.read_text("utf-8").strip().splitlines()
        return lines[-1] if lines else ""

    def end(self) -> None:
        """End the program, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
