"""Several brokers in one query: read, added to it, lost from it; written to, each row once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import PySparkException

from ferrymq import blocking
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, drain, follow, numbers, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Two(NamedTuple):
    """Two brokers with a store each."""

    a: BrokerProcess
    b: BrokerProcess

    @property
    def urls(self) -> str:
        return f"{self.a.url},{self.b.url}"


def config(folder: Path) -> str:
    return f'[[stream]]\npattern = "*"\npartitions = 2\n[store]\npath = "{folder}"\n'


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("stores")
    with BrokerProcess(config(folder / "a")) as a, BrokerProcess(config(folder / "b")) as b:
        yield Two(a, b)


def fill(broker: BrokerProcess, stream: str, count: int, first: int) -> None:
    with Streams(broker) as kit:
        kit.fill(stream, count, first)


def id_of(broker: BrokerProcess) -> str:
    with blocking.connect(broker.url) as connection:
        return str(connection.remote_properties["ferrymq:broker-id"])


def test_a_batch_over_two(spark: SparkSession, two: Two, address: str) -> None:
    fill(two.a, address, 20, 0)
    fill(two.b, address, 10, 100)
    frame = read(
        spark,
        two.a,
        url=two.urls,
        subscribe=address,
        schema="body binary, broker string, partition int, offset bigint",
    )
    rows = frame.collect()
    assert sorted(int(row.body) for row in rows) == [*range(20), *range(100, 110)]
    # Partition and offset alone are not unique, with the broker they are.
    assert len({(row.partition, row.offset) for row in rows}) == 20
    assert len({(row.broker, row.partition, row.offset) for row in rows}) == 30
    assert {row.broker for row in rows} == {id_of(two.a), id_of(two.b)}
    with pytest.raises(PySparkException, match="each offset has to name its broker"):
        start = json.dumps({address: {"0": 0, "1": 0}})
        read(spark, two.a, url=two.urls, subscribe=address, startingOffsets=start).collect()


def test_a_broker_is_added_and_lost(
    spark: SparkSession, two: Two, address: str, tmp_path: Path
) -> None:
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"

    def run(url: str, **options: object) -> list[int]:
        frame = follow(
            spark,
            two.a,
            url=url,
            subscribe=address,
            startingOffsets="earliest",
            schema="body binary",
            maxOffsetsPerTrigger=12,
            **options,
        )
        drain(frame, checkpoint, output)
        return numbers(spark.read.schema("body binary").parquet(str(output)))

    fill(two.a, address, 20, 0)
    assert run(two.a.url) == [*range(20)]
    fill(two.a, address, 5, 20)
    fill(two.b, address, 10, 100)
    both = [*range(25), *range(100, 110)]
    assert run(two.urls) == both
    # The batch that is written down last is done again.
    last = max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()
    fill(two.b, address, 5, 110)
    assert run(two.urls) == sorted([*both, *range(110, 115)])
    fill(two.a, address, 5, 25)
    with pytest.raises(PySparkException) as caught:
        run(two.a.url)
    message = str(caught.value)
    assert "AmqpDataLossError" in message
    assert f"stream '{address}' at the broker '{id_of(two.b)}', partition 0" in message
    assert "no URL leads to this broker any more" in message
    everything = sorted([*both, *range(110, 115), *range(25, 30)])
    assert run(two.a.url, failOnDataLoss=False) == everything
    # It is back, as a broker that the query does not know any more.
    assert run(two.urls) == sorted([*everything, *range(100, 115)])
