"""A client of Spark Connect, a process of its own: `python -m tests.spark.connect_client SERVER
BROKER FOLDER`. It copies the stream `orders` to `copies`, and prints what it has found as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import pyspark_ferrymq
from pyspark_ferrymq import LagListener, lag_of


def main(server: str, broker: str, folder: str) -> None:
    spark = SparkSession.builder.remote(server).getOrCreate()
    pyspark_ferrymq.register(spark)
    lags: list[int] = []
    spark.streams.addListener(LagListener(lambda lag: lags.append(lag.total), log=False))

    def copy() -> int | None:
        orders = spark.readStream.format("amqp").options(
            url=broker, subscribe="orders", startingOffsets="earliest", columns="kafka"
        )
        # With more than one batch, the query is behind after the first one.
        orders = orders.option("maxOffsetsPerTrigger", 40)
        copies = orders.load().select("key", "value").writeStream.format("amqp")
        copies = copies.options(url=broker, topic="copies", columns="kafka")
        copies = copies.option("checkpointLocation", f"{folder}/checkpoint")
        query = copies.trigger(availableNow=True).start()
        query.awaitTermination()
        report = query.lastProgress
        lag = None if report is None else lag_of(report)
        return None if lag is None else lag.total

    def count(stream: str) -> int:
        return spark.read.format("amqp").options(url=broker, subscribe=stream).load().count()

    found = {"orders": count("orders"), "lag": copy(), "copies": count("copies")}
    # The batch that was the last one is done again.
    commits = Path(folder, "checkpoint", "commits")
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in (commits / f"{last}", commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    copy()
    found |= {"copies again": count("copies"), "lags": max(lags, default=None)}
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
