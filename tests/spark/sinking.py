"""What the tests of the sink share: frames to write, a ledger of what has come."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferrymq import Message, blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def messages_at(url: str, address: str, **options: Any) -> list[Message]:
    """All there is at an address: of a stream from its beginning, of a queue taken out of it."""
    with blocking.connect(url) as connection:
        receiver = connection.receiver(address, credit=0, **options)
        found: list[Message] = []
        while True:
            receiver.add_credit(1000)
            receiver.drain()
            before = len(found)
            try:
                while True:
                    delivery = receiver.receive(timeout=0)
                    delivery.accept()
                    found.append(delivery.message)
            except TimeoutError:
                pass
            if len(found) == before:
                return found


def ledger(url: str, stream: str) -> Counter[str]:
    """How often each body is in a stream."""
    return Counter(
        bytes(message.body).decode() for message in messages_at(url, stream, start="first")
    )


def expected(*numbers: range) -> Counter[str]:
    """Every row once."""
    return Counter(f"row-{number}" for part in numbers for number in part)


def rows(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    """So many rows with a body, in so many tasks."""
    return spark.range(0, count, 1, tasks).selectExpr("concat('row-', id) as body")


def write_lines(folder: Path, file: int, numbers: range) -> None:
    """One more file of a source for queries: a body in each line."""
    folder.mkdir(exist_ok=True)
    draft = folder.parent / f"draft-{file}"
    draft.write_text("".join(f"row-{number}\n" for number in numbers))
    # Spark reads files in the order of their times.
    os.utime(draft, (1_700_000_000 + file, 1_700_000_000 + file))
    draft.rename(folder / f"{file:04}.txt")


def lines(spark: SparkSession, folder: Path, files: int = 2) -> DataFrame:
    """A source that is the same whenever it is read again: `files` for each batch, a task each."""
    return (
        spark.readStream.option("maxFilesPerTrigger", str(files))
        .text(str(folder))
        .withColumnRenamed("value", "body")
    )


def run(frame: DataFrame, checkpoint: Path, **options: object) -> StreamingQuery:
    """A query over all there is, to its end. Raises `StreamingQueryException`."""
    writer = frame.writeStream.format("amqp").option("checkpointLocation", str(checkpoint))
    for name, value in options.items():
        writer = writer.option(name, str(value))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had ended before Spark wrote down that a batch is done."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink()
