"""The part `sink`: rows of the source `plain` to a stream, with fences, in batch and as a query."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from bench.spark.reading import Shape
from bench.spark.turns import OURS, PLAIN, Contender, Rounds

# The demanded rows per second: of a batch into a broker without a store, and of the others.
BATCH: Final = 200_000
DEMAND: Final = 40_000
# The highest number of rows of a task: a task is one transaction, for which the broker has limits.
TASK_ROWS: Final = 50_000
SHAPE: Final = Shape("body and message id", ("body", "messageId", "subject"), None)


class Sinks:
    """The contenders: a broker for each, and Spark's `noop` sink."""

    def __init__(
        self, session: SparkSession, urls: dict[str, str], rows: int, folder: Path
    ) -> None:
        self._session = session
        self._urls = urls
        self._rows = rows
        self._folder = folder

    def measure(self, rounds: Rounds) -> None:
        """Measure batch and streaming."""
        contenders = [
            Contender(name, partial(self.batch, url), self._rows, BATCH if name == OURS else DEMAND)
            for name, url in self._urls.items()
        ]
        contenders.append(Contender(PLAIN, partial(self.batch, None), self._rows))
        rounds.measure("fenced sink, batch", contenders)
        contenders = [
            Contender(name, partial(self.streaming, url), self._rows, DEMAND)
            for name, url in self._urls.items()
        ]
        contenders.append(Contender(PLAIN, partial(self.streaming, None), self._rows))
        rounds.measure("fenced sink, streaming", contenders)

    def _given(self) -> dict[str, str]:
        """Return the options of the rows to write."""
        tasks = max(2, -(-self._rows // TASK_ROWS))
        return {"rows": str(self._rows), "partitions": str(tasks)}

    def batch(self, url: str | None) -> int:
        """Write all rows to `out`, or to the `noop` sink; return their number."""
        frame: DataFrame = (
            self._session.read.format("plain")
            .schema(SHAPE.schema())
            .options(**self._given())
            .load()
        )
        if url is None:
            frame.write.format("noop").mode("overwrite").save()
        else:
            options = {"url": url, "address": "out"}
            frame.write.format("amqp").options(**options).mode("append").save()
        return self._rows

    def streaming(self, url: str | None) -> int:
        """As `batch`, with a query."""
        source = self._session.readStream.format("plain").schema(SHAPE.schema())
        writer = source.options(**self._given()).load().writeStream
        if url is None:
            writer = writer.format("noop")
        else:
            writer = writer.format("amqp").options(url=url, address="out")
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            query = (
                writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            )
            query.awaitTermination()
            progress: list[Any] = list(query.recentProgress)
        return sum(int(each["numInputRows"]) for each in progress)
