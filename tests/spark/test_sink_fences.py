"""What the sink does not write again, and what it refuses to take for written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from ferrymq import Fence, blocking
from tests.interop.broker_process import BrokerProcess
from tests.spark.sinking import expected, forget_commit, ledger, lines, rows, run, write_lines

if TYPE_CHECKING:

    from pyspark.sql import DataFrame, SparkSession

CONFIG = '[[stream]]\npattern = "*"\npartitions = 2\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        write_lines(tmp_path / "lines", number, range(number * 100, number * 100 + 100))
    return tmp_path / "lines"


def fence(url: str, group: str, member: str, target: str) -> dict[str, Any]:
    """A fence as management shows it."""
    arguments = {"group": group, "member": member, "target": target}
    with blocking.connect(url) as connection, connection.management() as management:
        return management.request("READ", "org.ferrymq.fence", body=arguments).map()


def test_one_version_is_written_to_two_addresses(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    """Delta's idiom: the version counts for each table."""
    write_lines(tmp_path / "lines", 1, range(300))
    left, right = f"{address}-left", f"{address}-right"

    def write(frame: DataFrame, batch: int) -> None:
        for target in (left, right):
            writer = frame.write.format("amqp").mode("append").option("url", broker.url)
            writer = writer.option("address", target).option("txnAppId", address)
            writer.option("txnVersion", str(batch)).save()

    query = lines(spark, tmp_path / "lines").writeStream.foreachBatch(write)
    for _ in range(2):
        checkpoint = str(tmp_path / "checkpoint")
        running = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running.start().awaitTermination()
        assert ledger(broker.url, left) == expected(range(300))
        assert ledger(broker.url, right) == expected(range(300))
        forget_commit(tmp_path / "checkpoint", 0)


