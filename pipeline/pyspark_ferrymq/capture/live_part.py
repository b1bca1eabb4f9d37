"""The part of a stream that `read_capture` reads from the broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_ferrymq.brokers.spread_streams import expect_here
from pyspark_ferrymq.errors import AmqpDataLossError, AmqpOptionError
from pyspark_ferrymq.options import BrokerOptions, Selection
from pyspark_ferrymq.options.names import CONNECTION
from pyspark_ferrymq.options.option_values import Values
from pyspark_ferrymq.stream_metadata import StreamRanges, open_service

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_ferrymq.capture.file_selection import Cut


def settings_of(url: str, options: Mapping[str, str]) -> BrokerOptions:
    """Return the connection settings. Raises `AmqpOptionError`."""
    known = {name.lower(): name for name in CONNECTION}
    for name in options:
        if name.lower() not in known:
            raise AmqpOptionError(
                f"read_capture has no option {name!r} (options: {', '.join(CONNECTION)})"
            )
    return BrokerOptions.parse(Values({**options, "url": url}))


def ranges_of(settings: BrokerOptions, stream: str) -> StreamRanges:
    """Return the broker's ranges of a stream. Raises `AmqpDataLossError` if it does not exist."""
    service = open_service(settings)
    try:
        found = service.ranges(Selection("subscribe", (stream,))).get(stream)
        if found is None:
            raise AmqpDataLossError(f"{service.explain(stream)}; to read the files, leave out url")
        expect_here([found], settings.place)
        return found
    finally:
        service.close()


def live_frame(
    spark: SparkSession,
    stream: str,
    url: str,
    options: Mapping[str, str],
    cuts: list[Cut],
    fail: bool,
) -> DataFrame | None:
    """Return the records after the boundary of each partition; None if there are none."""
    wanted = [cut for cut in cuts if cut.boundary < cut.next]
    if not wanted:
        return None
    starts = {str(cut.partition): cut.boundary for cut in wanted}
    ends = {str(cut.partition): cut.next for cut in wanted}
    reader = (
        spark.read.format("amqp")
        .options(**dict(options.items()))
        .option("url", url)
        .option("assign", json.dumps({stream: [cut.partition for cut in wanted]}))
        .option("startingOffsets", json.dumps({stream: starts}))
        .option("endingOffsets", json.dumps({stream: ends}))
        .option("failOnDataLoss", "true" if fail else "false")
        .option("includeMetadata", "true")
        .option("includeRaw", "true")
    )
    return reader.load()
