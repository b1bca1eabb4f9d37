"""The measured Spark session: two cores, listening only on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.spark.plain import PlainSource
from bench.spark.ticks import TickSource
from pyspark_ferrymq.capture import CaptureSink

CORES: Final = 2


def start(folder: Path) -> SparkSession:
    """Start a session with its files in `folder`. It has `amqp`, the capture sink, `plain` and
    `ticks`."""
    session: SparkSession = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("ferrymq bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(PlainSource)
    session.dataSource.register(TickSource)
    session.dataSource.register(CaptureSink)
    return session


def java_pid(session: SparkSession) -> int:
    """Return the process id of Spark's Java process."""
    java = session.sparkContext._jvm
    assert java is not None
    return int(java.java.lang.ProcessHandle.current().pid())
