"""The part `archive`: a stream, with all columns, to Parquet files.

The files are written in three ways: by Spark's own writer in batch, and twice by the capture sink
as a query that ends when it has read everything, with and without the Spark settings that its page
recommends. The rows in the files are counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.spark.reading import Shape, Streams, amqp, frame, plain
from bench.spark.turns import OURS, PLAIN, Contender, Rounds
from ferrymq.arrow import METADATA

DEMAND: Final = 60_000
# The settings that docs/pipeline/capture.md recommends: Spark does not size batches on each row.
SETTINGS: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
ALL: Final = Shape("all columns", tuple(METADATA), None)


def measure(session: SparkSession, rounds: Rounds, streams: Streams, folder: Path) -> None:
    """Measure all contenders; each writes its own files, which are removed afterwards."""
    contenders = [
        Contender(
            f"{name}, Spark's Parquet",
            partial(parquet, session, folder, amqp(url)),
            streams.rows,
            DEMAND,
        )
        for name, url in streams.urls.items()
    ]
    contenders += [
        Contender(
            f"{name}, capture",
            partial(capture, session, folder, url, SETTINGS),
            streams.rows,
            DEMAND,
        )
        for name, url in streams.urls.items()
    ]
    contenders.append(
        Contender(
            f"{OURS}, capture, Spark's settings",
            partial(capture, session, folder, streams.urls[OURS], {}),
            streams.rows,
        )
    )
    contenders.append(
        Contender(PLAIN, partial(parquet, session, folder, plain(streams.rows)), streams.rows)
    )
    rounds.measure("to Parquet, all columns", contenders)


def parquet(session: SparkSession, folder: Path, given: dict[str, str]) -> int:
    """Write all columns with Spark's own writer; return the rows in its files."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        out = Path(own, "out")
        frame(session, given, ALL).write.parquet(str(out))
        return rows_in(out)


def capture(session: SparkSession, folder: Path, url: str, settings: dict[str, str]) -> int:
    """Write all columns with the capture sink and these settings; return the rows in its files."""
    with tempfile.TemporaryDirectory(dir=folder) as own, _set(session, settings):
        options = {name: value for name, value in amqp(url).items() if name != "format"}
        records = session.readStream.format("amqp").schema(ALL.schema()).options(**options).load()
        query = (
            records.writeStream.format("amqp_capture")
            .options(path=str(Path(own, "out")), url=url)
            .option("checkpointLocation", str(Path(own, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return rows_in(Path(own, "out"))


@contextmanager
def _set(session: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Apply settings to the session while the block runs; they must not be set before."""
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)


def rows_in(folder: Path) -> int:
    """Return how many rows the Parquet files in a folder have, according to their footers."""
    return sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))
