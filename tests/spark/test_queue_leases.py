"""What the driver of a query does with leases, and a task with its part of one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from ferrymq import Message, blocking
from pyspark_ferrymq import AmqpOptionError, spark_api
from pyspark_ferrymq.errors import AmqpDataLossError, AmqpSourceError
from pyspark_ferrymq.lease_offsets import LeaseOffset, LeasePosition
from pyspark_ferrymq.offsets import OffsetError
from pyspark_ferrymq.options import SourceOptions
from pyspark_ferrymq.read_columns import ReadColumns
from pyspark_ferrymq.reading import make_stream_reader
from pyspark_ferrymq.reading.lease_reader import LeaseStreamReader
from pyspark_ferrymq.schema import default_schema
from pyspark_ferrymq.task_planning import RangePartition
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import eventually, publish, take_all

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]


@pytest.fixture
def make(broker: BrokerProcess, address: str) -> Iterator[Callable[..., LeaseStreamReader]]:
    """Readers of new processes of the driver."""
    made: list[LeaseStreamReader] = []

    def reader(**options: object) -> LeaseStreamReader:
        made.append(reader_of(broker, **{"subscribe": address, **options}))
        return made[-1]

    yield reader
    for one in made:
        one.stop()


def reader_of(broker: BrokerProcess, **options: object) -> LeaseStreamReader:
    """A reader of a new process of the driver."""
    given = {"url": broker.url, "queueMode": "consume", **options}
    parsed = SourceOptions.parse({name: str(value) for name, value in given.items()})
    return LeaseStreamReader(parsed, ReadColumns(("body",)))


def begin(reader: LeaseStreamReader) -> Json:
    """The end of the first batch, which is empty."""
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert start["pin"] is True and "pin" not in end and reader.partitions(start, end) == []
    return end


def follow(reader: LeaseStreamReader, start: Json, limit: object = None) -> Json:
    return reader.latestOffset(start, limit or reader.getDefaultReadLimit())  # type: ignore[arg-type]


def read(reader: LeaseStreamReader, start: Json, end: Json) -> list[list[int]]:
    """What the tasks of a batch read."""
    tasks = reader.partitions(start, end)
    return [
        [int(body) for batch in reader.read(task) for body in batch.column("body").to_pylist()]
        for task in tasks
    ]


def leased(broker: BrokerProcess, queue: str) -> dict[int, int]:
    """The leases of a queue: how many messages, by number."""
    with blocking.connect(broker.url) as connection, connection.management() as management:
        found = management.request("LIST-LEASES", "queue", queue, {}).map()["leases"]
    return {one["number"]: one["messages"] for one in found}


def test_a_lease_is_settled_when_the_next_batch_is_asked_for(
    make: Callable[..., LeaseStreamReader], broker: BrokerProcess, address: str
) -> None:
    publish(broker, address, 0, 25)
    reader = make(maxOffsetsPerTrigger=10)
    ends = [begin(reader)]
    for number in (1, 2, 3):
        ends.append(follow(reader, ends[-1]))
        assert leased(broker, address).keys() == {number}
        assert read(reader, ends[-2], ends[-1]) == [list(range(25))[10 * number - 10 : 10 * number]]
    # Nothing is left: the end is the start, and the last batch is settled.
    assert follow(reader, ends[-1]) == ends[-1]
    assert leased(broker, address) == {}


def test_a_new_process_has_the_same_leases(
    make: Callable[..., LeaseStreamReader], broker: BrokerProcess, address: str
) -> None:
    publish(broker, address, 0, 20)
    first = make(maxOffsetsPerTrigger=10)
    start = begin(first)
    end = follow(first, start)
    first.stop()
    # Spark had not stored the end.
    second = make(maxOffsetsPerTrigger=5)
    assert follow(second, start) == end
    second.stop()
    # Spark had stored the end, and repeats the batch.
    third = make(maxOffsetsPerTrigger=5)
    assert read(third, start, end) == [list(range(10))]
    assert leased(broker, address) == {1: 10}
    assert read(third, end, follow(third, end)) == [list(range(10, 15))]


def test_tasks_depend_on_offsets_and_options_alone(
    make: Callable[..., LeaseStreamReader], broker: BrokerProcess, address: str
) -> None:
    publish(broker, address, 0, 10)
    reader = make(minPartitions=3)
    start = begin(reader)
    end = follow(reader, start)
    parts = read(reader, start, end)
    assert [len(part) for part in parts] == [3, 3, 4]
    assert [n for part in parts for n in part] == list(range(10))
    follow(reader, end)
    # The lease is gone, and the tasks are the same.
    assert read(make(minPartitions=3), start, end) == [[], [], []]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(ReadMaxRows(7), {7}), (ReadMaxBytes(10_000), {4}), (ReadAllAvailable(), {30})],
)
def test_limits(
    make: Callable[..., LeaseStreamReader],
    broker: BrokerProcess,
    address: str,
    limit: object,
    sizes: set[int],
) -> None:
    with blocking.connect(broker.url) as connection:
        connection.sender(address).send_many([Message(b"x" * 2300) for _ in range(30)])
    reader = make()
    start = begin(reader)
    assert {follow(reader, start, limit)["queues"][address]["messages"]} == sizes


def test_queues_share_a_limit_and_take_turns(
    make: Callable[..., LeaseStreamReader], broker: BrokerProcess, address: str
) -> None:
    names = [f"{address}-{n}" for n in range(3)]
    for name in names:
        publish(broker, name, 0, 4)
    reader = make(subscribe=",".join(names), maxOffsetsPerTrigger=2)
    end = begin(reader)
    counts = dict.fromkeys(names, 0)
    batches = 0
    while (after := follow(reader, end)) != end:
        for task in reader.partitions(end, after):
            assert isinstance(task, RangePartition)
            counts[task.range.stream] += len(task.range)
        end = after
        batches += 1
    assert counts == dict.fromkeys(names, 4) and batches == 6


def test_one_batch_without_a_stored_start(
    make: Callable[..., LeaseStreamReader], broker: BrokerProcess, address: str
) -> None:
    """A query with one batch stores nothing before it, and repeats it with another start."""
    publish(broker, address, 0, 5)
    reader = make()
    end = follow(reader, reader.initialOffset(), ReadAllAvailable())
    again = make()
    assert read(again, again.initialOffset(), end) == [list(range(5))]


def test_an_end_with_what_is_there_at_the_beginning(
    make: Callable[..., LeaseStreamReader], broker: BrokerProcess, address: str
) -> None:
    publish(broker, address, 0, 5)
    reader = make(maxOffsetsPerTrigger=3)
    reader.prepareForTriggerAvailableNow()
    start = begin(reader)
    first = follow(reader, start)
    publish(broker, address, 5, 10)
    second = follow(reader, first)
    assert read(reader, first, second) == [[3, 4]]
    assert follow(reader, second) == second


def test_a_lease_that_lapsed_is_told_of(
    make: Callable[..., LeaseStreamReader],
    broker: BrokerProcess,
    address: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish(broker, address, 0, 3)
    reader = make(queueLeaseMs="1s")
    start = begin(reader)
    end = follow(reader, start)
    (task,) = reader.partitions(start, end)
    release(broker, address, end["holder"])
    with caplog.at_level(logging.WARNING, "pyspark_ferrymq"):
        # A task ends without rows, and the driver notices it with the next renewal.
        assert list(reader.read(task)) == []
        eventually(lambda: len(caplog.records) == 2)
    assert all(
        f"the lease 1 of the queue '{address}' has lapsed" in record.getMessage()
        for record in caplog.records
    )
    assert [int(message.body) for message in take_all(broker, address)] == [0, 1, 2]


def test_a_lease_that_is_missed_at_its_settlement(
    make: Callable[..., LeaseStreamReader],
    broker: BrokerProcess,
    address: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish(broker, address, 0, 3)
    reader = make()
    end = follow(reader, begin(reader))
    release(broker, address, end["holder"])
    with caplog.at_level(logging.WARNING, "pyspark_ferrymq"):
        after = follow(reader, end)
    assert len(caplog.records) == 1 and after["queues"][address] == {"lease": 2, "messages": 3}


def test_leases_of_a_stopped_query_stay(
    make: Callable[..., LeaseStreamReader], broker: BrokerProcess, address: str
) -> None:
    publish(broker, address, 0, 3)
    reader = make()
    follow(reader, begin(reader))
    reader.stop()
    assert leased(broker, address) == {1: 3}


@pytest.mark.parametrize("fail", [True, False])
def test_messages_of_a_deleted_queue_are_lost(
    broker: BrokerProcess, address: str, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    publish(broker, address, 0, 3)
    reader = reader_of(broker, subscribe=address, failOnDataLoss=str(fail))
    start = begin(reader)
    (task,) = reader.partitions(start, follow(reader, start))
    with blocking.connect(broker.url) as connection, connection.management() as management:
        management.delete("queue", address)
    if fail:
        with pytest.raises(AmqpDataLossError, match="because the queue was deleted"):
            list(reader.read(task))
    else:
        assert list(reader.read(task)) == [] and "queue was deleted" in caplog.text
    reader.stop()


def test_a_broker_that_is_killed_keeps_leases(tmp_path: Path) -> None:
    config = f'[[queue]]\nname = "q"\n[store]\npath = "{tmp_path / "store"}"\n'
    with BrokerProcess(config) as broker:
        with blocking.connect(broker.url) as connection:
            messages = [Message(b"%d" % n, durable=True) for n in range(20)]
            connection.sender("q").send_many(messages)
        reader = reader_of(broker, subscribe="q", maxOffsetsPerTrigger=10, maxRecordsPerBatch=4)
        start = begin(reader)
        end = follow(reader, start)
        (task,) = reader.partitions(start, end)
        rows = reader.read(task)
        found = next(rows).column("body").to_pylist()
        broker.kill()
        broker.start()
        # The task goes on where it was.
        for batch in rows:
            found += batch.column("body").to_pylist()
        assert [int(body) for body in found] == list(range(10))
        assert leased(broker, "q") == {1: 10}
        after = follow(reader, end)
        assert read(reader, end, after) == [list(range(10, 20))]
        broker.kill()
        broker.start()
        # What was settled is gone.
        assert follow(reader, after) == after and leased(broker, "q") == {}
        reader.stop()


def test_a_queue_without_leases(
    make: Callable[..., LeaseStreamReader], broker: BrokerProcess, address: str
) -> None:
    with blocking.connect(broker.url) as connection, connection.management() as management:
        management.create("queue", address, {"groups": True})
    reader = make()
    with pytest.raises(AmqpSourceError, match=r"has message groups, and therefore no leases"):
        follow(reader, begin(reader))


def release(broker: BrokerProcess, queue: str, holder: str) -> None:
    with blocking.connect(broker.url) as connection, connection.management() as management:
        management.request("RELEASE-LEASES", "queue", queue, {"holder": holder})


# -- offsets and options -----------------------------------------------------------------------


def test_an_offset_has_one_form() -> None:
    offset = LeaseOffset("h", {"b": LeasePosition(2, 5), "a": LeasePosition()}, pin=True)
    text = (
        '{"v": 1, "pin": true, "holder": "h", "queues": {"a": {"lease": 0, "messages": 0},'
        ' "b": {"lease": 2, "messages": 5}}}'
    )
    assert json.dumps(offset.to_json()) == text
    assert LeaseOffset.from_json(json.loads(text)) == offset
    assert "pin" not in offset.unpinned().to_json()


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"v": 2, "holder": "h", "queues": {}},
        {"v": 1, "streams": {}},
        {"v": 1, "holder": 1, "queues": {}},
        {"v": 1, "holder": "h", "queues": {"q": {"lease": -1, "messages": 0}}},
        {"v": 1, "holder": "h", "queues": {"q": {"lease": 1}}},
    ],
)
def test_other_offsets_are_refused(found: object) -> None:
    with pytest.raises(OffsetError):
        LeaseOffset.from_json(found)


def test_a_checkpoint_of_a_stream_is_refused(make: Callable[..., LeaseStreamReader]) -> None:
    with pytest.raises(AmqpSourceError, match="another source or release"):
        follow(make(), {"v": 1, "streams": {}})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": "earliest"}, "'startingOffsets': it cannot be used"),
        ({"endingOffsets": "latest"}, "'endingOffsets'"),
        ({"minOffsetsPerTrigger": 1}, "'minOffsetsPerTrigger'"),
        ({"hold": "h"}, "'hold'"),
        ({"queueSelector": "TRUE"}, "'queueSelector'"),
        ({"queueLimit": 1}, "'queueLimit'"),
        ({"maxOffsetsPerTrigger": 100_000}, "65536 of each"),
        ({"queueLeaseMs": "10ms"}, "from 1s to 1d"),
        ({"queueMode": "browse", "queueLeaseMs": "10s"}, "'queueLeaseMs' is for"),
    ],
)
def test_options_that_make_no_sense(options: Json, says: str) -> None:
    given = {"url": "amqp://127.0.0.1", "subscribe": "q", "queueMode": "consume", **options}
    with pytest.raises(AmqpOptionError, match=says):
        LeaseStreamReader(
            SourceOptions.parse({name: str(value) for name, value in given.items()}),
            ReadColumns(("body",)),
        )


def test_an_older_spark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_api, "ADMISSION_CONTROL", False)
    options = SourceOptions.parse(
        {"url": "amqp://127.0.0.1", "subscribe": "q", "queueMode": "consume"}
    )
    with pytest.raises(AmqpOptionError, match=r"consume needs Spark 4\.2 or newer"):
        make_stream_reader(options, default_schema(False, False))


def test_queues_have_names() -> None:
    options = SourceOptions.parse(
        {"url": "amqp://127.0.0.1", "subscribePattern": "q.*", "queueMode": "consume"}
    )
    with pytest.raises(AmqpOptionError, match="by the option 'subscribe'"):
        LeaseStreamReader(options, ReadColumns(("body",)))
