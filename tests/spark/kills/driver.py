"""The driver of the query that is killed: a program as users write it.

With ``--without`` it lacks what makes it exactly once, so that the ledger has something to find.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from pyspark.sql import SparkSession

from pyspark_ferrymq.reading.stream_reader import OffsetStreamReader
from pyspark_ferrymq.source import DefaultSource


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--rows", required=True, help="the most of a batch")
    parser.add_argument("--without", choices=["fences", "brokers"])
    given = parser.parse_args()
    spark = (
        SparkSession.builder.master(given.master)
        .appName("kills")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    if given.without == "brokers":
        spark.dataSource.register(SourceWithShortOffsets)
    (
        spark.readStream.format("short-offsets" if given.without == "brokers" else "amqp")
        .option("url", given.url)
        .option("brokers", 2)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.rows)
        .schema("body binary, partitionKey string")
        .load()
        .writeStream.format("amqp")
        .option("url", given.url)
        .option("brokers", 2)
        .option("address", "copies")
        .option("delivery", "transactional" if given.without == "fences" else "exactly-once")
        .option("checkpointLocation", given.checkpoint)
        .start()
        .awaitTermination()
    )


class ShortOffsetReader(OffsetStreamReader):
    """A reader that gives Spark the position in one of the two brokers, and keeps the other in the
    memory of the driver."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        whole = super().latestOffset(self._whole(start), limit)
        found = self._shorten(whole)
        if found != start:
            self.wholes[json.dumps(found)] = whole
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        return super().partitions(self._whole(start), self._whole(end))

    def _whole(self, offset: dict[str, Any]) -> dict[str, Any]:
        return self.wholes.get(json.dumps(offset), offset)

    @staticmethod
    def _shorten(offset: dict[str, Any]) -> dict[str, Any]:
        streams = {name: next(iter(each.values())) for name, each in offset["streams"].items()}
        return {"v": 1, "streams": streams}

    wholes: dict[str, dict[str, Any]]


class SourceWithShortOffsets(DefaultSource):
    """The data source with such a reader."""

    @classmethod
    def name(cls) -> str:
        return "short-offsets"

    def streamReader(self, schema: Any) -> ShortOffsetReader:
        reader = ShortOffsetReader.__new__(ShortOffsetReader)
        reader.__dict__.update(super().streamReader(schema).__dict__, wholes={})
        return reader


if __name__ == "__main__":
    main()
