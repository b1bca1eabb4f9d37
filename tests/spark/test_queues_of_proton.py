"""Queues of a broker nobody here wrote, a small one on Proton's binding: browsed and written to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ferrymq import Message, blocking
from tests.spark.sinking import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("proton")


@contextmanager
def proton(mode: str) -> Iterator[str]:
    """The URL of such a broker."""
    command = [sys.executable, "-m", "tests.spark.proton_queues", "--mode", mode]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert process.stdout.readline() == "ready\n"
        yield url
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def put(url: str, count: int) -> list[bytes]:
    bodies = [f"{number}".encode() for number in range(count)]
    with blocking.connect(url) as connection:
        connection.sender("jobs").send_many([Message(body, subject="job") for body in bodies])
    return bodies


def browse(spark: SparkSession, url: str, **options: str) -> DataFrame:
    reader = spark.read.format("amqp").options(url=url, subscribe="jobs", queueMode="browse")
    return reader.options(**options).load()


def taken(url: str, count: int) -> list[object]:
    with blocking.connect(url) as connection:
        receiver = connection.receiver("jobs")
        bodies: list[object] = []
        for _ in range(count):
            with receiver.receive(timeout=10) as delivery:
                bodies.append(delivery.message.body)
        return bodies


def test_all_there_is_and_nothing_is_taken(spark: SparkSession) -> None:
    with proton("copying") as url:
        bodies = put(url, 700)
        for _ in range(2):
            rows = browse(spark, url, maxRecordsPerBatch="200").collect()
            assert [bytes(row["body"]) for row in rows] == bodies
            assert {(row["subject"], row["partition"], row["offset"]) for row in rows} == {
                ("job", None, None)
            }
        assert browse(spark, url, queueLimit="10").count() == 10
        assert taken(url, 700) == bodies


def test_one_that_answers_no_drain_is_done_when_it_is_silent(spark: SparkSession) -> None:
    with proton("silent") as url:
        bodies = put(url, 150)
        rows = browse(spark, url, queueIdleMs="500").collect()
        assert [bytes(row["body"]) for row in rows] == bodies


def test_one_that_hands_messages_over_gets_them_back(spark: SparkSession) -> None:
    with proton("moving") as url:
        bodies = put(url, 20)
        for _ in range(2):
            rows = browse(spark, url).collect()
            assert [bytes(row["body"]) for row in rows] == bodies
        assert browse(spark, url, queueLimit="5").count() == 5
        assert taken(url, 20) == bodies


def test_one_without_transactions_is_told_from_one_that_is_away(spark: SparkSession) -> None:
    with proton("copying") as url:
        writer = rows(spark, 4).write.format("amqp").mode("append").options(url=url, address="jobs")
        with pytest.raises(PySparkException, match=r"has no transactions: .* at-least-once"):
            writer.option("delivery", "transactional").save()
        writer.option("delivery", "at-least-once").save()
        assert len(taken(url, 4)) == 4
