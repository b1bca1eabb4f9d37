"""A range of one stream, from the broker alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_ferrymq.capture.capture_reader import Bound


def live_range(
    spark: SparkSession,
    connection: Mapping[str, str],
    stream: str,
    start: Bound,
    end: Bound,
) -> DataFrame:
    """Return the records from `start` to before `end`, with the columns of `read_capture`."""
    reader = spark.read.format("amqp").options(**connection)
    reader = reader.option("includeMetadata", "true").option("includeRaw", "true")
    options = {**_bound("starting", stream, start), **_bound("ending", stream, end)}
    if isinstance(start, Mapping):
        # Only the named partitions are read, so that each has an end.
        options["assign"] = json.dumps({stream: sorted(start)})
    else:
        options["subscribe"] = stream
    return reader.options(**options).load()


def _bound(which: str, stream: str, bound: Bound) -> dict[str, str]:
    if bound is None:
        return {}
    if isinstance(bound, Mapping):
        offsets = {str(number): offset for number, offset in sorted(bound.items())}
        return {f"{which}Offsets": json.dumps({stream: offsets})}
    options = {f"{which}Timestamp": str(round(bound.timestamp() * 1000))}
    if which == "starting":
        options["startingOffsetsByTimestampStrategy"] = "latest"
    return options
