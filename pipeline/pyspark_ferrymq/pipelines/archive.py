"""Archive: write streams as Parquet in the layout of capture files, with a hold at the broker.

    query = write(records, options)      # records as the source `amqp` has them, with `raw`

The hold keeps records that are not archived yet. A file's name states its content, and a repeated
batch writes the same files: even if a process is killed, every record is in the archive once.
`read_capture` reads the archive, and `replay` sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.pipelines.query_progress import Course, Step, follow
from pyspark_ferrymq.pipelines.stream_input import Choice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ferrymq.capture import Coverage


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions:
    """The options of `run`: archive the streams of `source` into the directory `path`.

    `hold` is the name of the hold, or None. Without a hold a stream with limits may drop records
    before they are archived, and the archive fails. With `once` the run ends when all records
    available at its start are archived.
    """

    connection: Mapping[str, str]
    source: Choice
    path: str
    checkpoint: str
    hold: str | None = "archive"
    raw: bool = True
    once: bool = False
    every: str = "10 seconds"

    def check(self) -> None:
        """Raise `AmqpOptionError` for contradictory options."""
        if self.path.rstrip("/") == self.checkpoint.rstrip("/"):
            raise AmqpOptionError("the checkpoint and the archive need different directories")


@dataclass(slots=True)
class ArchivePartition:
    """The archived part of one partition."""

    stream: str
    partition: int
    first: int
    next: int
    files: int
    missing: int


@dataclass(slots=True)
class Archived:
    """The result of a run: the course of the query, and the content of the archive."""

    course: Course = field(default_factory=Course)
    partitions: list[ArchivePartition] = field(default_factory=list)
    stopped: bool = False


def read(spark: SparkSession, options: ArchiveOptions) -> DataFrame:
    """Return the records to be archived: all columns, and the original message with `raw`."""
    reader = spark.readStream.format("amqp").options(**options.connection)
    reader = reader.options(**options.source.stream(options.once)).option("includeMetadata", "true")
    reader = reader.option("includeRaw", "true" if options.raw else "false")
    if options.hold is not None:
        reader = reader.option("hold", options.hold)
    return reader.load()


def write(records: DataFrame, options: ArchiveOptions) -> StreamingQuery:
    """Start to archive the records."""
    from pyspark_ferrymq.capture import CaptureSink

    # Spark finds `amqp` automatically, but only one data source of a package.
    records.sparkSession.dataSource.register(CaptureSink)
    writer: Any = records.writeStream.format("amqp_capture").options(**options.connection)
    writer = writer.option("path", options.path).option("checkpointLocation", options.checkpoint)
    if options.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=options.every)
    query: StreamingQuery = writer.start()
    return query


def run(
    spark: SparkSession, options: ArchiveOptions, tell: Callable[[Step], None] | None = None
) -> Archived:
    """Archive. `tell` is called for every batch. Ctrl-C stops the run and sets `stopped`."""
    options.check()
    found = Archived()
    streams: set[str] = set()

    def step(step: Step) -> None:
        streams.update(step.streams)
        if tell is not None:
            tell(step)

    try:
        follow(write(read(spark, options), options), step, found.course)
    except KeyboardInterrupt:
        found.stopped = True
    names = sorted(streams | set(options.source.streams))
    covered = {name: coverage_of(options.path, name) for name in names}
    found.partitions = [
        ArchivePartition(
            stream=name,
            partition=one.partition,
            first=one.first,
            next=one.next,
            files=len(one.files),
            missing=sum(gap.next - gap.first for gap in one.gaps),
        )
        for name, partitions in covered.items()
        for one in partitions.values()
    ]
    if options.hold is not None:
        _move_hold(options, options.hold, covered)
    return found


def coverage_of(path: str, stream: str) -> dict[int, Coverage]:
    """Return the range that the files of a stream cover, by partition."""
    from ferrymq.capture import coverage, open_place, stream_folder
    from ferrymq.capture.place import names_in

    return coverage(names_in(open_place(path, stream_folder(stream))))


def _move_hold(
    options: ArchiveOptions, holder: str, covered: Mapping[str, Mapping[int, Coverage]]
) -> None:
    """Release archived records, because Spark reports a batch to the source only with the next
    one."""
    from pyspark_ferrymq.options import BrokerOptions, Values
    from pyspark_ferrymq.stream_metadata import open_service

    service = open_service(BrokerOptions.parse(Values(options.connection)))
    try:
        for name, partitions in covered.items():
            offsets = {one.partition: one.next for one in partitions.values() if not one.gaps}
            if offsets:
                service.hold(name, holder, offsets)
    finally:
        service.close()
