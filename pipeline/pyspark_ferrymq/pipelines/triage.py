"""Dead-letter triage: what lies in a dead-letter queue, in groups, with samples; and a chosen part
of it sent back or elsewhere.

    records = spark.read.format("amqp").schema(COLUMNS).options(…, queueMode="browse").load()
    grouped(letters(records)).show()

Looking takes nothing away. How messages are moved so that each is moved once: `moving`.
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
"""What is read."""

GROUP: Final = ("reason", "source", "condition", "subject")
"""What letters are grouped by."""

_PREVIEW: Final = 120
# Lengths of time that a bar stands for, in seconds; and how many bars there should be at most.
_STEPS: Final = (1, 10, 60, 600, 3600, 21_600, 86_400, 604_800)
_BARS: Final = 80


def letters(records: DataFrame) -> DataFrame:
    """Dead letters, with what their annotations tell in columns of its own: `reason`, `source`,
    `condition`, `description`, `diedAt`, `deaths`; `bytes` of the body, and the body as `text`."""

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
    """A row for each group of `letters`, the largest first: `count`, `bytes`, `first` and `last`
    time, and the latest few as `samples`."""
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
    """How many died when, by reason: `start`, `reason`, `count`, for a span of so many seconds."""
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
    """What `run` is to do with the letters in `queue`, or those for which the SQL expression
    `where` is true: only look; with `retry` send each back to where it came from; or send all to
    the address `move_to`. With `dry_run` nothing is sent."""

    connection: Mapping[str, str]
    queue: str
    where: str | None = None
    samples: int = 3
    retry: bool = False
    move_to: str | None = None
    dry_run: bool = False

    @property
    def moves(self) -> bool:
        """Whether anything is to be moved."""
        return (self.retry or self.move_to is not None) and not self.dry_run

    def check(self) -> None:
        """Raise `AmqpOptionError` for what contradicts itself."""
        if self.retry and self.move_to is not None:
            raise AmqpOptionError("--retry sends letters back, --move-to elsewhere: one of them")
        if (self.retry or self.move_to is not None) and self.where is None:
            raise AmqpOptionError(
                "which letters are to be moved? say --where EXPRESSION; --where true for all"
            )
        if self.move_to == self.queue:
            raise AmqpOptionError(f"--move-to {self.queue}: the letters are there already")


@dataclass(slots=True)
class Triaged:
    """What was found: rows as `grouped` and `over_time` have them; what was moved."""

    groups: list[Row] = field(default_factory=list)
    times: list[Row] = field(default_factory=list)
    moved: Moved | None = None

    @property
    def count(self) -> int:
        """How many letters there are, or were before some were moved."""
        return sum(int(row["count"]) for row in self.groups)


def run(
    spark: SparkSession,
    options: TriageOptions,
    say: Callable[[str], None] = lambda text: None,
) -> Triaged:
    """Look at the queue, and move what is to be moved. `say` is told what is being done."""
    options.check()
    reader = spark.read.format("amqp").schema(COLUMNS).options(**options.connection)
    records = reader.options(subscribe=options.queue, queueMode="browse").load()
    dead = letters(records)
    if options.where is not None:
        dead = dead.where(options.where)
    # Looked at once: what comes meanwhile is in all of the result or in none of it.
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