def test_a_checkpoint_is_copied_to_another_address(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    run(lines(spark, folder), tmp_path / "c", url=broker.url, address=address)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    forget_commit(tmp_path / "copy", 1)
    write_lines(folder, 9, range(400, 440))
    other = f"{address}-other"
    run(lines(spark, folder), tmp_path / "copy", url=broker.url, address=other)
    assert ledger(broker.url, other) == expected(range(200, 440))


def test_a_checkpoint_that_is_older_than_the_target_is_refused(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    run(lines(spark, folder, 1), checkpoint, url=broker.url, address=address)
    shutil.copytree(checkpoint, tmp_path / "backup")
    for number in range(4, 7):
        write_lines(folder, number, range(number * 100, number * 100 + 100))
    run(lines(spark, folder, 1), checkpoint, url=broker.url, address=address)
    for number in range(7, 10):
        write_lines(folder, number, range(number * 100, number * 100 + 100))
    with pytest.raises(PySparkException, match="has batch 6 of this query already") as refused:
        run(lines(spark, folder, 6), tmp_path / "backup", url=broker.url, address=address)
    assert "ferrymq admin delete fence" in str(refused.value)
    assert "new checkpoint" in str(refused.value)
    assert ledger(broker.url, address) == expected(range(700))


def test_a_job_with_a_lower_version_is_refused(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    def write(count: int, version: int) -> None:
        writer = rows(spark, count).write.format("amqp").mode("append").option("url", broker.url)
        writer = writer.option("address", address).option("txnAppId", address)
        writer.option("txnVersion", str(version)).save()

    write(10, 5)
    with pytest.raises(PySparkException, match=r"5 is the last 'txnVersion'.*a higher"):
        write(20, 4)
    # The same version with other rows is other work.
    with pytest.raises(PySparkException, match="before, with other rows than now"):
        write(20, 5)
    write(10, 5)
    assert ledger(broker.url, address) == expected(range(10))
    assert fence(broker.url, address, "*", address)["repeated"] == 10


def test_a_batch_with_other_rows_is_refused(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    query = run(lines(spark, folder), checkpoint, url=broker.url, address=address)
    forget_commit(checkpoint, 1)
    changed = lines(spark, folder).selectExpr("concat(body, '!') as body")
    with pytest.raises(PySparkException, match=r"with other rows than now.*'deterministic'"):
        run(changed, checkpoint, url=broker.url, address=address)
    run(changed, checkpoint, url=broker.url, address=address, deterministic="false")
    assert ledger(broker.url, address) == expected(range(400))
    shown = fence(broker.url, str(query.id), "*", address)
    assert (shown["rows"], shown["repeated"], shown["width"]) == (200, 200, 2)
    assert len(shown["digest"]) == 34


def test_tasks_with_other_rows_are_refused(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    """The driver had ended before it told the broker that the batch is whole."""
    from tests.spark.test_sink_streaming import forget_whole

    checkpoint = tmp_path / "c"
    query = run(lines(spark, folder), checkpoint, url=broker.url, address=address)
    forget_commit(checkpoint, 1)
    forget_whole(broker.url, str(query.id), address)
    changed = lines(spark, folder).selectExpr("concat(body, '!') as body")
    with pytest.raises(PySparkException, match="with other rows than now"):
        run(changed, checkpoint, url=broker.url, address=address)
    run(lines(spark, folder), checkpoint, url=broker.url, address=address)
    assert ledger(broker.url, address) == expected(range(400))
    for task in ("0", "1"):
        assert fence(broker.url, str(query.id), task, address)["repeated"] == 100


def test_rows_that_say_where_they_go_are_compared_with_that(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    frame = rows(spark, 40).selectExpr("body", f"'{address}-a' as address")

    def write(frame: DataFrame) -> None:
        writer = frame.write.format("amqp").mode("append").option("url", broker.url)
        writer.option("txnAppId", address).option("txnVersion", "1").save()

    for _ in range(2):
        write(frame)
    with pytest.raises(PySparkException, match="with other rows than now"):
        write(frame.selectExpr("body", f"'{address}-b' as address"))
    assert ledger(broker.url, f"{address}-a") == expected(range(40))
    assert fence(broker.url, address, "*", "*")["repeated"] == 40


def test_fences_of_an_older_release_go_on_as_they_did(
    spark: SparkSession, broker: BrokerProcess, address: str, folder: Path, tmp_path: Path
) -> None:
    """They have no target and no digest: what is not above them is there."""
    checkpoint = tmp_path / "c"
    query = run(lines(spark, folder), checkpoint, url=broker.url, address=address)
    group = str(query.id)
    with blocking.connect(broker.url) as connection:
        with connection.management() as management:
            management.delete("org.ferrymq.fence", group)
        for member in ("0", "1", "*"):
            with connection.transaction(fence=Fence(group, member, 1, 0)):
                pass
    forget_commit(checkpoint, 1)
    write_lines(folder, 9, range(400, 440))
    run(lines(spark, folder), checkpoint, url=broker.url, address=address)
    assert ledger(broker.url, address) == expected(range(440))
    assert fence(broker.url, group, "*", "")["sequence"] == 1
    assert fence(broker.url, group, "*", address)["sequence"] == 2


_SECURED = """
[security.users]
shop = "secret"

[[rule]]
who = "user:shop"
may = ["send", "create"]
where = "orders.*"

[[stream]]
pattern = "*"
"""


def test_who_may_send_to_an_address_may_write_there_exactly_once(spark: SparkSession) -> None:
    """With the rules of the secured example in the README."""
    with BrokerProcess(_SECURED) as broker:
        url = broker.url.replace("://", "://shop:secret@")
        for _ in range(2):
            writer = rows(spark, 10).write.format("amqp").mode("append").option("url", url)
            writer = writer.option("address", "orders.totals").option("txnAppId", "job")
            writer.option("txnVersion", "1").save()
        with blocking.connect(url) as connection:
            found = connection.committed("job", "*", target="orders.totals")
        assert found is not None and found.digest is not None
        assert found.digest.rows == 10
        with pytest.raises(PySparkException, match="right to send to 'others'"):
            writer.option("address", "others").save()
