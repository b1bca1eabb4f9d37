"""Rows for several brokers: which broker gets which, and each row once whatever is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ferrymq import Message, blocking
from ferrymq.arrow import MessageEncoder
from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.options.broker_identity import identity_of
from pyspark_ferrymq.writing import many_brokers
from pyspark_ferrymq.writing.broker_choice import SLOTS, BrokerChoice, brokers_of_slots, slot_of
from pyspark_ferrymq.writing.many_brokers import finish_at, write_to
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.targets import SinkTargets, targets_of
from pyspark_ferrymq.writing.task_identity import TaskIdentity, WrittenRows, WrittenToBrokers
from tests.interop.broker_process import BrokerProcess
from tests.spark.sinking import expected, ledger, messages_at

STREAMS = '[[stream]]\npattern = "*"\npartitions = 2\n'


# -- which broker ------------------------------------------------------------------------------

ABC = ("broker-a", "broker-b", "broker-c")
OPTIONS = {"url": "amqp://h", "address": "there"}


def choice(*ids: str) -> BrokerChoice:
    options = SinkOptions.parse(OPTIONS, streaming=False)
    return BrokerChoice(options, TaskIdentity("job", 0, 0), ids)


def divided(choice: BrokerChoice, **columns: Sequence[object]) -> dict[int, list[Any]]:
    """The values of the first column by broker."""
    batch = pa.RecordBatch.from_pydict({name: list(values) for name, values in columns.items()})
    return {index: rows.column(0).to_pylist() for index, rows in choice.divide(batch)}


def test_the_broker_of_a_key_is_fixed() -> None:
    """Others compute the same, so this must never change."""
    assert slot_of(b"order-7") == 2778
    assert [brokers_of_slots(ABC)[slot] for slot in (0, 1, 2778, 4095)] == [0, 0, 1, 2]
    shares = Counter(brokers_of_slots(ABC))
    assert sum(shares.values()) == SLOTS
    assert all(0.9 < count * 3 / SLOTS < 1.1 for count in shares.values())


def test_a_new_broker_takes_from_all_and_nothing_else_moves() -> None:
    two, three = brokers_of_slots(ABC[:2]), brokers_of_slots(ABC)
    moved = [(before, after) for before, after in zip(two, three, strict=True) if before != after]
    assert {after for _, after in moved} == {2}
    assert {before for before, _ in moved} == {0, 1}


def test_rows_of_a_key_stay_together_and_in_order() -> None:
    keys = [f"key-{number % 50}" for number in range(1000)]
    found = divided(choice(*ABC), body=[b"%d" % n for n in range(1000)], partitionKey=keys)
    assert sorted(found) == [0, 1, 2]
    for bodies in found.values():
        assert all(int(first) < int(second) for first, second in pairwise(bodies))
    of_key = {keys[int(body)]: index for index, bodies in found.items() for body in bodies}
    assert sum(map(len, found.values())) == 1000
    assert len({(keys[int(body)], i) for i, bodies in found.items() for body in bodies}) == 50
    assert of_key["key-7"] == brokers_of_slots(ABC)[slot_of(b"key-7")]


def test_without_a_partition_key_the_group_counts_and_then_the_message() -> None:
    by_key = divided(choice(*ABC), body=[b"1", b"2"], partitionKey=["x", "y"])
    by_group = divided(choice(*ABC), body=[b"1", b"2"], groupId=["x", "y"])
    both = divided(choice(*ABC), body=[b"1", b"2"], partitionKey=["x", None], groupId=["q", "y"])
    assert by_key == by_group == both
    bodies = [b"%d" % number for number in range(300)]
    alone = divided(choice(*ABC), body=bodies)
    assert sorted(alone) == [0, 1, 2]
    # In any order, as after a shuffle.
    turned = divided(choice(*ABC), body=bodies[::-1])
    assert {index: set(found) for index, found in alone.items()} == {
        index: set(found) for index, found in turned.items()
    }


def test_the_keys_of_whole_messages_count_too() -> None:
    bodies, keys = [b"%d" % n for n in range(100)], [f"key-{n % 9}" for n in range(100)]
    plain = pa.RecordBatch.from_pydict({"body": bodies, "partitionKey": keys})
    raw = MessageEncoder(plain.schema).encode(plain)
    by_key = divided(choice(*ABC), body=bodies, partitionKey=keys)
    by_raw = divided(choice(*ABC), raw=raw)
    places = dict(zip(raw, bodies, strict=True))
    assert {i: [places[one] for one in found] for i, found in by_raw.items()} == by_key


def test_a_column_may_say_the_broker() -> None:
    names = ["broker-b", None, "broker-b"]
    found = divided(choice(*ABC), body=[b"1", b"2", b"3"], broker=names, partitionKey=["x"] * 3)
    by_key = brokers_of_slots(ABC)[slot_of(b"x")]
    assert {b"1", b"3"} <= set(found[1]) and b"2" in found[by_key]
    with pytest.raises(AmqpWriteError, match=r"'broker-x'.*are broker-a, .*Drop the column"):
        divided(choice(*ABC), body=[b"1"], broker=["broker-x"])


# -- each row once -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    """Three brokers, in the order of their ids."""
    folder: Path = tmp_path_factory.mktemp("stores")
    configs = [f'{STREAMS}[store]\npath = "{folder / name}"\n' for name in "abc"]
    with (
        BrokerProcess(configs[0]) as a,
        BrokerProcess(configs[1]) as b,
        BrokerProcess(configs[2]) as c,
    ):
        yield sorted((a, b, c), key=id_of)


def id_of(broker: BrokerProcess) -> str:
    with blocking.connect(broker.url) as connection:
        return identity_of(connection.remote_properties).id


def sink(brokers: Sequence[BrokerProcess], address: str) -> SinkTargets:
    """What the driver finds."""
    from pyspark.sql.types import StringType, StructField, StructType

    url = ",".join(broker.url for broker in brokers)
    options = SinkOptions.parse({"url": url, "address": address}, streaming=True)
    return targets_of(options, StructType([StructField("body", StringType())]))


def delivering(targets: SinkTargets, delivery: str) -> SinkTargets:
    return SinkTargets(tuple(replace(one, delivery=delivery) for one in targets.brokers))


def task(address: str, batch: int = 0, partition: int = 0) -> TaskIdentity:
    return TaskIdentity(f"query-{address}", batch, partition, 0, address, True)


def rows(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Batches of a hundred rows."""
    bodies = [f"row-{number}" for number in numbers]
    for first in range(0, len(bodies), 100):
        yield pa.RecordBatch.from_pydict({"body": bodies[first : first + 100]})


