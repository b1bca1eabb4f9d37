"""Several URLs of one broker: a query goes on when the broker moves from one to another."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ferrymq import Message, blocking
from pyspark_ferrymq.errors import AmqpSourceError
from pyspark_ferrymq.options import BrokerOptions, Values, connect
from pyspark_ferrymq.options.connection import AmqpUnreachableError, client_arguments
from tests.client.peer import Peer
from tests.interop.broker_process import PATIENCE, BrokerProcess
from tests.interop.brokers.process import free_ports
from tests.spark.kit import eventually
from tests.spark.sinking import expected, ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 100


def settings(**options: str) -> BrokerOptions:
    return BrokerOptions.parse(Values(options))


def test_the_login_is_for_all_urls() -> None:
    options = settings(url="amqp://a, amqp://b:1", username="me", password="ge,heim")
    url, _ = client_arguments(options)
    assert url == "amqp://me:ge%2Cheim@a,amqp://me:ge%2Cheim@b:1"
    assert options.place == "amqp://a:5672, amqp://b:1"


def test_the_next_url_is_tried(broker: BrokerProcess) -> None:
    connection = connect(settings(url=f"amqp://127.0.0.1:9,{broker.url}"), "test")
    try:
        assert str(connection.url) == broker.url
        # Readers and writers begin again by themselves.
        assert connection.options.reconnect is False
    finally:
        connection.close()


def test_errors_name_the_urls_without_passwords() -> None:
    options = settings(url="amqp://me:geheim@127.0.0.1:9,amqp://me:geheim@127.0.0.1:10")
    with pytest.raises(AmqpUnreachableError) as caught:
        connect(options, "test")
    assert "no connection to amqp://me@127.0.0.1:9, amqp://me@127.0.0.1:10" in str(caught.value)
    assert "geheim" not in str(caught.value) + repr(options)


async def test_the_url_that_worked_last_is_tried_first() -> None:
    async with Peer() as peer, Peer() as other:
        options = settings(url=f"{peer.url},{other.url}")
        peer.server.close()
        for _ in range(2):
            connection = await asyncio.to_thread(connect, options, "test")
            assert str(connection.url) == other.url
            await asyncio.to_thread(connection.close)
            if not peer.server.is_serving():
                await peer.listen_again()
        assert peer.connections == []


async def test_urls_of_different_brokers_are_refused() -> None:
    async with (
        Peer(properties={"ferrymq:cluster": "one"}) as peer,
        Peer(properties={"ferrymq:cluster": "two"}) as other,
    ):
        options = settings(url=f"{peer.url},{other.url}")
        connection = await asyncio.to_thread(connect, options, "test")
        await asyncio.to_thread(connection.close)
        peer.server.close()
        with pytest.raises(AmqpSourceError, match=r"'two'.*'one'.*URLs of one broker"):
            await asyncio.to_thread(connect, options, "test")


def fill(broker: BrokerProcess, stream: str, first: int) -> None:
    with blocking.connect(broker.url) as connection, connection.sender(stream) as sender:
        bodies = [f"row-{number}".encode() for number in range(first, first + ROWS)]
        sender.send_many([Message(body, durable=True) for body in bodies], timeout=PATIENCE)


def test_a_query_follows_the_broker(spark: SparkSession, tmp_path: Path, address: str) -> None:
    source, target = f"{address}-source", f"{address}-target"
    config = f'[[stream]]\npattern = "*"\n[store]\npath = "{tmp_path / "store"}"\n'
    first, second = BrokerProcess(config), BrokerProcess(config)
    first.port, second.port = free_ports(2)
    urls = f"{first.url},{second.url}"
    with first:
        fill(first, source, 0)
        query = (
            spark.readStream.format("amqp")
            .option("url", urls)
            .option("brokers", 1)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ROWS // 4)
            .schema("body binary")
            .load()
            .writeStream.format("amqp")
            .option("url", urls)
            .option("brokers", 1)
            .option("address", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            eventually(lambda: query.lastProgress is not None)
            # In the middle of the batches.
            first.kill()
            with second:
                fill(second, source, ROWS)
                whole = expected(range(2 * ROWS))
                deadline = time.monotonic() + PATIENCE
                while ledger(second.url, target).total() < 2 * ROWS:
                    assert query.exception() is None, query.exception()
                    assert time.monotonic() < deadline
                    query.awaitTermination(timeout=0.1)
                assert ledger(second.url, target) == whole
                query.stop()
        finally:
            query.stop()
