"""A frame written once: every row is there once, whatever becomes of tasks and jobs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ferrymq import Digest, Fence, Message, blocking
from ferrymq.arrow import MessageEncoder
from ferrymq_types.messaging import AmqpValue
from tests.interop.broker_process import BrokerProcess
from tests.spark.sinking import expected, ledger, messages_at, rows

if TYPE_CHECKING:

    from pyspark.sql import DataFrame, SparkSession

CONFIG = """
[[stream]]
pattern = "s-*"
partitions = 3

[[queue]]
pattern = "small-*"
max-length = 5

[[topic]]
pattern = "t-*"

[limits]
max-message-size = "64KiB"
transaction-work = 2000
"""


@pytest.fixture
def stream(address: str) -> str:
    return f"s-{address}"


def write(frame: DataFrame, url: str, **options: object) -> None:
    writer = frame.write.format("amqp").mode("append").option("url", url)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def test_every_row_once_in_a_stream(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    write(rows(spark, 1000, tasks=3), broker.url, address=stream)
    assert ledger(broker.url, stream) == expected(range(1000))


def test_a_job_with_a_name_is_done_once(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    for _ in range(2):
        write(rows(spark, 100), broker.url, address=stream, txnAppId=stream, txnVersion=7)
    assert ledger(broker.url, stream) == expected(range(100))
    write(rows(spark, 10), broker.url, address=stream, txnAppId=stream, txnVersion=8)
    assert ledger(broker.url, stream) == expected(range(100), range(10))


def test_a_job_that_is_done_is_done_for_any_partitioning(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    for tasks in (2, 4, 1):
        frame = rows(spark, 100, tasks)
        write(frame, broker.url, address=stream, txnAppId=stream, txnVersion=1)
    assert ledger(broker.url, stream) == expected(range(100))


def test_a_job_that_an_older_release_has_written_is_known(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    """Older releases took digests of SHA-256: of a whole batch, and of each task."""
    frame = rows(spark, 100)
    job = {"address": stream, "txnAppId": stream, "txnVersion": 1}
    commit_as_older_release(broker.url, Fence(stream, "*", 1, 2, stream), frame)
    write(frame, broker.url, **job)
    with pytest.raises(PySparkException, match="other rows"):
        write(rows(spark, 99), broker.url, **job)
    assert ledger(broker.url, stream) == Counter()
    # The first of two tasks has committed, and the second one writes its rows.
    job["txnVersion"] = 2
    commit_as_older_release(broker.url, Fence(stream, "0", 2, 2, stream), rows(spark, 50))
    for _ in range(2):
        write(frame, broker.url, **job)
        assert ledger(broker.url, stream) == expected(range(50, 100))


def commit_as_older_release(url: str, fence: Fence, frame: DataFrame) -> None:
    digest = Digest(algorithm="sha-256")
    for batch in frame.toArrow().to_batches():
        digest.add(MessageEncoder(batch.schema).encode(batch))
    with blocking.connect(url) as connection:
        connection.transaction(fence=fence).commit(digest=digest)


def test_a_job_that_says_how_many_tasks_it_has_is_not_repeated_with_others(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    job = {"address": stream, "txnAppId": stream, "txnVersion": 1}
    write(rows(spark, 100, 4), broker.url, **job, tasks=4)
    with pytest.raises(PySparkException, match=r"by 4 tasks, and now there are 2.*repartition\(4"):
        write(rows(spark, 100, 2), broker.url, **job, tasks=2)
    # More tasks than it says are refused before they write.
    job["txnVersion"] = 2
    with pytest.raises(PySparkException, match=r"'tasks' says that there are 1"):
        write(rows(spark, 100, 2), broker.url, **job, tasks=1)


def test_fewer_tasks_than_were_said_are_an_error(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    job = {"address": stream, "txnAppId": stream, "txnVersion": 1}
    with pytest.raises(PySparkException, match=r"by 2 tasks, and the option 'tasks' says 4"):
        write(rows(spark, 10, 2), broker.url, **job, tasks=4)
    # They are there all the same, and are not written again.
    write(rows(spark, 10, 4), broker.url, **job, tasks=4)
    write(rows(spark, 10, 2), broker.url, **job, tasks=2)
    assert ledger(broker.url, stream) == expected(range(10))


def test_a_task_that_fails_after_its_commit_writes_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, stream: str, tmp_path: Path
) -> None:
    """A retried task finds its fence; the other attempt of it has said nothing to Spark."""
    from pyspark_ferrymq.source import DefaultSource
    from pyspark_ferrymq.writing.batch_writer import BatchWriter

    mark = str(tmp_path / "mark")

    class Failing(BatchWriter):
        def write(self, iterator):  # type: ignore[no-untyped-def]
            written = super().write(iterator)
            try:
                with open(f"{mark}-{written.work.partition}", "x"):
                    pass
            except FileExistsError:
                with open(f"{mark}-{written.work.partition}", "w") as again:
                    again.write(f"{written.rows} {written.repeated}")
                return written
            raise OSError("after the commit")

    class Source(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "amqp-failing"

        def writer(self, schema, overwrite):  # type: ignore[no-untyped-def]
            writer = super().writer(schema, overwrite)
            failing = Failing.__new__(Failing)
            failing.__dict__.update(writer.__dict__)
            return failing

    spark.dataSource.register(Source)
    frame = rows(spark, 500, 2).write.format("amqp-failing").mode("append")
    frame.option("url", broker.url).option("address", stream).save()
    assert ledger(broker.url, stream) == expected(range(500))
    for partition in (0, 1):
        assert Path(f"{mark}-{partition}").read_text() == "0 True"


@pytest.mark.parametrize("delivery", ["exactly-once", "transactional", "at-least-once"])
def test_queues_and_topics(
    spark: SparkSession, broker: BrokerProcess, address: str, delivery: str
) -> None:
    queue, topic = f"q-{address}", f"t-{address}"
    with blocking.connect(broker.url) as connection:
        receiver = connection.receiver(topic, credit=1000)
        write(rows(spark, 50), broker.url, address=queue, delivery=delivery)
        write(rows(spark, 50), broker.url, address=topic, delivery=delivery)
        bodies = Counter(
            bytes(receiver.receive(timeout=20).message.body).decode() for _ in range(50)
        )
    assert bodies == expected(range(50))
    found = messages_at(broker.url, queue)
    assert Counter(bytes(one.body).decode() for one in found) == expected(range(50))
    if delivery == "at-least-once":
        ids = {str(one.message_id).rpartition(":")[0].partition(":")[2] for one in found}
        assert ids == {"0:0", "0:1"}
        assert len({one.message_id for one in found}) == 50


def test_a_column_says_where_each_row_goes(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    frame = spark.range(0, 300, 1, 2).selectExpr(
        "concat('row-', id) as body", f"concat('{stream}-', id % 3) as target"
    )
    write(frame, broker.url, addressColumn="target")
    for number in range(3):
        assert ledger(broker.url, f"{stream}-{number}") == expected(range(number, 300, 3))


def test_rows_without_address_are_an_error(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    frame = spark.range(0, 10, 1, 1).selectExpr(
        "concat('row-', id) as body", f"if(id = 7, null, '{stream}') as address"
    )
    with pytest.raises(PySparkException, match=r"row 7 has no address in the column 'address'"):
        write(frame, broker.url)
    assert ledger(broker.url, stream) == Counter()


def test_partitions_and_keys(spark: SparkSession, broker: BrokerProcess, stream: str) -> None:
    frame = spark.range(0, 90, 1, 2).selectExpr(
        "concat('row-', id) as body", "cast(id % 3 as int) as partition"
    )
    write(frame, broker.url, address=stream)
    for number in range(3):
        assert ledger(broker.url, f"{stream}::{number}") == expected(range(number, 90, 3))
    keyed = spark.range(0, 90, 1, 2).selectExpr(
        "concat('row-', id) as body", "concat('key-', id % 7) as partitionKey"
    )
    write(keyed, broker.url, address=f"{stream}-keys")
    places: dict[str, set[int]] = {}
    for number in range(3):
        for body in ledger(broker.url, f"{stream}-keys::{number}"):
            places.setdefault(f"{int(body[4:]) % 7}", set()).add(number)
    assert len(places) == 7 and all(len(found) == 1 for found in places.values())
    with pytest.raises(PySparkException, match=r"row 1 for 's-.*amqp:invalid-field.*partition"):
        write(
            spark.range(0, 3, 1, 1).selectExpr("'x' as body", "cast(id * 9 as int) as partition"),
            broker.url,
            address=f"{stream}-none",
        )


def test_every_column(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    frame = spark.range(1).selectExpr(
        "cast('body' as binary) as body", "'data' as bodyType", "'m-1' as messageId",
        "'c-1' as correlationId", "cast('me' as binary) as userId", "'there' as to",
        "'about' as subject", "'back' as replyTo", "'text/plain' as contentType",
        "'gzip' as contentEncoding", "timestamp_millis(4102444800000) as absoluteExpiryTime",
        "timestamp_millis(4000) as creationTime", "'g' as groupId",
        "cast(7 as bigint) as groupSequence", "'rg' as replyToGroupId", "false as durable",
        "cast(9 as tinyint) as priority", "cast(60000 as bigint) as ttl",
        "map('a', 'b') as applicationProperties", "map('x-a', 'y') as messageAnnotations",
        "cast(3 as bigint) as offset", "current_timestamp() as enqueuedTime",
    )  # fmt: skip
    write(frame, broker.url, address=address)
    (message,) = messages_at(broker.url, address)
    assert bytes(message.body) == b"body"
    assert message.message_id == "m-1" and message.correlation_id == "c-1"
    assert message.user_id == b"me" and message.to == "there" and message.subject == "about"
    assert message.reply_to == "back" and message.content_type == "text/plain"
    assert message.content_encoding == "gzip"
    assert message.absolute_expiry_time == 4102444800000 and message.creation_time == 4000
    assert message.group_id == "g" and message.group_sequence == 7
    assert message.reply_to_group_id == "rg" and message.priority == 9
    assert message.durable is False and message.ttl is not None and message.ttl <= 60
    assert message.application_properties == {"a": "b"}
    assert message.message_annotations["x-a"] == "y"


def test_raw_messages_and_values(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    encoded = Message(AmqpValue([1, "two"]), subject="as it was").encode()
    write(spark.createDataFrame([(encoded,)], "raw binary"), broker.url, address=address)
    (message,) = messages_at(broker.url, address)
    assert message.encode() == encoded
    write(
        spark.sql("""select '{"a": [1, null]}' as body, 'value' as bodyType"""),
        broker.url,
        address=address,
    )
    (message,) = messages_at(broker.url, address)
    assert message.body == {"a": [1, None]}


@pytest.mark.parametrize("delivery", ["exactly-once", "transactional"])
def test_a_message_that_is_refused_leaves_nothing_of_its_task(
    spark: SparkSession, broker: BrokerProcess, address: str, delivery: str
) -> None:
    queue = f"small-{address}"
    with pytest.raises(
        PySparkException, match=rf"row 5 for '{queue}': .*amqp:resource-limit-exceeded"
    ):
        write(rows(spark, 8, tasks=1), broker.url, address=queue, delivery=delivery)
    assert messages_at(broker.url, queue) == []


def test_rows_that_are_refused_are_named(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    with pytest.raises(
        PySparkException,
        match=r"8 rows for .* were not accepted: row 0: .*limit-exceeded.*; row 1: ",
    ):
        write(
            rows(spark, 8, tasks=1),
            broker.url,
            address=f"small-{address}",
            delivery="at-least-once",
        )


def test_what_is_too_large_is_named(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    frame = spark.range(0, 5, 1, 1).selectExpr("repeat('x', if(id = 3, 70000, 1)) as body")
    with pytest.raises(PySparkException, match=r"row 3 for .*message-size-exceeded.*at most 65536"):
        write(frame, broker.url, address=stream)
    with pytest.raises(PySparkException, match=r"2000 messages.*repartition.*transaction-work"):
        write(rows(spark, 2001, tasks=1), broker.url, address=stream)
    assert ledger(broker.url, stream) == Counter()


def test_tasks_without_rows_are_part_of_the_batch(
    spark: SparkSession, broker: BrokerProcess, stream: str
) -> None:
    job = {"address": stream, "txnAppId": stream, "txnVersion": 1}
    write(rows(spark, 3, 8).where("body = 'row-1'"), broker.url, **job, tasks=8)
    assert ledger(broker.url, stream) == Counter(["row-1"])
    with blocking.connect(broker.url) as connection:
        fences = [connection.fence(stream, str(member), target=stream) for member in range(9)]
        assert fences == [1] * 8 + [None]
        assert connection.fence(stream, "*", target=stream) == 1


@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        ("'x' as body", {}, "give the option 'address'"),
        ("'x' as boby", {"address": "a"}, "no column 'boby'.*did you mean 'body'"),
        ("1 as body", {"address": "a"}, "column 'body'"),
        (
            "'x' as body, map() as footer",
            {"address": "a"},
            r"column 'footer' is map<void,void>, which .* cast\(map\(\) as map<string,string>\)",
        ),
        ("'x' as body, array() as subject", {"address": "a"}, "column 'subject' is array<void>"),
        ("'x' as body, map('a', 1) as footer", {"address": "a"}, "'footer' is map<string, int32>"),
        ("'x' as body, 1 as address", {}, "'address' has the addresses of rows and is int"),
        ("'x' as body", {"address": "a", "adress": "b"}, "'adress'.*did you mean 'address'"),
        ("'x' as body", {"address": "a", "hold": "b"}, "'hold' is only for reading"),
        ("'x' as body", {"address": "a", "txnAppId": "b"}, "needs the option 'txnVersion'"),
        ("'x' as body", {"address": "a", "delivery": "twice"}, "'delivery'.*exactly-once"),
        (
            "'x' as body",
            {"address": "a", "delivery": "at-least-once", "tasks": 2},
            "'tasks' is for 'delivery' = exactly-once",
        ),
        ("'x' as body", {"address": "a", "service": "eventhubs"}, "knows no fences"),
        ("'x' as body", {"address": "a", "addressColumn": "body"}, "exclude each other"),
    ],
)
def test_mistakes_are_told_before_a_task_runs(
    spark: SparkSession, select: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(f"select {select}"), "amqp://127.0.0.1:1", **options)


def test_nothing_is_overwritten(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r'Write with\s+mode\("append"\)'):
        rows(spark, 1).write.format("amqp").mode("overwrite").option(
            "url", "amqp://127.0.0.1:1"
        ).option("address", "a").save()
