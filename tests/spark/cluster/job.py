"""What is submitted: reads a stream in both executors, writes what it has read into another.

Prints ``done: N rows`` and where tasks have found the package.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession


def main() -> None:
    made = argparse.ArgumentParser()
    made.add_argument("--url", required=True)
    made.add_argument("--register", action="store_true")
    arguments = made.parse_args()
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    if arguments.register:
        import pyspark_ferrymq

        pyspark_ferrymq.register(spark)
    records = spark.read.format("amqp").option("url", arguments.url).option("subscribe", "records")
    frame = records.load()
    writer = frame.select("body", "messageId").write.format("amqp").option("url", arguments.url)
    writer.option("address", "copied").mode("append").save()

    def where(_: object) -> list[str]:
        import pyspark_ferrymq

        return [pyspark_ferrymq.__file__ or ""]

    homes = set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect())
    print(f"done: {frame.count()} rows, package in {sorted(homes)}")
    spark.stop()


if __name__ == "__main__":
    main()
