"""Spark's own cluster manager: a master and workers, each a process, on free ports of loopback."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Final

import pyspark

HOME: Final = Path(pyspark.__file__).parent
_PACKAGE: Final = "org.apache.spark.deploy"
_MASTER: Final = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_JOINED: Final = "Successfully registered with master"
PATIENCE: Final = 90.0


class Standalone:
    """A context manager; `url` is the master's. Workers have a core each. Logs are in `folder`."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.url = ""
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Standalone:
        try:
            master = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
            self.url = self._wait(master, _MASTER)[1]
            logs = [
                self._start(
                    f"worker-{number}", "worker.Worker", "--host", "127.0.0.1", "--port", "0",
                    "--cores", "1", "--memory", "700m",
                    "--work-dir", str(self._folder / f"work-{number}"), self.url,
                )
                for number in range(self._workers)
            ]  # fmt: skip
            for log in logs:
                self._wait(log, re.compile(_JOINED))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the workers, which end their executors, and the master."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _start(self, name: str, role: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [str(HOME / "bin/spark-class"), f"{_PACKAGE}.{role}", "--webui-port", "0",
                     *arguments],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    cwd=self._folder,
                    env=environment(),
                )
            )  # fmt: skip
        return log

    def _wait(self, log: Path, wanted: re.Pattern[str]) -> re.Match[str]:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = wanted.search(log.read_text("utf-8", errors="replace"))
            if found:
                return found
            if any(process.poll() is not None for process in self._processes):
                break
            time.sleep(0.1)
        raise AssertionError(f"{log.name}: no {wanted.pattern!r}\n{log.read_text('utf-8')}")


def environment() -> dict[str, str]:
    """For Spark's processes: nothing listens but on loopback, no Python but the one named."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK_", "SPARK_"))
    }
    return {**kept, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m"}  # fmt: skip
