"""Replay: send a range of a stream, from its archive and the broker, to another stream.

Messages are sent unchanged: the bare message byte for byte, in the order of each partition, to the
partition of the same number. Annotations state the origin of each message:

| annotation | type | |
|---|---|---|
| `x-opt-replayed-from` | string | the stream |
| `x-opt-replayed-partition` | int | the partition there |
| `x-opt-replayed-offset` | long | the offset there |
| `x-opt-replayed-time` | timestamp | when it was appended there |

The range is resolved once, into offsets, and written to the checkpoint together with a name of the
run: `plan`. It is sent in steps, each with the run and its number as `txnAppId` and `txnVersion`.
So a killed run continues where it was, and nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from pyspark_ferrymq.errors import AmqpDataLossError, AmqpOptionError
from pyspark_ferrymq.pipelines.replay_plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_ferrymq.capture.capture_reader import Bound


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options of `run`: send the records of `stream` from `start` to before `end` to `target`.

    The records are read from the `archive`, if given, and with `live` the later ones from the
    broker. `start` and `end` are times, or offsets by partition. `step` is the number of records
    sent at a time: they go into one transaction for each partition. Without `annotate` messages are
    sent byte for byte.
    """

    connection: Mapping[str, str]
    stream: str
    target: str
    checkpoint: str
    archive: str | None = None
    live: bool = True
    start: Bound = None
    end: Bound = None
    step: int = 40_000
    annotate: bool = True

    def check(self) -> None:
        """Raise `AmqpOptionError` for invalid options."""
        if self.archive is None and not self.live:
            raise AmqpOptionError("there is nothing to read: give --archive DIR, or omit --no-live")
        if self.target == self.stream:
            raise AmqpOptionError(f"{self.target!r} is also the source: give another --to")
        if not 1 <= self.step <= 80_000:
            raise AmqpOptionError("--step: from 1 to 80000, because a step is sent in one or a"
                                  " few transactions")  # fmt: skip


@dataclass(slots=True)
class Replayed:
    """The result of a run: `sent` records now, and `before` in earlier runs of the plan."""

    plan: Plan
    sent: int = 0
    before: int = 0


# Retries for a broker that was reachable a moment ago: it may be down for two minutes.
_PATIENT: Final = {"fetchOffset.numRetries": "60", "fetchOffset.retryIntervalMs": "2s"}


def records(
    spark: SparkSession,
    options: ReplayOptions,
    start: Bound = None,
    end: Bound = None,
    *,
    patient: bool = False,
) -> DataFrame:
    """Return the records of the stream from `start` to before `end`, with position and `raw`.

    If `patient`, wait for an unreachable broker, unless there is an archive.
    """
    if options.archive is not None:
        from pyspark_ferrymq.capture import read_capture

        # `read_capture` takes the options of connections, but not the options of reading.
        connection: dict[str, Any] = dict(options.connection) if options.live else {}
        frame = read_capture(spark, options.archive, options.stream, start, end, **connection)
    else:
        from pyspark_ferrymq.pipelines.live_range import live_range

        connection = {**options.connection, **(_PATIENT if patient else {})}
        frame = live_range(spark, connection, options.stream, start, end)
    if "raw" not in frame.columns:
        raise AmqpOptionError(
            f"the archive of {options.stream!r} has no original messages (column raw), which"
            " are needed to send them again"
        )
    return frame.select("partition", "offset", "enqueuedTime", "raw")


def ranges(frame: DataFrame) -> dict[int, tuple[int, int]]:
    """Return by partition the first offset of `records`, and the offset after the last record.

    Raises `AmqpDataLossError` if offsets in between are missing.
    """
    rows = (
        frame.groupBy("partition")
        .agg(sf.min("offset"), sf.max("offset"), sf.count(sf.lit(1)))
        .collect()
    )
    found: dict[int, tuple[int, int]] = {}
    for partition, first, last, count in rows:
        missing = last + 1 - first - count
        if missing:
            raise AmqpDataLossError(
                f"partition {partition}: of the offsets {first} to {last}, {missing} are missing; a"
                " replay would leave them out. Choose a range without them"
            )
        found[partition] = (first, last + 1)
    return dict(sorted(found.items()))


def as_messages(frame: DataFrame, stream: str, target: str, annotate: bool = True) -> DataFrame:
    """Return `records` in the form for the sink: `raw`, and the `address` of the partition."""

    if annotate:

        def told(raw: bytes, partition: int, offset: int, time: int) -> bytes:
            return _told(bytes(raw), stream, partition, offset, time)

        # A function on rows: one on columns would need pandas.
        tell = sf.udf(told, "binary", useArrow=False)
        time = sf.unix_millis("enqueuedTime")
        frame = frame.withColumn("raw", tell("raw", "partition", "offset", time))
    address = sf.concat(sf.lit(f"{target}::"), sf.col("partition").cast("string"))
    return frame.select(address.alias("address"), "raw")


def _told(raw: bytes, stream: str, partition: int, offset: int, time: int) -> bytes:
    from ferrymq_codec.scalars import Int, Timestamp
    from pyspark_ferrymq.pipelines.sections import annotated

    return annotated(
        raw,
        {
            "x-opt-replayed-from": stream,
            "x-opt-replayed-partition": Int(partition),
            "x-opt-replayed-offset": offset,
            "x-opt-replayed-time": Timestamp(time),
        },
    )


def run(
    spark: SparkSession,
    options: ReplayOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Replayed:
    """Replay, or continue a run with this checkpoint.

    `progress` gets the number of records sent, and the total. Raises `AmqpOptionError` if the
    checkpoint is that of another replay, or if the target exists and is not empty.
    """
    from pyspark_ferrymq.pipelines.replay_target import last_step, prepare

    options.check()
    wanted = (options.stream, options.target, options.annotate)
    plan = Plan.load(options.checkpoint, wanted)
    if plan is None:
        found = ranges(records(spark, options, options.start, options.end))
        prepare(options.connection, options.target, _width(found))
        plan = Plan.make(wanted, found, options.step)
        plan.save(options.checkpoint)
    done = last_step(options.connection, plan.run)
    replayed = Replayed(plan)
    for number, part in enumerate(plan.steps()):
        count = sum(next - first for first, next in part.values())
        if number <= done:
            replayed.before += count
            continue
        _send(spark, options, plan, number, part)
        replayed.sent += count
        if progress is not None:
            progress(replayed.before + replayed.sent, plan.count)
    return replayed


def _send(
    spark: SparkSession,
    options: ReplayOptions,
    plan: Plan,
    number: int,
    part: Mapping[int, tuple[int, int]],
) -> None:
    """Send a step. When it is repeated, its tasks are the same: see `docs/pipeline/sink.md`."""
    frame = records(
        spark,
        options,
        {partition: first for partition, (first, _) in part.items()},
        {partition: next for partition, (_, next) in part.items()},
        patient=True,
    )
    width = max(1, len(part))
    frame = frame.repartition(width, "partition").sortWithinPartitions("partition", "offset")
    writer: Any = as_messages(frame, options.stream, options.target, options.annotate).write
    writer = writer.format("amqp").mode("append").options(**options.connection)
    writer.options(txnAppId=plan.run, txnVersion=str(number), tasks=str(width)).save()


def _width(found: Mapping[int, tuple[int, int]]) -> int:
    return max(found, default=0) + 1