def all_rows(brokers: Sequence[BrokerProcess], address: str) -> Counter[str]:
    return sum((ledger(broker.url, address) for broker in brokers), Counter[str]())


def parts_of(written: WrittenRows | WrittenToBrokers) -> list[tuple[int, bool]]:
    """Rows and whether they are a repetition, by broker."""
    assert isinstance(written, WrittenToBrokers)
    return [(part.rows, part.repeated) for part in written.parts]


def fail_after(monkeypatch: pytest.MonkeyPatch, brokers: int) -> None:
    """The task ends after so many brokers have committed."""
    real, done = many_brokers.write_kept, []

    def failing(*arguments: Any) -> WrittenRows:
        if len(done) == brokers:
            raise OSError("the end of the task")
        done.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(many_brokers, "write_kept", failing)


def test_one_batch_is_divided_among_two(three: list[BrokerProcess], address: str) -> None:
    pair = three[:2]
    targets = sink(pair[::-1], address)
    assert [one.connection.url for one in targets.brokers] == [broker.url for broker in pair]
    found = [
        write_to(targets, task(address, 0, n), rows(range(n * 500, n * 500 + 500))) for n in (0, 1)
    ]
    finish_at(targets, found)
    assert all_rows(pair, address) == expected(range(1000))
    assert all(ledger(broker.url, address).total() > 300 for broker in pair)
    # The whole batch again, with other tasks.
    again = write_to(targets, task(address), rows(range(1000)))
    assert [part[1] for part in parts_of(again)] == [True, True]
    finish_at(targets, [again])
    assert all_rows(pair, address) == expected(range(1000))


def test_a_broker_without_rows_has_its_fence(three: list[BrokerProcess], address: str) -> None:
    targets = sink(three[:2], address)
    found = write_to(targets, task(address), rows([1]))
    assert sorted(part[0] for part in parts_of(found)) == [0, 1]
    again = write_to(targets, task(address), rows([1]))
    assert [part[1] for part in parts_of(again)] == [True, True]
    assert all_rows(three[:2], address) == expected(range(1, 2))


