"""Connections that Python workers keep for their next tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_ferrymq import worker_connections
from pyspark_ferrymq.options import BrokerOptions
from pyspark_ferrymq.worker_connections import worker_connection
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, eventually, follow

# The role of the connections that ask brokers who they are.
DRIVER = "/driver/identity/"


@pytest.fixture(scope="module")
def streams(broker: BrokerProcess) -> Iterator[Streams]:
    with Streams(broker) as kit:
        yield kit


@pytest.fixture
def settings(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> BrokerOptions:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    return BrokerOptions(url=broker.url, place=broker.url, group_id="test")


def test_the_next_task_takes_it(settings: BrokerOptions, streams: Streams, address: str) -> None:
    streams.create(address, 1)
    with worker_connection(settings, "query-1/write") as first:
        sender, management = first.sender(address), first.management()
    with worker_connection(replace(settings), "query-1/write") as second:
        assert second.connection is first.connection
        assert second.sender(address) is sender and second.management() is management
        with worker_connection(settings, "query-1/write") as beside:
            assert beside.connection is not first.connection
    with worker_connection(settings, "query-2/write") as other:
        assert other.connection not in (first.connection, beside.connection)
    with worker_connection(replace(settings, group_id="other"), "query-1/write") as named:
        assert named.connection not in (first.connection, beside.connection)
    with worker_connection(settings, "query-1/write", new=True) as fresh:
        assert fresh.connection not in (first.connection, beside.connection)


def test_nobody_takes_what_is_over(settings: BrokerOptions) -> None:
    with pytest.raises(ZeroDivisionError), worker_connection(settings, "query-3/read") as failed:
        raise ZeroDivisionError
    assert failed.connection.closed
    with worker_connection(settings, "query-3/read") as left:
        pass
    # As the broker may do while no task has it.
    left.connection.close()
    with worker_connection(settings, "query-3/read") as found:
        assert found.connection not in (failed.connection, left.connection)


def test_links_that_have_ended_are_attached_again(
    settings: BrokerOptions, streams: Streams, address: str
) -> None:
    streams.create(address, 1)
    with worker_connection(settings, "query-4/write") as kept:
        sender = kept.sender(address)
        streams.delete(address)
        eventually(lambda: sender.closed)
        streams.create(address, 1)
        assert kept.sender(address) is not sender
        kept.management().close()
        assert not kept.management().closed


def test_closed_if_no_task_comes(settings: BrokerOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_connections, "IDLE_SECONDS", 0.01)
    with worker_connection(settings, "query-5/read") as one:
        pass
    eventually(lambda: one.connection.closed)
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    with worker_connection(settings, "query-5/read") as last:
        pass
    assert last.connection.closed


def test_batches_share_connections(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    target = f"{address}-out"
    streams.create(address, 2)
    streams.create(target, 2)
    frame = follow(
        spark, broker, subscribe=address, startingOffsets="earliest", schema="body binary"
    )
    query = (
        frame.writeStream.format("amqp")
        .options(url=broker.url, address=target, checkpointLocation=str(tmp_path))
        .trigger(processingTime="0 seconds")
        .start()
    )
    mine = f"/query-{query.id}/"
    names: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        with Streams(broker) as kit:
            while not stop.is_set():
                names.update(name for name in kit.others() if mine in name or DRIVER in name)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        batches = 12
        for number in range(batches):
            streams.fill(address, 10, 10 * number)
            query.processAllAvailable()
        assert sum(end - first for first, end in streams.ranges(target)) == 10 * batches
    finally:
        stop.set()
        watcher.join()
        query.stop()
    # Each batch needs two to read, two to write, and two in the driver.
    assert 0 < len(names) < 2 * batches
    eventually(lambda: streams.others() == [])
