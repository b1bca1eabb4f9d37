"""A server of Spark Connect on loopback, with the Java of the installed PySpark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pyspark

HOME: Final = Path(pyspark.__file__).parent
PATIENCE: Final = 120.0
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_READY: Final = re.compile(r"Spark Connect server started at: \S*:(\d+)")
# Processes of minutes are not worth the second of Java's compilers.
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of a server for tests: it listens on loopback only."""


def environment() -> dict[str, str]:
    """Variables with which Spark's programs run our Python, on loopback."""
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": JAVA,
    }


class ConnectServer:
    """A context manager; `url` is for clients. The server's files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ConnectServer:
        log = self._folder / "connect.log"
        settings = {
            **SETTINGS,
            "spark.connect.grpc.binding.port": "0",
            "spark.local.dir": str(self._folder / "local"),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
        }
        command = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]", "--class", _CLASS]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, "spark-internal"],
                cwd=self._folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            self.url = f"sc://127.0.0.1:{self._port(log)}"
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server."""
        process = self._process
        assert process is not None
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _port(self, log: Path) -> int:
        """Wait until the server has written its port."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while True:
            text = log.read_text("utf-8", "replace")
            found = _READY.search(text)
            if found is not None:
                return int(found[1])
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no Spark Connect server: {text[-2000:]}")
            time.sleep(0.1)