def test_a_task_that_ends_between_the_commits(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = three[:2]
    targets = sink(pair, address)
    with monkeypatch.context() as patch:
        fail_after(patch, 1)
        with pytest.raises(OSError, match="end of the task"):
            write_to(targets, task(address), rows(range(500)))
    first = ledger(pair[0].url, address)
    assert 0 < first.total() < 500 and ledger(pair[1].url, address).total() == 0
    # The rows come in another order, as after a shuffle.
    again = write_to(targets, task(address), rows(reversed(range(500))))
    assert parts_of(again) == [(0, True), (500 - first.total(), False)]
    finish_at(targets, [again])
    assert all_rows(pair, address) == expected(range(500))
    write_to(targets, task(address, 1), rows(range(500, 600)))
    assert all_rows(pair, address) == expected(range(600))


def test_other_rows_are_noticed_where_they_are(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = sink(three[:2], address)
    with monkeypatch.context() as patch:
        fail_after(patch, 1)
        with pytest.raises(OSError, match="end of the task"):
            write_to(targets, task(address), rows(range(500)))
    with pytest.raises(AmqpWriteError, match="with other rows than now"):
        write_to(targets, task(address), rows(range(250)))
    assert ledger(three[1].url, address).total() == 0


@pytest.mark.parametrize(
    ("before", "after"), [("ab", "abc"), ("ab", "a"), ("ab", "b"), ("a", "ab"), ("ab", "bc")]
)
def test_the_list_is_changed_in_the_middle_of_a_batch(
    three: list[BrokerProcess],
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
) -> None:
    def named(letters: str) -> list[BrokerProcess]:
        return [three["abc".index(letter)] for letter in letters]

    old, new = sink(named(before), address), sink(named(after), address)
    write_to(old, task(address, 0, 0), rows(range(100)))
    if len(before) > 1:
        with monkeypatch.context() as patch:
            fail_after(patch, 1)
            with pytest.raises(OSError, match="end of the task"):
                write_to(old, task(address, 0, 1), rows(range(100, 200)))
    written = all_rows(three, address)
    # A task that had written, one that was in the middle, one that had not begun.
    for partition, numbers in ((0, range(100)), (1, range(100, 200)), (2, range(200, 300))):
        if len(after) == 1 and len(before) == 1 and partition:
            continue
        with pytest.raises(AmqpWriteError, match=r"with other brokers than.*Restore the option"):
            write_to(new, task(address, 0, partition), rows(numbers))
    assert all_rows(three, address) == written
    # With the old list the batch is done, and then the list may change.
    done = [
        write_to(old, task(address, 0, n), rows(range(n * 100, n * 100 + 100))) for n in range(3)
    ]
    finish_at(old, done)
    assert all_rows(three, address) == expected(range(300))
    finish_at(new, [write_to(new, task(address, 1), rows(range(300, 400)))])
    assert all_rows(three, address) == expected(range(400))


def test_without_fences_rows_would_come_twice(
    three: list[BrokerProcess], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the fences are needed."""
    targets = sink(three[:2], address)
    with monkeypatch.context() as patch:
        fail_after(patch, 1)
        with pytest.raises(OSError, match="end of the task"):
            write_to(targets, task(address), rows(range(100)))
    unfenced = delivering(targets, "transactional")
    write_to(unfenced, task(address), rows(range(100)))
    found = all_rows(three[:2], address)
    assert set(found) == set(expected(range(100)))
    assert found.total() > 100


def test_ids_of_messages_are_unique_over_brokers(three: list[BrokerProcess], address: str) -> None:
    targets = delivering(sink(three[:2], address), "at-least-once")
    write_to(targets, task(address), rows(range(100)))
    ids = [
        message.message_id
        for broker in three[:2]
        for message in messages_at(broker.url, address, start="first")
    ]
    assert len(set(ids)) == 100


def test_a_url_that_leads_to_another_broker_now(three: list[BrokerProcess], address: str) -> None:
    one, other = sink(three[:2], address).brokers
    moved = replace(one, connection=replace(one.connection, url=three[2].url))
    with pytest.raises(Exception, match="led to the broker"):
        write_to(SinkTargets((moved, other)), task(address), rows(range(10)))
    with blocking.connect(three[2].url) as connection, connection.sender(address) as sender:
        sender.send(Message(b"row-0", durable=True))
    assert all_rows(three, address) == expected(range(1))
