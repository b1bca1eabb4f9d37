"""`read_capture`: a range of a stream, from its files and from the broker, as one frame."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from ferrymq.capture import (
    CaptureError,
    CaptureName,
    LocalPlace,
    Place,
    check,
    coverage,
    open_place,
    read_stream_file,
    stream_folder,
)
from ferrymq.capture.place import names_in
from ferrymq.capture.stream_file import STREAM_FILE
from pyspark_ferrymq.capture.capture_range import CaptureRange
from pyspark_ferrymq.capture.file_selection import Cut, cut_files
from pyspark_ferrymq.capture.live_part import live_frame, ranges_of, settings_of
from pyspark_ferrymq.errors import AmqpDataLossError, AmqpOptionError
from pyspark_ferrymq.schema import default_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_ferrymq.stream_metadata import StreamRanges

Bound = datetime | Mapping[int, int] | None
"""A time with a time zone, offsets by partition, or None."""


def read_capture(
    spark: SparkSession,
    path: str,
    stream: str,
    start: Bound = None,
    end: Bound = None,
    *,
    url: str | None = None,
    fail_on_data_loss: bool = True,
    **options: str,
) -> DataFrame:
    """Return the records of `stream` from `start` to before `end`: from its capture files in
    `path` and, if `url` is given, the later ones from the broker.

    `path` is the directory of all streams, or its URI. `start` and `end` are times (aware
    datetimes), or offsets by partition. Partitions without an offset are read from their first
    record, or to their last. `options` are those of the data source `amqp` for the connection, such
    as ``username``. The frame has the columns of the files.

    Files are chosen by their names. Raises `AmqpDataLossError` if records are missing between files
    or between files and broker, if records are in two files, or if the stream was made again since
    the capture; with `fail_on_data_loss` false, missing records are skipped. Raises
    `AmqpOptionError` for invalid arguments.
    """
    bounds = CaptureRange.of(start, end)
    settings = None if url is None else settings_of(url, options)
    if settings is None and options:
        raise AmqpOptionError(f"the option {next(iter(options))!r} needs a url")
    try:
        place = open_place(path, stream_folder(stream))
        # Ask the broker first: records it deletes from now on are in files listed afterwards.
        live = None if settings is None else ranges_of(settings, stream)
        names = names_in(place)
        _compare(place, stream, names, live)
    except CaptureError as error:
        raise AmqpDataLossError(str(error)) from None
    if not names and live is None:
        raise AmqpOptionError(
            f"there are no capture files of the stream {stream!r} in {place.base}, and without a"
            " url there is nothing else to read"
        )
    cuts = cut_files(stream, coverage(names), bounds, live, fail_on_data_loss)
    frames: list[DataFrame] = []
    files = [name for cut in cuts for name in cut.files]
    base = _for_spark(place)
    schema = default_schema(include_metadata=True, include_raw=True)
    if names:
        # Some directories have no raw messages, or fewer columns than the default schema.
        schema = spark.read.parquet(f"{base}/{(files or names)[0].path}").schema
    if files:
        paths = [f"{base}/{name.path}" for name in files]
        frames.append(_within(spark.read.schema(schema).parquet(*paths), cuts, bounds))
    if url is not None:
        tail = live_frame(spark, stream, url, options, cuts, fail_on_data_loss)
        if tail is not None:
            frames.append(bounds.apply(tail.select(*schema.fieldNames())))
    if not frames:
        return spark.createDataFrame([], schema)
    whole = frames[0]
    for other in frames[1:]:
        whole = whole.unionByName(other)
    return whole


def _for_spark(place: Place) -> str:
    """Return the folder of a stream as a URI, whatever Spark's default file system is."""
    return f"file://{place.folder.absolute()}" if isinstance(place, LocalPlace) else place.base


def _compare(
    place: Place, stream: str, names: list[CaptureName], live: StreamRanges | None
) -> None:
    """Raise `CaptureError` if files and stream are not of one incarnation."""
    if live is not None:
        if check(place, stream, live.incarnation) is None and names:
            raise CaptureError(
                f"{place.base} has capture files but no {STREAM_FILE}, which names the stream:"
                " restore it, or leave out url to read only the files"
            )
    elif names:
        read_stream_file(place)


def _within(frame: DataFrame, cuts: list[Cut], bounds: CaptureRange) -> DataFrame:
    """Return the requested rows of files: a file may have more."""
    from pyspark.sql import functions as f

    conditions = [
        (f.col("partition") == cut.partition)
        & (f.col("offset") >= cut.first)
        & (f.col("offset") < cut.boundary)
        for cut in cuts
        if cut.files
    ]
    # Combine in pairs: Spark handles conditions recursively, and there may be many partitions.
    while len(conditions) > 1:
        pairs = [conditions[i : i + 2] for i in range(0, len(conditions), 2)]
        conditions = [pair[0] if len(pair) == 1 else pair[0] | pair[1] for pair in pairs]
    return bounds.apply(frame.where(conditions[0]) if conditions else frame)
