"""Queues browsed at RabbitMQ, which removes what a browser accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ferrymq import blocking
from tests.interop.brokers.sites import KNOWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE = "browsed"


@pytest.mark.parametrize("key", ["rabbitmq-3", "rabbitmq-4"])
def test_nothing_is_taken(spark: SparkSession, key: str) -> None:
    if reason := KNOWN[key].missing():
        pytest.skip(f"{KNOWN[key].title}: {reason}")
    with KNOWN[key].start(key, [QUEUE], []) as site:
        bodies = [f"{number}".encode() for number in range(300)]
        with blocking.connect(site.url()) as connection:
            connection.sender(site.queue(QUEUE)).send_many(bodies)
            reader = spark.read.format("amqp").options(
                url=site.url(), subscribe=site.queue(QUEUE), queueMode="browse", queueIdleMs="500"
            )
            for _ in range(2):
                assert [bytes(row["body"]) for row in reader.load().collect()] == bodies
            receiver = connection.receiver(site.queue(QUEUE))
            for body in bodies:
                with receiver.receive(timeout=10) as delivery:
                    assert delivery.message.body == body
