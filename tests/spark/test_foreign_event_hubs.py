"""Event Hubs: its addresses, its management, its selectors and its tokens, with our broker behind
the personality `azure`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ferrymq import Message, blocking
from pyspark_ferrymq import AmqpDataLossError, AmqpOptionError, AmqpSourceError
from pyspark_ferrymq.options import BrokerOptions, SourceOptions, Values, connect
from pyspark_ferrymq.read_columns import ReadColumns
from pyspark_ferrymq.reading.read_task import read_range
from pyspark_ferrymq.task_planning import OffsetRange
from tests.interop.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "bm90aGluZyB0aGF0IGlzIHNlY3JldA=="
BODY = ReadColumns(("body",))
HUBS = {"orders": 2, "short": 1, "written": 2, "asked": 1}


def config() -> str:
    """Streams as hubs, of which one keeps little."""
    lines = [
        '[personality]\nname = "azure"\n',
        "[security]\nanonymous = true\n",
        f'[[security.shared-access-key]]\nname = "shop"\nprimary = "{KEY}"\n'
        'may = ["send", "receive", "browse"]\nwhere = "*"\n',
        f'[[security.shared-access-key]]\nname = "deaf"\nprimary = "{KEY}"\n'
        'may = ["send"]\nwhere = "*"\n',
    ]
    for hub, partitions in HUBS.items():
        lines.append(f'[[stream]]\nname = "{hub}"\npartitions = {partitions}\ndurable = false\n')
        if hub == "short":
            lines.append('max-records = 40\nsegment-bytes = "1KiB"\n')
    return "\n".join(lines)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(config()) as process:
        yield process


def connection_string(broker: BrokerProcess, name: str = "shop", key: str = KEY) -> str:
    return (
        f"Endpoint=sb://127.0.0.1:{broker.port}/;SharedAccessKeyName={name};"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true"
    )


def options(broker: BrokerProcess, **more: str) -> dict[str, str]:
    return {"service": "eventhubs", "connectionString": connection_string(broker), **more}


def read(spark: SparkSession, broker: BrokerProcess, hub: str, **more: str) -> DataFrame:
    reader = spark.read.format("amqp").options(**options(broker, subscribe=hub))
    return reader.options(**more).load()


@contextmanager
def client(broker: BrokerProcess, hub: str) -> Iterator[blocking.Connection]:
    """A connection with a token for a hub."""
    given = Values(options(broker, address=hub))
    connection = connect(BrokerOptions.parse(given), "test")
    try:
        yield connection
    finally:
        connection.close()


def publish(broker: BrokerProcess, hub: str, partition: int, bodies: list[bytes]) -> None:
    with client(broker, hub) as connection:
        sender = connection.sender(f"{hub}/Partitions/{partition}")
        sender.send_many(
            [Message(body, message_id=f"m-{body.decode()}", subject="s") for body in bodies]
        )


def numbers(first: int, until: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, until)]


@pytest.fixture(scope="module")
def orders(broker: BrokerProcess) -> BrokerProcess:
    """The hub `orders`: 0 … 999 in partition 0, 1000 … 1499 in partition 1."""
    publish(broker, "orders", 0, numbers(0, 1000))
    publish(broker, "orders", 1, numbers(1000, 1500))
    return broker


def test_a_hub_is_read_like_a_stream(spark: SparkSession, orders: BrokerProcess) -> None:
    rows = read(spark, orders, "orders").orderBy("partition", "offset").collect()
    assert [bytes(row["body"]) for row in rows] == numbers(0, 1500)
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, number) for number in range(1000)),
        *((1, number) for number in range(500)),
    ]
    assert {row["address"] for row in rows} == {"orders"}
    assert all(row["enqueuedTime"] is not None for row in rows)
    assert (rows[7]["messageId"], rows[7]["subject"]) == ("m-7", "s")


def test_columns_without_the_offset(spark: SparkSession, orders: BrokerProcess) -> None:
    reader = spark.read.format("amqp").options(**options(orders, subscribe="orders"))
    rows = reader.schema("subject string, body binary").load().collect()
    assert sorted(int(row["body"]) for row in rows) == [*range(1500)]
    assert rows[0].asDict().keys() == {"subject", "body"}


def test_from_here_to_there_by_a_consumer_group(spark: SparkSession, orders: BrokerProcess) -> None:
    frame = read(
        spark,
        orders,
        "orders",
        consumerGroup="spark",
        startingOffsets='{"orders":{"0":990,"1":-2}}',
        endingOffsets='{"orders":{"0":-1,"1":3}}',
        minPartitions="6",
    )
    assert frame.rdd.getNumPartitions() == 6
    assert sorted(int(row["body"]) for row in frame.collect()) == [
        *range(990, 1003),
    ]


def test_from_a_time_on(spark: SparkSession, broker: BrokerProcess) -> None:
    publish(broker, "asked", 0, numbers(0, 10))
    with client(broker, "asked") as connection:
        receiver = connection.receiver("asked/Partitions/0", start="last")
        last = receiver.receive(timeout=10).message.message_annotations["x-opt-enqueued-time"]
    while True:
        # The clock of the broker goes on, by a millisecond at least.
        publish(broker, "asked", 0, [b"late"])
        rows = read(spark, broker, "asked").orderBy("offset").collect()
        late = [row for row in rows if row["enqueuedTime"].timestamp() * 1000 > int(last) + 0.5]
        if late:
            break
    frame = read(spark, broker, "asked", startingTimestamp=str(int(last) + 1))
    assert [row["offset"] for row in frame.collect()] == [row["offset"] for row in late]
    with pytest.raises(Exception, match=r"'startingTimestamp'.*has no record of that time"):
        read(spark, broker, "asked", startingTimestamp=str(int(last) + 10**9)).collect()


def test_a_query_reads_every_event_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    seen: list[int] = []

    def run() -> None:
        reader = spark.readStream.format("amqp").options(**options(broker, subscribe="written"))
        frame = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="70").load()
        query = (
            frame.writeStream.foreachBatch(
                lambda batch, _: seen.extend(int(row["body"]) for row in batch.collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    publish(broker, "written", 0, numbers(0, 150))
    run()
    assert seen == [*range(150)]
    publish(broker, "written", 1, numbers(150, 200))
    publish(broker, "written", 0, numbers(200, 250))
    run()
    assert sorted(seen) == [*range(250)]


def test_what_retention_has_taken(spark: SparkSession, broker: BrokerProcess) -> None:
    publish(broker, "short", 0, numbers(0, 500))
    rows = read(spark, broker, "short").orderBy("offset").collect()
    first = rows[0]["offset"]
    assert first > 0 and [int(row["body"]) for row in rows] == [*range(first, 500)]
    start = {"startingOffsets": '{"short":{"0":3}}'}
    told = f"'short', partition 0: expected offsets from 3 on, available from {first} to before 500"
    with pytest.raises(Exception, match=told):
        read(spark, broker, "short", **start).collect()
    assert read(spark, broker, "short", **start, failOnDataLoss="false").count() == 500 - first

    # Gone between planning and reading: a task sees it as well.
    ours = SourceOptions.parse(options(broker, subscribe="short"))
    gone = OffsetRange("short", "", 0, 3, 500)
    with pytest.raises(AmqpDataLossError, match="expected offsets from 3 to before 500"):
        list(read_range(ours, BODY, gone))
    lax = SourceOptions.parse(options(broker, subscribe="short", failOnDataLoss="false"))
    assert sum(batch.num_rows for batch in read_range(lax, BODY, gone)) == 500 - first
    # All of the range is gone.
    gone = OffsetRange("short", "", 0, 3, 5)
    assert list(read_range(lax, BODY, gone)) == []


def test_rows_into_a_hub_by_their_keys(spark: SparkSession, broker: BrokerProcess) -> None:
    with client(broker, "orders") as connection:
        before = connection.receiver("orders/Partitions/0", start="last").receive(timeout=10)
    assert before.message.body is not None
    frame = spark.range(300).selectExpr(
        "cast(id as string) as body", "concat('k', id % 20) as partitionKey"
    )
    frame = frame.selectExpr("cast(body as binary) as body", "partitionKey")
    writer = frame.write.format("amqp").options(**options(broker, address="asked"))
    start = read(spark, broker, "asked").count()
    writer.option("delivery", "at-least-once").mode("append").save()
    rows = read(spark, broker, "asked", includeMetadata="true").where(f"offset >= {start}")
    found = sorted((int(row["body"]), row["partitionKey"]) for row in rows.collect())
    assert found == [(number, f"k{number % 20}") for number in range(300)]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"subscribe": "nothing"}, "there is no event hub 'nothing'"),
        ({"assign": '{"orders":[7]}'}, "there is no partition 7"),
    ],
)
def test_what_is_not_there(
    spark: SparkSession, broker: BrokerProcess, more: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        spark.read.format("amqp").options(**options(broker, **more)).load().collect()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"subscribePattern": "o.*"}, "'subscribePattern': Event Hubs does not list hubs"),
        ({"subscribe": "o", "selector": "x = 1"}, "'selector': Event Hubs"),
        ({"subscribe": "o", "maxBytesPerTrigger": "1m"}, "use the option 'maxOffsetsPerTrigger'"),
        ({"subscribe": "o", "hold": "me"}, "'hold': Event Hubs keeps events"),
        ({"subscribe": "o", "queueMode": "browse"}, "'queueMode': Event Hubs has no queues"),
    ],
)
def test_what_event_hubs_has_not(broker: BrokerProcess, more: dict[str, str], told: str) -> None:
    with pytest.raises(AmqpOptionError, match=told):
        SourceOptions.parse(options(broker, **more))


def test_exactly_once_takes_fences(spark: SparkSession, broker: BrokerProcess) -> None:
    writer = spark.range(1).selectExpr("cast('x' as binary) as body").write.format("amqp")
    with pytest.raises(Exception, match="give the option 'delivery' = at-least-once"):
        writer.options(**options(broker, address="asked")).mode("append").save()


@pytest.mark.parametrize(
    ("name", "key", "told"),
    [
        ("shop", "bm90IGl0", "refuses the token of the key 'shop'"),
        ("nobody", KEY, "refuses the token of the key 'nobody'"),
        ("deaf", KEY, "there is no event hub 'orders' at .* or no right to read"),
    ],
)
def test_who_may_not(
    spark: SparkSession, orders: BrokerProcess, name: str, key: str, told: str
) -> None:
    given: dict[str, Any] = options(orders, subscribe="orders")
    given["connectionString"] = connection_string(orders, name, key)
    with pytest.raises(Exception, match=told) as caught:
        spark.read.format("amqp").options(**given).load().collect()
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Endpoint=sb://h/;SharedAccessKeyName=n", "SharedAccessKey is missing"),
        ("SharedAccessKeyName=n;SharedAccessKey=SECRET", "Endpoint is missing"),
        ("Endpoint=https://h/;SharedAccessKeyName=n;SharedAccessKey=SECRET", "not sb://HOST/"),
        ("Endpoint=sb://h:x/;SharedAccessKeyName=n;SharedAccessKey=SECRET", "not sb://HOST/"),
        ("Endpoint=sb://h/;SECRET;SharedAccessKeyName=n", "not NAME=VALUE"),
    ],
)
def test_connection_strings_that_are_none(text: str, told: str) -> None:
    with pytest.raises(AmqpOptionError, match=f"'connectionString': .*{told}") as caught:
        BrokerOptions.parse(Values({"connectionString": text}))
    assert "SECRET;" not in str(caught.value).replace("SharedAccessKey=SECRET", "")


def test_a_connection_string() -> None:
    text = "Endpoint=sb://ns.example/;SharedAccessKeyName=n;SharedAccessKey=a/b=;EntityPath=hub"
    settings = BrokerOptions.parse(
        Values({"connectionString": text, "service": "eventhubs", "subscribe": "other"})
    )
    assert settings.place == "amqps://ns.example:5671"
    assert settings.shared_access is not None
    assert settings.shared_access.entities == ("hub",)
    # Computed with openssl: the URI is escaped, and so is what comes of it.
    token = settings.shared_access.token("sb://ns.example/hub", 1_800_000_000)
    assert token == (
        "SharedAccessSignature sr=sb%3A%2F%2Fns.example%2Fhub"
        "&sig=KHDovs4tZfKkwDQavmU%2BsRdnF5nYJ%2FWVKwrYSU14WH4%3D&se=1800000000&skn=n"
    )
    assert "a/b=" not in repr(settings)


def test_one_way_to_say_who_one_is() -> None:
    text = "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k"
    for name in ("url", "username", "password", "sasl.mechanism"):
        with pytest.raises(AmqpOptionError, match=f"'connectionString' and '{name}' exclude"):
            BrokerOptions.parse(Values({"connectionString": text, name: "x"}))
    with pytest.raises(AmqpOptionError, match="'consumerGroup'"):
        BrokerOptions.parse(Values({"connectionString": text, "consumerGroup": "g"}))


def test_no_event_hubs_at_all(broker: BrokerProcess) -> None:
    with BrokerProcess() as other:
        given = Values({"connectionString": connection_string(other), "service": "eventhubs"})
        with pytest.raises(AmqpSourceError, match="no node '\\$cbs' that takes its tokens"):
            connect(BrokerOptions.parse(given), "test")
