"""Capture in Spark: writing of capture files, and reading of them together with live records.

The sink needs whole streams, in the order in which the source `amqp` reads them. The columns
`address`, `partition`, `offset` and `enqueuedTime` are required, the others optional:

    pyspark_ferrymq.register(spark)
    query = (
        spark.readStream.format("amqp")
        .option("url", url).option("subscribe", "orders")
        .option("includeMetadata", "true").option("includeRaw", "true")
        .load()
        .writeStream.format("amqp_capture")
        .option("path", "/srv/capture")            # a directory, or a URI that pyarrow knows
        .option("url", url)                        # to compare incarnations; with user and password
        .option("checkpointLocation", "/srv/checkpoints/archive")
        .start()
    )

`read_capture` reads a range of a stream from its files, and the rest from the broker:

    frame = read_capture(spark, "/srv/capture", "orders", start, end, url=url)
"""

from pyspark_ferrymq.capture.capture_reader import read_capture
from pyspark_ferrymq.capture.sink import CaptureSink

__all__ = ["CaptureSink", "read_capture"]
