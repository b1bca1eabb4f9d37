"""A broker that is killed, or started again, under a query that may fail at nothing.

The driver runs with `local[2]`, where Spark tries no task twice: the source and the sink have to
get over it by themselves. Every row is in the target once. `tests.spark.kills` does more to a query
on a cluster.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ferrymq import Message, blocking
from tests.interop.broker_process import BrokerProcess
from tests.spark.sinking import expected, ledger
from tests.spark.worker_python import write_worker_python

_DRIVER = """
import sys
from pyspark.sql import SparkSession
from pyspark_ferrymq.source import register

url, source, target, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
register(spark)
frame = (
    spark.readStream.format("amqp")
    .option("url", url)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 120)
    .schema("body binary")
    .load()
)
query = (
    frame.repartition(2)
    .writeStream.format("amqp")
    .option("url", url)
    .option("address", target)
    .option("tasks", 2)
    .option("checkpointLocation", checkpoint)
    .start()
)
print("started", flush=True)
query.awaitTermination()
"""

KILLS = 3
# Rows that come between two kills.
_ROWS = 200


@contextmanager
def driver(url: str, source: str, target: str, place: Path) -> Iterator[subprocess.Popen[str]]:
    """The query, in a process of its own, which is killed in the end."""
    script = place / "driver.py"
    script.write_text(_DRIVER)
    with (place / "driver.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(script), url, source, target, str(place / "checkpoint")],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": write_worker_python(place)},
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def count(url: str, stream: str) -> int:
    """How many records there are in a stream."""
    with blocking.connect(url) as connection, connection.management() as management:
        answer: Any = management.request(
            "RANGES", "org.ferrymq.stream", body={"names": [stream]}
        ).map()
    return sum(
        int(one["next-offset"]) for stream in answer["streams"] for one in stream["partitions"]
    )


def start(broker: BrokerProcess) -> None:
    """Start the broker, also on a machine that is too busy to do so at the first attempt."""
    try:
        broker.start()
    except AssertionError:
        broker.start()


@pytest.mark.slow
def test_kills_of_the_broker_end_no_query(tmp_path: Path, address: str) -> None:
    dice = random.Random(KILLS)
    source, target = f"{address}-source", f"{address}-target"
    config = f'[[stream]]\npattern = "*"\npartitions = 2\n[store]\npath = "{tmp_path / "store"}"\n'
    with BrokerProcess(config) as broker:

        def fill(first: int) -> None:
            with blocking.connect(broker.url) as connection:
                rows = [f"row-{n}".encode() for n in range(first, first + _ROWS)]
                connection.sender(source).send_many([Message(row, durable=True) for row in rows])
                # There is something to count from the beginning.
                connection.sender(target).close()

        fill(0)
        with driver(broker.url, source, target, tmp_path) as process:

            def wait_for(rows: int) -> None:
                while count(broker.url, target) < rows:
                    assert process.poll() is None, (tmp_path / "driver.txt").read_text()[-5000:]
                    threading.Event().wait(0.1)

            for kill in range(1, KILLS + 1):
                wait_for(kill * _ROWS - dice.randrange(0, _ROWS))
                fill(kill * _ROWS)
                # Anywhere in a batch: planning, tasks, the driver's last step.
                threading.Event().wait(dice.uniform(0, 1.5))
                if dice.random() < 0.2:
                    broker.stop()
                else:
                    broker.kill()
                threading.Event().wait(dice.uniform(0, 1.0))
                start(broker)
            wait_for((KILLS + 1) * _ROWS)
            assert ledger(broker.url, target) == expected(range((KILLS + 1) * _ROWS))
