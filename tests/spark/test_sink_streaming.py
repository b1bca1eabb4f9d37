"""A query written batch after batch: every row once, through replays, restarts and kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ferrymq import blocking
from tests.interop.broker_process import BrokerProcess
from tests.spark.sinking import (
    expected,
    forget_commit,
    ledger,
    lines,
    run,
    write_lines,
)
from tests.spark.worker_python import write_worker_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

_STREAMS = '[[stream]]\npattern = "*"\npartitions = 2\n'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("store")
    with BrokerProcess(f'{_STREAMS}\n[store]\npath = "{data}"\n') as process:
        yield process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        write_lines(tmp_path / "lines", number, range(number * 100, number * 100 + 100))
    return tmp_path / "lines"


def test_a_batch_that_is_repeated_writes_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    query = run(lines(spark, folder), checkpoint, url=broker.url, address=address)
    assert ledger(broker.url, address) == expected(range(400))
    forget_commit(checkpoint, 1)
    # Done is done, for any partitioning.
    run(lines(spark, folder).coalesce(1), checkpoint, url=broker.url, address=address)
    assert ledger(broker.url, address) == expected(range(400))
    write_lines(folder, 9, range(400, 500))
    run(lines(spark, folder), checkpoint, url=broker.url, address=address)
    assert ledger(broker.url, address) == expected(range(500))
    with blocking.connect(broker.url) as connection:
        assert connection.fence(str(query.id), "*", target=address) == 2


def half_a_batch(
    frame: DataFrame, checkpoint: Path, url: str, address: str, **options: object
) -> None:
    """One task of a batch commits, another fails for good, as at the end of a driver."""
    broken = frame.selectExpr(
        "if(body = 'row-150', raise_error('on purpose'), body) as body",
    )
    for _ in range(20):
        with pytest.raises(PySparkException, match="on purpose"):
            run(broken, checkpoint, url=url, address=address, **options)
        # The one that fails may have taken the other with it, before that could commit.
        if ledger(url, address):
            return
    raise AssertionError("no task has committed")


def test_a_batch_that_was_half_done_is_done_by_as_many_tasks(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    frame, checkpoint = lines(spark, folder), tmp_path / "checkpoint"
    half_a_batch(frame, checkpoint, broker.url, address, tasks=2)
    assert ledger(broker.url, address) == expected(range(100))
    with pytest.raises(PySparkException, match=r"'tasks' says that there are 1|by 2 tasks"):
        run(frame, checkpoint, url=broker.url, address=address, tasks=1)
    run(frame, checkpoint, url=broker.url, address=address, tasks=2)
    assert ledger(broker.url, address) == expected(range(400))


def test_a_batch_that_was_begun_by_more_tasks_is_noticed(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    """Without `tasks` it is the driver that sees the fences beyond those there are."""
    frame, checkpoint = lines(spark, folder), tmp_path / "checkpoint"
    options = {"url": broker.url, "address": address, "deterministic": "false"}
    query = run(frame, checkpoint, **options)
    forget_commit(checkpoint, 1)
    forget_whole(broker.url, str(query.id), address)
    with pytest.raises(PySparkException, match="begun with at least 2 tasks, and now there were 1"):
        run(frame.coalesce(1), checkpoint, **options)


def forget_whole(url: str, group: str, target: str) -> None:
    """As if the driver had ended before it told the broker that a batch is whole."""
    arguments = {"group": group, "member": "*", "target": target}
    with blocking.connect(url) as connection, connection.management() as management:
        management.request("DELETE", "org.ferrymq.fence", body=arguments)


def test_at_least_once_names_messages_alike_when_it_repeats_them(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    from tests.spark.sinking import messages_at

    frame, checkpoint = lines(spark, folder), tmp_path / "checkpoint"
    options = {"url": broker.url, "address": address, "delivery": "at-least-once"}
    run(frame, checkpoint, **options)
    forget_commit(checkpoint, 1)
    query = run(frame, checkpoint, **options)
    found = messages_at(broker.url, address, start="first")
    assert len(found) == 600
    names = {(str(one.message_id), bytes(one.body)) for one in found}
    assert len(names) == 400
    assert len({name for name, _ in names}) == 400
    assert f"{query.id}:1:0:0" in {name for name, _ in names}


def test_a_result_is_not_replaced_as_a_whole(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    counts = lines(spark, folder).groupBy("body").count().select("body")
    writer = counts.writeStream.outputMode("complete").format("amqp").option("address", "a")
    writer = writer.option("url", "amqp://127.0.0.1:1")
    with pytest.raises(PySparkException, match="result cannot be replaced"):
        query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
        query.awaitTermination()


# ── Kills ────────────────────────────────────────────────────────────────────────────────────────

_DRIVER = """
import sys
from pyspark.sql import SparkSession
from pyspark_ferrymq.source import register

url, source, target, checkpoint, parquet = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,3]")
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
    .option("maxOffsetsPerTrigger", 250)
    .schema("body binary")
    .load()
)
queries = [
    frame.repartition(2)
    .writeStream.format("amqp")
    .option("url", url)
    .option("address", target)
    .option("tasks", 2)
    .option("checkpointLocation", checkpoint + "/sink")
    .trigger(availableNow=True)
    .start(),
    frame.writeStream.format("parquet")
    .option("checkpointLocation", checkpoint + "/parquet")
    .option("path", parquet)
    .trigger(availableNow=True)
    .start(),
]
print("started", flush=True)
for query in queries:
    query.awaitTermination()
print("finished", flush=True)
"""


def fill(url: str, stream: str, count: int) -> None:
    from ferrymq import Message

    with blocking.connect(url) as connection:
        sender = connection.sender(stream)
        for first in range(0, count, 500):
            sender.send_many(
                [Message(f"row-{n}".encode(), durable=True) for n in range(first, first + 500)]
            )


def test_kills_of_driver_and_broker(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    """The driver, its Java and its workers are killed in the middle, then the broker; then both
    are left in peace. Every record is once in the sink, and once in Parquet."""
    count, dice = 4000, random.Random(7)
    source, target = f"{address}-source", f"{address}-target"
    fill(broker.url, source, count)
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    parquet = tmp_path / "parquet"
    arguments = [broker.url, source, target, str(tmp_path / "checkpoint"), str(parquet)]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": write_worker_python(tmp_path)},
        )

    def wait_for_rows(process: subprocess.Popen[str], share: float) -> None:
        """Until so much of all is in the target, or the driver has ended."""
        while process.poll() is None and len(ledger(broker.url, target)) < share * count:
            threading.Event().wait(0.2)

    driver = start()
    try:
        wait_for_rows(driver, dice.uniform(0.1, 0.4))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        assert len(ledger(broker.url, target)) < count
        driver = start()
        wait_for_rows(driver, dice.uniform(0.5, 0.7))
        broker.kill()
        broker.start()
        driver.communicate(timeout=120)
        while driver.returncode != 0:
            # What was lost with the broker may have cost a query its last attempt.
            driver = start()
            driver.communicate(timeout=120)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()
    assert ledger(broker.url, target) == expected(range(count))
    found = spark.read.parquet(str(parquet)).selectExpr("cast(body as string) as body").collect()
    assert Counter(row.body for row in found) == expected(range(count))
