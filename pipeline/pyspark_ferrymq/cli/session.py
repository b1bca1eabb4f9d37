"""The Spark session of a command, with settings for small and medium streams."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's default of 200 shuffle tasks per trigger takes seconds even if the tasks do little.
_SHUFFLES: Final = 4
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(_SHUFFLES),
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "WARN",
    # After each row for a sink Spark estimates the batch's size, and for a map column with only
    # nulls it reads all rows of the batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
_CONNECT: Final = "sc://"
_OF_SESSION: Final = (
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
)
# With a local master no other machine has to reach the driver.
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def session(
    name: str, master: str, conf: list[str] | None = None, log: Path | None = None
) -> Iterator[SparkSession]:
    """Provide a session while the block runs.

    `conf` has settings that override ours. Spark's log goes to `log`, or else to a temporary file,
    which is kept, and named in a message, if the block fails. Raises `AmqpSourceError` if Java
    cannot be started.
    """
    settings = {**_SETTINGS, **(_LOCAL if master.startswith("local") else {}), **_pairs(conf)}
    if master.startswith(_CONNECT):
        # Other settings are those of the server.
        settings = {key: value for key, value in settings.items() if key in _OF_SESSION}
        settings |= _pairs(conf)
    kept = log is not None
    place = _log_path(log)
    try:
        spark = _start(name, master, settings, place)
        try:
            yield spark
        finally:
            _stop(spark)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except Exception:
        if place is not None and not kept:
            sys.stderr.write(f"ferrymq: Spark's log is {place}\n")
            kept = True
        raise
    finally:
        if place is not None and not kept:
            place.unlink(missing_ok=True)


def _pairs(conf: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in conf or []:
        key, given, value = text.partition("=")
        if not given or not key.startswith("spark."):
            raise AmqpOptionError(f"--conf {text!r} is not spark.KEY=VALUE")
        pairs[key] = value
    return pairs


def _log_path(log: Path | None) -> Path | None:
    if log is not None:
        return None if str(log) == "-" else log
    handle, path = tempfile.mkstemp(prefix="ferrymq-spark-", suffix=".log")
    os.close(handle)
    return Path(path)


def _start(name: str, master: str, settings: dict[str, str], log: Path | None) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from pyspark_ferrymq import register

    if master.startswith("local"):
        # Workers use this interpreter, so they have the same packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"ferrymq {name}")
    builder = builder.remote(master) if master.startswith(_CONNECT) else builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(log):
            spark = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        hint = "" if log is None else f"; see {log}"
        if master.startswith(_CONNECT):
            raise AmqpSourceError(f"no session at {master}: {str(error).splitlines()[0]}") from None
        raise AmqpSourceError(
            f"Spark did not start: {str(error).splitlines()[0]} Java 17 or newer is needed: set"
            f" JAVA_HOME{hint}"
        ) from None
    # Spark's own handler calls Java, which may be in the middle of another call.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Discard log messages about interrupted calls.
    logging.getLogger().addHandler(logging.NullHandler())
    # If the package was sent with --py-files, Spark does not find the data source automatically.
    register(spark)
    return spark


@contextmanager
def _stderr_to(path: Path | None) -> Iterator[None]:
    """Redirect the standard error of processes started in the block to a file."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with open(path, "ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _stop(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    except (Py4JError, OSError):
        # Ctrl-C interrupted a call to Java, which ends together with this process.
        pass
