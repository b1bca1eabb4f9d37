"""Dead-letter triage: group the messages of a dead-letter queue, with samples, and send a chosen
part of them back or to another address.

    records = spark.read.format("amqp").schema(COLUMNS).options(…, queueMode="browse").load()
    grouped(letters(records)).show()

Browsing leaves the messages in the queue. `move_messages` explains how each is moved once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.pipelines.move_messages import Moved, fingerprint, move

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

COLUMNS: Final = (
    "body binary, messageId string, subject string, groupId string, contentType string,"
    " creationTime timestamp, deliveryCount bigint, applicationProperties map<string,string>,"
    " messageAnnotations map<string,string>, raw binary"
)
"""The columns that are read."""

GROUP: Final = ("reason", "source", "condition", "subject")
"""The columns by which dead letters are grouped."""

_PREVIEW: Final = 120
# The possible durations of a bar, in seconds, and the highest number of bars in a plot.
_STEPS: Final = (1, 10, 60, 600, 3600, 21_600, 86_400, 604_800)
_BARS: Final = 80


def letters(records: DataFrame) -> DataFrame:
    """Return dead letters with columns from their annotations: `reason`, `source`, `condition`,
    `description`, `diedAt`, `deaths`; `bytes` of the body, and the body as `text`."""

    def told(name: str) -> Column:
        return sf.col("messageAnnotations").getItem(f"x-opt-deadletter-{name}")

    return records.select(
        sf.coalesce(told("reason"), sf.lit("unknown")).alias("reason"),
        told("source").alias("source"),
        told("condition").alias("condition"),
        told("description").alias("description"),
        told("time").cast("timestamp").alias("diedAt"),
        told("count").cast("int").alias("deaths"),
        sf.octet_length("body").alias("bytes"),
        sf.make_valid_utf8(sf.col("body").cast("string")).alias("text"),
        "messageId",
        "subject",
        "groupId",
        "contentType",
        "creationTime",
        "deliveryCount",
        "applicationProperties",
        "messageAnnotations",
        "raw",
    )


def grouped(dead: DataFrame, samples: int = 3) -> DataFrame:
    """Return a row for each group of `letters`, the largest first: `count`, `bytes`, `first` and
    `last` time, and the latest few as `samples`."""
    from pyspark.sql import Window

    newest = Window.partitionBy(*GROUP).orderBy(sf.col("diedAt").desc_nulls_last(), "messageId")
    sample = sf.struct(
        "diedAt", "messageId", "description", sf.substring("text", 1, _PREVIEW).alias("text")
    )
    return (
        dead.withColumn("rank", sf.row_number().over(newest))
        .groupBy(*GROUP)
        .agg(
            sf.count(sf.lit(1)).alias("count"),
            sf.sum("bytes").alias("bytes"),
            sf.min("diedAt").alias("first"),
            sf.max("diedAt").alias("last"),
            sf.collect_list(sf.when(sf.col("rank") <= samples, sample)).alias("samples"),
        )
        .sort(sf.desc("count"), *GROUP)
    )


def over_time(dead: DataFrame, seconds: float) -> DataFrame:
    """Count by time and reason: `start`, `reason`, `count`. All dead letters are within
    `seconds`."""
    step = next((step for step in _STEPS if seconds / step <= _BARS), _STEPS[-1])
    window = sf.window("diedAt", f"{step} seconds")
    return (
        dead.where("diedAt IS NOT NULL")
        .groupBy(window.alias("window"), "reason")
        .agg(sf.count(sf.lit(1)).alias("count"))
        .select(sf.col("window.start").alias("start"), "reason", "count")
        .sort("start", "reason")
    )


@dataclass(frozen=True, kw_only=True)
class TriageOptions:
    """The options of `run` for the messages in `queue`, or those for which the SQL expression
    `where` is true. By default they are only browsed. With `retry` each is sent back to its
    original queue; `move_to` is an address to send all to. With `dry_run` nothing is sent."""

    connection: Mapping[str, str]
    queue: str
    where: str | None = None
    samples: int = 3
    retry: bool = False
    move_to: str | None = None
    dry_run: bool = False

    @property
    def moves(self) -> bool:
        """Whether messages are to be moved."""
        return (self.retry or self.move_to is not None) and not self.dry_run

    def check(self) -> None:
        """Raise `AmqpOptionError` for contradictory options."""
        if self.retry and self.move_to is not None:
            raise AmqpOptionError("--retry and --move-to exclude each other")
        if (self.retry or self.move_to is not None) and self.where is None:
            raise AmqpOptionError(
                "select the messages to move: give --where EXPRESSION, or --where true for all"
            )
        if self.move_to == self.queue:
            raise AmqpOptionError(
                f"--move-to {self.queue}: it is the queue of the dead letters itself"
            )


@dataclass(slots=True)
class Triaged:
    """The result: rows with the columns of `grouped` and `over_time`, and the moved messages."""

    groups: list[Row] = field(default_factory=list)
    times: list[Row] = field(default_factory=list)
    moved: Moved | None = None

    @property
    def count(self) -> int:
        """The number of dead letters before any were moved."""
        return sum(int(row["count"]) for row in self.groups)


def run(
    spark: SparkSession,
    options: TriageOptions,
    say: Callable[[str], None] = lambda text: None,
) -> Triaged:
    """Browse the queue, and move messages as requested. `say` gets the current activity."""
    options.check()
    reader = spark.read.format("amqp").schema(COLUMNS).options(**options.connection)
    records = reader.options(subscribe=options.queue, queueMode="browse").load()
    dead = letters(records)
    if options.where is not None:
        dead = dead.where(options.where)
    # Browse only once, so that all results have the same messages.
    dead = dead.persist()
    try:
        say(f"browsing {options.queue}")
        found = Triaged(groups=grouped(dead, options.samples).collect())
        spans = [row[end] for row in found.groups for end in ("first", "last") if row[end]]
        if spans:
            span = (max(spans) - min(spans)).total_seconds()
            found.times = over_time(dead, span).collect()
        if options.moves:
            say(f"moving {found.count:,} messages")
            chosen = Counter(
                fingerprint(bytes(row["raw"])) for row in dead.select("raw").toLocalIterator()
            )
            found.moved = asyncio.run(_move(options, chosen, say))
    finally:
        dead.unpersist()
    return found


async def _move(
    options: TriageOptions, chosen: Counter[bytes], say: Callable[[str], None]
) -> Moved:
    from pyspark_ferrymq.traffic.run import connecting

    done = 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        say(f"{done:,} of {chosen.total():,} messages moved")

    async with connecting(options.connection) as connection:
        return await move(connection, options.queue, chosen, options.move_to, progress)
