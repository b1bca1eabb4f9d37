"""Rows for a stream whose partitions are on several brokers: each where a client's sender would put
it, and once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ferrymq import Message, blocking
from ferrymq.arrow import MessageEncoder
from ferrymq.partitioning import partition_of_key
from pyspark_ferrymq.errors import AmqpOptionError, AmqpWriteError
from pyspark_ferrymq.writing import broker_list, many_brokers
from pyspark_ferrymq.writing.broker_list import digest_of
from pyspark_ferrymq.writing.many_brokers import finish_at, write_to
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.targets import SinkTargets, targets_of
from pyspark_ferrymq.writing.task_identity import TaskIdentity, WrittenRows, WrittenToBrokers
from tests.interop.broker_process import BrokerProcess
from tests.interop.brokers.process import free_ports
from tests.spark.sinking import expected, messages_at
from tests.spark.test_many_brokers_sink import id_of


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    """Three brokers with stores, in the order of their ids; streams are made by the tests."""
    folder: Path = tmp_path_factory.mktemp("stores")
    made = []
    for port in free_ports(3):
        broker = BrokerProcess(
            f'advertise = "amqp://127.0.0.1:{port}"\n[store]\npath = "{folder / str(port)}"\n'
        )
        broker.port = port
        made.append(broker)
    with made[0], made[1], made[2]:
        yield sorted(made, key=id_of)


def spread(brokers: list[BrokerProcess], stream: str, owners: str = "aabb") -> None:
    """The stream has these partitions from now on: a letter for each, which is its broker."""
    entries = [
        f"{number} amqp://127.0.0.1:{brokers['abc'.index(owner)].port}"
        for number, owner in enumerate(owners)
    ]
    # The new brokers first, because the others send clients there.
    for owner in sorted(set(owners), reverse=True):
        with (
            blocking.connect(brokers["abc".index(owner)].url) as connection,
            connection.management() as management,
        ):
            known = [row["name"] for row in management.query("stream", ["name"])]
            change = management.update if stream in known else management.create
            change("stream", stream, {"partitions-on": entries})


def sink(broker: BrokerProcess, address: str, *columns: str, **options: str) -> SinkTargets:
    """Targets that the driver finds with the URL of one broker."""
    from pyspark.sql.types import StringType, StructField, StructType

    given = {"url": broker.url, "address": address, **options}
    schema = StructType([StructField(name, StringType()) for name in ("body", *columns)])
    return targets_of(SinkOptions.parse(given, streaming=True), schema)


def task(address: str, batch: int = 0, partition: int = 0) -> TaskIdentity:
    return TaskIdentity(f"query-{address}", batch, partition, 0, address, True)


def rows(numbers: Iterable[int], **columns: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Batch with a key for each row."""
    bodies = [f"row-{number}" for number in numbers]
    data: dict[str, list[Any]] = {"body": bodies, "partitionKey": list(bodies)}
    yield pa.RecordBatch.from_pydict(data | {name: list(each) for name, each in columns.items()})


def partitions(broker: BrokerProcess, stream: str, count: int = 4) -> list[list[str]]:
    """The bodies in each partition, in order. Links go to the broker of the partition."""
    return [
        [
            bytes(message.body).decode()
            for message in messages_at(broker.url, f"{stream}::{number}", start="first")
        ]
        for number in range(count)
    ]


def ledger(broker: BrokerProcess, stream: str, count: int = 4) -> Counter[str]:
    return Counter(body for each in partitions(broker, stream, count) for body in each)


def fail_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task ends when the first broker has committed."""
    real: Callable[..., WrittenRows] = many_brokers.write_kept
    done: list[object] = []

    def failing(*arguments: Any) -> WrittenRows:
        if done:
            raise OSError("the end of the task")
        done.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(many_brokers, "write_kept", failing)


def begin(
    targets: SinkTargets, address: str, numbers: Iterable[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that ends between the commits of two brokers."""
    with monkeypatch.context() as patch:
        fail_after_one(patch)
        with pytest.raises(OSError, match="end of the task"):
            write_to(targets, task(address), rows(numbers))


