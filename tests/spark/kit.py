"""What tests of the source do beside Spark: make streams, fill them, look at the broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

from ferrymq import Message, blocking
from tests.interop.broker_process import PATIENCE, BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Streams:
    """A connection to a broker, for what the test itself does there."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._connection = blocking.connect(broker.url, container_id="the-test")
        self._management = self._connection.management(timeout=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, operation: str, type: str, name: str | None = None, **arguments: object) -> dict:
        """A management operation; underscores in arguments are hyphens."""
        body = {key.replace("_", "-"): value for key, value in arguments.items()}
        return self._management.request(operation, type, name, body).map()

    def create(self, name: str, partitions: int = 1, **settings: object) -> None:
        self.ask("CREATE", "stream", name, partitions=partitions, **settings)

    def delete(self, name: str) -> None:
        self.ask("DELETE", "stream", name)

    def publish(self, address: str, bodies: Iterable[bytes | Message]) -> None:
        """In order, to a stream (partitions take turns) or to one partition."""
        messages = [body if isinstance(body, Message) else Message(body) for body in bodies]
        with self._connection.sender(address) as sender:
            sender.send_many(messages, timeout=PATIENCE)

    def fill(self, address: str, count: int, first: int = 0) -> None:
        """Records whose bodies are the numbers from `first` on."""
        self.publish(address, [b"%d" % number for number in range(first, first + count)])

    def ranges(self, name: str) -> list[tuple[int, int]]:
        """First and next offset of each partition."""
        (stream,) = self.ask("RANGES", "stream", names=[name])["streams"]
        return [(p["first-offset"], p["next-offset"]) for p in stream["partitions"]]

    def trim(self, name: str) -> None:
        """All records go; offsets go on."""
        self.ask("PURGE", "stream", name)

    def others(self) -> list[str]:
        """The container-ids of all connections but this one."""
        names = [str(row["container-id"]) for row in self._management.query("connection")]
        return [name for name in names if name != "the-test"]


def read(spark: SparkSession, broker: BrokerProcess, **options: object) -> DataFrame:
    """A batch; `schema` among the options are columns."""
    schema = options.pop("schema", None)
    reader = spark.read.format("amqp").option("url", broker.url)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return (reader if schema is None else reader.schema(str(schema))).load()


def follow(spark: SparkSession, broker: BrokerProcess, **options: object) -> DataFrame:
    """A query that has not begun; `schema` among the options are columns."""
    schema = options.pop("schema", None)
    reader = spark.readStream.format("amqp").option("url", broker.url)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return (reader if schema is None else reader.schema(str(schema))).load()


def drain(frame: DataFrame, checkpoint: object, output: object) -> StreamingQuery:
    """Write what there is to Parquet files, batch after batch, and return the query, which is over.
    Raises what it ended with."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(output))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def numbers(frame: DataFrame) -> list[int]:
    """The numbers in the bodies, in order of their size."""
    return sorted(int(row.body) for row in frame.select("body").collect())


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, "it has not come to that"
        time.sleep(0.02)


def publish(broker: BrokerProcess, address: str, first: int, count: int) -> None:
    """Send messages whose bodies are so many numbers from `first` on."""
    with (
        blocking.connect(broker.url) as connection,
        connection.sender(address) as sender,
    ):
        for i in range(first, first + count):
            sender.send(Message(b"%d" % i))


def take_all(broker: BrokerProcess, address: str) -> list[Message]:
    """What is in a queue, which is empty then."""
    taken: list[Message] = []
    with blocking.connect(broker.url) as connection:
        receiver = connection.receiver(address, credit=0)
        receiver.add_credit(10_000)
        receiver.drain(timeout=30)
        while True:
            try:
                deliveries = receiver.receive_many(10_000, timeout=0)
            except TimeoutError:
                return taken
            for delivery in deliveries:
                taken.append(delivery.message)
                delivery.accept()
