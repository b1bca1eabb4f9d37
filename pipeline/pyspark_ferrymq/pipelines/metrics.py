"""Windowed metrics per address: number and size of messages, transit times, late and duplicate
messages.

    records = spark.readStream.format("amqp").schema(COLUMNS).options(…).load()
    results = windowed(measured(records), window="1 minute", watermark="1 minute")

The transit time is from `creation-time`, set by the sender, to the time the broker appended the
record. By default windows use the broker's time: it never goes back, so no message is too late for
its window. A duplicate has the message-id of another message in the same window.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from pyspark.sql import functions as sf

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.pipelines.query_progress import Course, Step, follow
from pyspark_ferrymq.pipelines.stream_input import Choice
from pyspark_ferrymq.source import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

COLUMNS: Final = (
    "address string, body binary, enqueuedTime timestamp, creationTime timestamp, messageId string"
)
"""The columns that are read; others are not decoded."""

RESULT: Final = (
    "start timestamp, end timestamp, address string, messages bigint, bytes bigint,"
    " p50 double, p95 double, p99 double, slowest double, late bigint, duplicates bigint"
)
"""The columns of results: transit times in milliseconds, bytes of bodies."""

# The accuracy of percentiles: 1000 is exact to a thousandth of the rank. A higher accuracy needs
# more memory.
_ACCURACY: Final = 1000


def measured(records: DataFrame, late: str = "1 minute") -> DataFrame:
    """Return records with `bytes`, `late`, and `took` in milliseconds.

    `took` is null without a creation-time.
    """
    took = sf.unix_millis("enqueuedTime") - sf.unix_millis("creationTime")
    return records.select(
        "address",
        "enqueuedTime",
        sf.coalesce("creationTime", "enqueuedTime").alias("createdTime"),
        sf.coalesce(sf.octet_length("body"), sf.lit(0)).cast("bigint").alias("bytes"),
        took.alias("took"),
        sf.coalesce(
            sf.col("creationTime") + sf.expr(f"INTERVAL {late}") < sf.col("enqueuedTime"),
            sf.lit(False),
        ).alias("late"),
        # The state needs eight bytes for each message, whatever the length of its id.
        sf.when(sf.col("messageId").isNotNull(), sf.xxhash64("messageId")).alias("id"),
    )


def windowed(
    records: DataFrame,
    window: str = "1 minute",
    watermark: str | None = None,
    by: Literal["enqueued", "created"] = "enqueued",
) -> DataFrame:
    """Return the metrics of `measured` records: a row for each window and address, see `RESULT`.

    In a stream with a `watermark`, the row of a window comes when the window is complete: when
    records that much later than its end have been seen. Later messages of the window are not
    counted.
    """
    time = f"{by}Time"
    if watermark is not None:
        records = records.withWatermark(time, watermark)
    took = sf.percentile_approx("took", sf.lit([0.5, 0.95, 0.99]), _ACCURACY)
    results = records.groupBy(sf.window(time, window).alias("window"), "address").agg(
        sf.count(sf.lit(1)).alias("messages"),
        sf.sum("bytes").alias("bytes"),
        took.alias("took"),
        sf.max("took").alias("slowest"),
        sf.sum(sf.col("late").cast("bigint")).alias("late"),
        (sf.count("id") - sf.size(sf.collect_set("id"))).alias("duplicates"),
    )
    return results.select(
        sf.col("window.start").alias("start"),
        sf.col("window.end").alias("end"),
        "address",
        "messages",
        "bytes",
        *(sf.col("took")[i].cast("double").alias(f"p{p}") for i, p in enumerate((50, 95, 99))),
        sf.col("slowest").cast("double").alias("slowest"),
        "late",
        sf.col("duplicates").cast("bigint").alias("duplicates"),
    )


def as_messages(results: DataFrame) -> DataFrame:
    """Return results as messages for the sink: one JSON message per row, keyed by the address."""
    # The names of columns would have to be computed, which Declarative Pipelines do not allow here.
    return results.select(
        sf.to_json(sf.struct("*")).cast("binary").alias("body"),
        sf.lit("application/json").alias("contentType"),
        sf.lit("metrics").alias("subject"),
        sf.concat_ws("@", "address", sf.date_format("start", "yyyy-MM-dd'T'HH:mm:ss'Z'")).alias(
            "messageId"
        ),
        sf.col("address").alias("groupId"),
    )


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """The options of `run`. `source` selects the streams, `connection` has the connection options.

    Results go to the stream or queue `to`, as Parquet to the directory `parquet`, and to the
    caller. With `once` and without a `checkpoint`, everything available is measured in one batch,
    with all windows. With a `checkpoint` a run continues where the last one ended, and windows come
    when they are complete.
    """

    connection: Mapping[str, str]
    source: Choice
    window: str = "1 minute"
    watermark: str = "1 minute"
    late: str = "1 minute"
    by: Literal["enqueued", "created"] = "enqueued"
    to: str | None = None
    parquet: str | None = None
    checkpoint: str | None = None
    once: bool = False
    every: str = "5 seconds"

    def check(self) -> None:
        """Raise `AmqpOptionError` if exactly-once results are not possible."""
        if not self.once and self.checkpoint is None and (self.to or self.parquet):
            raise AmqpOptionError(
                "to write results once, a checkpoint is needed: give --checkpoint DIR, or --once to"
                " measure all available records in one batch"
            )


@dataclass(slots=True)
class Measured:
    """The result of a run: rows with the columns of `RESULT`, and the course of the query.

    With Spark Connect, a query has no rows here: its batches are written on the server.
    """

    rows: list[Row] = field(default_factory=list)
    course: Course = field(default_factory=Course)
    stopped: bool = False


def run(
    spark: SparkSession,
    options: MetricsOptions,
    tell: Callable[[Step], None] | None = None,
    show: Callable[[list[Row]], None] | None = None,
) -> Measured:
    """Measure, and write each result exactly once, even if the run is killed and repeated.

    `tell` is called for every batch, `show` with the results of each. Ctrl-C stops the run and sets
    `Measured.stopped`.
    """
    options.check()
    found = Measured()
    is_query = not options.once or options.checkpoint is not None
    if is_query and is_connect(spark) and options.to is None and options.parquet is None:
        raise AmqpOptionError(
            "with Spark Connect, the results of a query do not come to its client: give --to"
            " ADDRESS or --parquet DIR, or --once without --checkpoint"
        )

    def take(frame: DataFrame, batch: int, run_id: str) -> None:
        rows = frame.sort("start", "address").collect()
        if rows:
            # The rows are few, and sorted, so that a repeated batch writes the same rows.
            table = frame.sparkSession.createDataFrame(rows, RESULT)
            _write(table, options, batch, run_id)
            found.rows.extend(rows)
            if show is not None:
                show(rows)

    if not is_query:
        reader = spark.read.format("amqp").schema(COLUMNS).options(**options.connection)
        records = reader.options(**options.source.batch()).load()
        frame = windowed(measured(records, options.late), options.window, by=options.by)
        take(frame, 0, f"metrics-{uuid4()}")
        return found

    stream = spark.readStream.format("amqp").schema(COLUMNS).options(**options.connection)
    records = stream.options(**options.source.stream(options.once)).load()
    frame = windowed(measured(records, options.late), options.window, options.watermark, options.by)
    with TemporaryDirectory(prefix="ferrymq-metrics-") as temporary:
        checkpoint = options.checkpoint or temporary

        def batch(frame: DataFrame, number: int) -> None:
            take(frame, number, f"metrics-{_query_id(frame.sparkSession, checkpoint)}")

        writer: Any = frame.writeStream.outputMode("append").foreachBatch(batch)
        writer = writer.option("checkpointLocation", checkpoint)
        if options.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=options.every)
        try:
            follow(writer.start(), tell, found.course)
        except KeyboardInterrupt:
            found.stopped = True
    return found


def _query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query with this checkpoint, which stays the same after a restart.

    It is read from the checkpoint, because with Spark Connect no function knows its query.
    """
    lines = spark.read.text(f"{checkpoint}/metadata").collect()
    return str(json.loads(lines[0]["value"])["id"])


def _write(results: DataFrame, options: MetricsOptions, batch: int, run_id: str) -> None:
    if options.parquet is not None:
        # Each batch has its own directory, which a repeated batch replaces.
        place = f"{options.parquet}/run={run_id}/batch={batch:09}"
        results.coalesce(1).write.mode("overwrite").parquet(place)
    if options.to is not None:
        writer = as_messages(results).coalesce(1).write.format("amqp").mode("append")
        writer = writer.options(**options.connection).option("address", options.to)
        writer.options(txnAppId=run_id, txnVersion=str(batch)).save()