# -- which partition ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["partitionKey", "groupId", "raw", "annotation"])
def test_each_row_is_where_a_partitioned_sender_puts_it(
    three: list[BrokerProcess], address: str, by: str
) -> None:
    copy = f"{address}-copy"
    spread(three, address)
    spread(three, copy)
    keys = [f"key-{number % 17}" for number in range(200)]
    bodies = [f"row-{number}" for number in range(200)]
    batch = pa.RecordBatch.from_pydict({"body": bodies, "partitionKey": keys})
    if by == "groupId":
        batch = pa.RecordBatch.from_pydict({"body": bodies, "groupId": keys})
    elif by == "raw":
        batch = pa.RecordBatch.from_pydict({"raw": MessageEncoder(batch.schema).encode(batch)})
    elif by == "annotation":
        maps = pa.array(
            [[("x-opt-partition-key", key)] for key in keys], pa.map_("string", "string")
        )
        batch = pa.RecordBatch.from_pydict({"body": bodies, "messageAnnotations": maps})
    # Both brokers lead to all partitions.
    for number, broker in enumerate(three[:2]):
        write_to(sink(broker, address), task(address, number), iter([batch]))
    with (
        blocking.connect(three[0].url) as connection,
        connection.partitioned_sender(copy) as sender,
    ):
        for _ in range(2):
            sender.send_many(
                [
                    Message(body.encode(), group_id=key)
                    for body, key in zip(bodies, keys, strict=True)
                ]
            )
    there = partitions(three[0], address)
    assert there == partitions(three[1], copy)
    assert all(there)


def test_the_column_partition_is_obeyed_where_it_is_not_null(
    three: list[BrokerProcess], address: str
) -> None:
    spread(three, address)
    targets = sink(three[0], address, "partition")
    chosen = [3, None, 0, 2, None]
    write_to(targets, task(address), rows(range(5), partition=chosen))
    there = partitions(three[0], address)
    assert "row-0" in there[3] and "row-2" in there[0] and "row-3" in there[2]
    for row in ("row-1", "row-4"):
        assert row in there[partition_of_key(row.encode(), 4)]
    with pytest.raises(AmqpWriteError, match=r"the partition 4 in the column.*partitions 0 to 3"):
        write_to(targets, task(address, 1), rows([5], partition=[4]))


def test_rows_without_a_key_are_divided_in_the_same_way_again(
    three: list[BrokerProcess], address: str
) -> None:
    spread(three, address)
    bodies = [f"row-{number}" for number in range(200)]
    for turn, order in enumerate((bodies, bodies[::-1])):
        batch = pa.RecordBatch.from_pydict({"body": order})
        write_to(sink(three[0], address), task(address, turn), iter([batch]))
    there = partitions(three[0], address)
    assert all(there)
    assert sum(map(len, there)) == 400 and sum(len(set(each)) for each in there) == 200


def test_without_fences_rows_go_to_their_partitions_too(
    three: list[BrokerProcess], address: str
) -> None:
    spread(three, address)
    targets = sink(three[0], address, delivery="at-least-once")
    write_to(targets, task(address), rows(range(100)))
    there = partitions(three[0], address)
    assert ledger(three[0], address) == expected(range(100))
    assert all(
        partition_of_key(body.encode(), 4) == number
        for number, each in enumerate(there)
        for body in each
    )


def test_all_partitions_on_one_broker(three: list[BrokerProcess], address: str) -> None:
    spread(three, address, "aaa")
    targets = sink(three[0], address)
    assert len(targets.brokers) == 1
    for _ in range(2):
        finish_at(targets, [write_to(targets, task(address), rows(range(50)))])
    assert ledger(three[0], address, 3) == expected(range(50))


def test_the_address_of_one_partition(three: list[BrokerProcess], address: str) -> None:
    spread(three, address)
    one = f"{address}::3"
    targets = sink(three[0], one)
    for _ in range(2):
        finish_at(targets, [write_to(targets, task(one), rows(range(50)))])
    assert [len(each) for each in partitions(three[0], address)] == [0, 0, 0, 50]


# -- what is refused ---------------------------------------------------------------------------


def test_rows_that_name_their_addresses(three: list[BrokerProcess], address: str) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    spread(three, address)
    options = SinkOptions.parse({"url": three[0].url}, streaming=True)
    schema = StructType([StructField(name, StringType()) for name in ("body", "address")])
    targets = targets_of(options, schema)
    work = replace(task(address), target="*")
    with pytest.raises(
        AmqpWriteError, match=r"on several brokers\. Rows get there only if the opt"
    ):
        write_to(targets, work, rows([0], address=[address]))
    with pytest.raises(AmqpWriteError, match=r"::3' is on another broker than the transaction"):
        write_to(targets, work, rows([0], address=[f"{address}::3"]))
    write_to(targets, work, rows([0], address=[f"{address}::1"]))
    assert ledger(three[0], address) == expected(range(1))


def test_the_column_broker_is_refused(three: list[BrokerProcess], address: str) -> None:
    spread(three, address)
    with pytest.raises(AmqpOptionError, match="says its broker: drop the column 'broker'"):
        sink(three[0], address, "broker")


def test_a_url_without_partitions_is_refused(three: list[BrokerProcess], address: str) -> None:
    spread(three, address)
    both = f"{three[2].url},{three[0].url}"
    with pytest.raises(AmqpOptionError, match=f"{three[2].port} has no partition of the stream"):
        sink(three[0], address, url=both)


