"""A query from a stream into another one, which a test runs on several versions of Spark in turn.

python -m tests.spark.versions.copy_query URL SOURCE TARGET CHECKPOINT
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def copy(spark: SparkSession, url: str, source: str, target: str, checkpoint: str) -> None:
    """Copy what there is, from where the query was."""
    reader = spark.readStream.format("amqp").option("url", url).option("subscribe", source)
    frame = reader.option("startingOffsets", "earliest").schema("body binary").load()
    writer = frame.writeStream.format("amqp").option("url", url).option("address", target)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


def main() -> None:
    """Copy in a session of this process's Spark."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    copy(spark, *sys.argv[1:])
    spark.stop()


if __name__ == "__main__":
    main()
