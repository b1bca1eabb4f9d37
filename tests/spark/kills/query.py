"""The driver of the query as a process, and what its checkpoint says of its progress."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.spark.cluster.standalone import environment

_PROGRAM: Final = Path(__file__).with_name("driver.py")


class DriverProcess:
    """A driver that is started again from its checkpoint. Python and Java are a process group."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self._checkpoint = folder / "checkpoint"
        self._log = folder / "driver.log"
        self._command = [sys.executable, str(_PROGRAM), "--checkpoint", str(self._checkpoint)]
        self._command += arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Output of the driver over all its starts."""
        return self._log.read_text("utf-8", errors="replace") if self._log.exists() else ""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start it, without waiting for anything."""
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**environment(), **kept, "PYSPARK_PYTHON": sys.executable},
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def committed(self) -> int:
        """Return the number of the last batch in the log of commits, -1 if there is none."""
        with suppress(FileNotFoundError):
            names = os.listdir(self._checkpoint / "commits")
            return max((int(name) for name in names if name.isdigit()), default=-1)
        return -1

    def commit_time(self, batch: int) -> float:
        """Return when a batch was committed, in seconds since the epoch."""
        return (self._checkpoint / "commits" / str(batch)).stat().st_mtime

    def records_until(self, batch: int) -> int:
        """Return how many records the query has read up to the end of a batch, from all partitions:
        the sum of its offsets."""
        if batch < 0:
            return 0
        text = (self._checkpoint / "offsets" / str(batch)).read_text("utf-8")
        return sum(_numbers(json.loads(text.splitlines()[-1])["streams"]))


def _numbers(found: object) -> list[int]:
    """Return the offsets in an offset of the query, of either version."""
    if isinstance(found, dict):
        return [number for each in found.values() for number in _numbers(each)]
    return [found] if isinstance(found, int) else []
