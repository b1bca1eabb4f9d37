"""The part `reading`: a stream into Spark's `noop` sink, in batch and as a streaming query."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bench.spark.turns import OURS, PLAIN, Contender, Rounds
from ferrymq.arrow import DEFAULT, METADATA, POSITION, schema_of


class Shape(NamedTuple):
    """The columns to read, the demanded rows per second, and for a batch from a broker without a
    store the demanded part of the rate of `plain`."""

    name: str
    columns: tuple[str, ...]
    demand: float | None
    of_plain: float | None = None

    def schema(self) -> StructType:
        """Return the Spark schema of the columns."""
        return from_arrow_schema(schema_of(self.columns))


# The broker's processor time that a row from a store may cost, in µs.
STORED_COST: Final = 1.8

NARROW: Final = Shape("body and position", ("body", *POSITION), 250_000, 0.49)
SHAPES: Final = (
    NARROW,
    Shape("default columns", tuple(DEFAULT), 100_000, 0.42),
    Shape("all columns", tuple(METADATA), None),
)


class Streams(NamedTuple):
    """The streams to read: the URL of a broker for each contender, and the rows in each."""

    urls: dict[str, str]
    rows: int


def measure(session: SparkSession, rounds: Rounds, streams: Streams, folder: Path) -> None:
    """Measure all shapes in batch, and as a streaming query that ends when all rows are read."""
    for shape in SHAPES:
        run = partial(batch, session, shape)
        rounds.measure(f"batch, {shape.name}", _contenders(streams, run, shape))
    for shape in SHAPES[:2]:
        run = partial(streaming, session, shape, folder)
        query = shape._replace(of_plain=None)
        rounds.measure(f"streaming, {shape.name}", _contenders(streams, run, query))


def _contenders(
    streams: Streams, run: Callable[[dict[str, str]], int], shape: Shape
) -> list[Contender]:
    found = [
        Contender(
            name,
            partial(run, amqp(url)),
            streams.rows,
            shape.demand,
            shape.of_plain if name == OURS else None,
            None if name == OURS else STORED_COST,
        )
        for name, url in streams.urls.items()
    ]
    found.append(Contender(PLAIN, partial(run, plain(streams.rows)), streams.rows))
    return found


def amqp(url: str) -> dict[str, str]:
    """Return options that read the stream from its first record."""
    return {
        "format": "amqp",
        "url": url,
        "subscribe": "records",
        "startingOffsets": "earliest",
    }


def plain(rows: int) -> dict[str, str]:
    """Return options for the same number of generated rows."""
    return {"format": "plain", "rows": str(rows)}


def frame(session: SparkSession, given: dict[str, str], shape: Shape) -> DataFrame:
    """Return a frame with these columns, for batch."""
    options = {name: value for name, value in given.items() if name != "format"}
    return session.read.format(given["format"]).schema(shape.schema()).options(**options).load()


def batch(session: SparkSession, shape: Shape, given: dict[str, str]) -> int:
    """Read all rows into the `noop` sink; return Spark's count of the rows."""
    seen = Observation()
    counted = frame(session, given, shape).observe(seen, f.count(f.lit(1)).alias("rows"))
    counted.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def streaming(session: SparkSession, shape: Shape, folder: Path, given: dict[str, str]) -> int:
    """Read with a query with the trigger `availableNow`; return the rows of its batches."""
    options = {name: value for name, value in given.items() if name != "format"}
    source = session.readStream.format(given["format"]).schema(shape.schema()).options(**options)
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        query = (
            source.load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress: list[Any] = list(query.recentProgress)
    return sum(int(each["numInputRows"]) for each in progress)
