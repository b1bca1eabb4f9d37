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
_JOINED: Final = re.compile("Successfully registered with master")
PATIENCE: Final = 90.0


class Standalone:
    """A context manager; `url` is the master's. Workers have a core each. Logs are in `folder`."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.url = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._count = workers
        self._master: subprocess.Popen[bytes] | None = None
        self._started = 0

    def __enter__(self) -> Standalone:
        try:
            log = self._folder / "master.log"
            self._master = self._start(log, "master.Master")
            self.url = self._wait(self._master, log, _MASTER)[1]
            started = [self._start_worker(number) for number in range(self._count)]
            self.workers = [worker for worker, _ in started]
            for worker, log in started:
                self._wait(worker, log, _JOINED)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill_worker(self, number: int) -> None:
        """Kill a worker, whose executors end by themselves, and start another one."""
        self.workers[number].kill()
        self.workers[number].wait()
        self.workers[number], log = self._start_worker(number)
        self._wait(self.workers[number], log, _JOINED)

    def stop(self) -> None:
        """End the workers, which end their executors, and the master."""
        processes = [*self.workers, *([self._master] if self._master else [])]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.workers.clear()
        self._master = None

    def _start_worker(self, number: int) -> tuple[subprocess.Popen[bytes], Path]:
        self._started += 1
        log = self._folder / f"worker-{number}-{self._started}.log"
        work = str(self._folder / f"work-{number}")
        settings = ["--cores", "1", "--memory", "700m", "--work-dir", work]
        return self._start(log, "worker.Worker", *settings, self.url), log

    def _start(self, log: Path, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(HOME / "bin/spark-class"), f"{_PACKAGE}.{role}", "--host", "127.0.0.1"]
        with log.open("wb") as out:
            return subprocess.Popen(
                [*command, "--port", "0", "--webui-port", "0", *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env={**environment(), "SPARK_LOCAL_DIRS": str(self._folder / "local")},
            )

    @staticmethod
    def _wait(
        process: subprocess.Popen[bytes], log: Path, wanted: re.Pattern[str]
    ) -> re.Match[str]:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = wanted.search(log.read_text("utf-8", errors="replace"))
            if found:
                return found
            if process.poll() is not None:
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