def test_a_broker_that_is_not_there(three: list[BrokerProcess], address: str) -> None:
    spread(three, address)
    three[1].stop()
    try:
        with pytest.raises(AmqpWriteError, match=f"{three[1].port}, which cannot be reached"):
            sink(three[0], address, **{"write.retryTimeoutMs": "0"})
    finally:
        three[1].start()


# -- each row once -----------------------------------------------------------------------------


def test_a_batch_that_is_repeated(three: list[BrokerProcess], address: str) -> None:
    spread(three, address)
    for broker in three[:2]:
        targets = sink(broker, address)
        found = [
            write_to(targets, task(address, 0, n), rows(range(n * 100, n * 100 + 100)))
            for n in (0, 1)
        ]
        finish_at(targets, found)
    assert ledger(three[0], address) == expected(range(200))


def test_a_task_that_ends_between_the_commits(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread(three, address)
    targets = sink(three[0], address)
    begin(targets, address, range(200), monkeypatch)
    assert 0 < ledger(three[0], address).total() < 200
    again = write_to(targets, task(address), rows(reversed(range(200))))
    assert isinstance(again, WrittenToBrokers)
    assert [part.repeated for part in again.parts] == [True, False]
    finish_at(targets, [again])
    assert ledger(three[0], address) == expected(range(200))


def test_a_broker_that_is_killed_between_the_commits(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread(three, address)
    targets = sink(three[0], address)
    real: Callable[..., WrittenRows] = many_brokers.write_kept

    def killing(*arguments: Any) -> WrittenRows:
        written = real(*arguments)
        for broker in three[:2]:
            broker.kill()
            broker.start()
        return written

    with monkeypatch.context() as patch:
        patch.setattr(many_brokers, "write_kept", killing)
        found = write_to(targets, task(address), rows(range(200)))
    finish_at(targets, [found])
    assert ledger(three[0], address) == expected(range(200))


def move_a_partition(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[SinkTargets, SinkTargets]:
    """In the middle of a batch, a partition without records is moved to the broker that has
    committed. Return the targets before and after that.

    Without a comparison of rows, only the list of brokers can tell.
    """
    spread(three, address)
    old = sink(three[0], address, deterministic="false")
    begin(old, address, range(200), monkeypatch)
    spread(three, address, "aaba")
    return old, sink(three[1], address, deterministic="false")


def test_a_placement_that_is_changed_in_the_middle_of_a_batch(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, new = move_a_partition(three, address, monkeypatch)
    written = ledger(three[0], address)
    # A task that was in the middle, and one that had not begun.
    for partition, numbers in ((0, range(200)), (1, range(200, 300))):
        with pytest.raises(AmqpWriteError, match=r"with other partitions on them.*partitions-on"):
            write_to(new, task(address, 0, partition), rows(numbers))
    assert ledger(three[0], address) == written
    # With the old placement the batch is done, and then the placement may change.
    spread(three, address)
    old = sink(three[1], address, deterministic="false")
    finish_at(old, [write_to(old, task(address), rows(range(200)))])
    assert ledger(three[0], address) == expected(range(200))
    spread(three, address, "aabbc")
    targets = sink(three[1], address, deterministic="false")
    finish_at(targets, [write_to(targets, task(address, 1), rows(range(200, 300)))])
    assert ledger(three[0], address, 5) == expected(range(300))
    assert ledger(three[2], address, 5) == ledger(three[0], address, 5)


def test_without_the_placement_in_the_digest_rows_would_be_lost(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the digest has to cover the placement."""
    real = digest_of
    monkeypatch.setattr(broker_list, "digest_of", lambda targets: real(replace(targets, owners=())))
    _, new = move_a_partition(three, address, monkeypatch)
    finish_at(new, [write_to(new, task(address), rows(range(200)))])
    found = ledger(three[0], address)
    assert found.total() < 200


def test_partitions_that_are_added_in_the_middle_of_a_batch(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Added partitions cannot be taken away again: other producers may have used them."""
    spread(three, address)
    begin(sink(three[0], address), address, range(200), monkeypatch)
    spread(three, address, "aabbcc")
    targets = sink(three[0], address)
    assert len(targets.brokers) == 3
    found = [
        write_to(targets, task(address), rows(range(200))),
        write_to(targets, task(address, 0, 1), rows(range(200, 300))),
    ]
    finish_at(targets, found)
    there = partitions(three[0], address, 6)
    assert Counter(body for each in there for body in each) == expected(range(300))
    assert there[4] == there[5] == []
    # The next batch has them.
    finish_at(targets, [write_to(targets, task(address, 1), rows(range(300, 400)))])
    there = partitions(three[0], address, 6)
    assert Counter(body for each in there for body in each) == expected(range(400))
    assert there[4] and there[5]
