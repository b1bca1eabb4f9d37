"""The part `archive`: a stream, all columns, to Parquet files.

By Spark's own writer, in batch; and by the sink for captures, as a query that ends when it has read
what there is, with the settings of Spark that its page recommends, and once without. The rows are
counted in the files.
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
# What docs/pipeline/capture.md recommends: Spark does not weigh its batches after each row.
SETTINGS: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
ALL: Final = Shape("all columns", tuple(METADATA), None)


def measure(session: SparkSession, rounds: Rounds, streams: Streams, folder: Path) -> None:
    """Every contender writes files of its own, which are gone afterwards."""
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
    """Write all columns by Spark's own writer; the rows in its files."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        out = Path(own, "out")
        frame(session, given, ALL).write.parquet(str(out))
        return rows_in(out)


def capture(session: SparkSession, folder: Path, url: str, settings: dict[str, str]) -> int:
    """Write all columns by the sink for captures, with settings of Spark; the rows in its files."""
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
    """Settings of the session while the block runs; it must not have them already."""
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)


def rows_in(folder: Path) -> int:
    """How many rows the Parquet files below a folder have, by their footers."""
    return sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))
