"""Capture in Spark: writing capture files, and reading them together with what is live.

The sink takes whole streams, in the order in which the source `amqp` reads them. Columns may be
left out, but not `address`, `partition`, `offset` and `enqueuedTime`:

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

from pyspark_ferrymq.capture.read_capture import read_capture
from pyspark_ferrymq.capture.sink import CaptureSink

__all__ = ["CaptureSink", "read_capture"]
