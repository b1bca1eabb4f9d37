"""Capture files read by programs that know nothing of them: Spark's own reader, DuckDB, Polars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ferrymq import Message, blocking
from tests.interop.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "pipeline" / "capture.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
COUNT = 90


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with all records of the stream `orders`, which a broker has captured."""
    folder = tmp_path_factory.mktemp("captured")
    config = f"""
        [store]
        path = "{folder}/data"
        [capture]
        directory = "{folder}/capture"
        max-records = 20
        [[stream]]
        name = "orders"
        partitions = 2
        capture = true
        """
    with (
        BrokerProcess(config) as broker,
        blocking.connect(broker.url) as connection,
    ):
        connection.sender("orders").send_many(
            [
                Message(
                    b"%d" % number,
                    durable=True,
                    subject=("eu.fr", "eu.de", "us")[number % 3],
                    application_properties={"number": number},
                )
                for number in range(COUNT)
            ]
        )
    # When it has stopped, the broker has captured the rest.
    return folder / "capture"


def run(mark: str, captured: Path) -> dict[str, Any]:
    """Run the block of the page that has this text; return its variables."""
    (code,) = [block for block in BLOCKS if mark in block]
    variables: dict[str, Any] = {}
    exec(compile(code.replace("/srv/capture", str(captured)), PAGE.name, "exec"), variables)
    return variables


def is_complete(rows: list[tuple[Any, ...]]) -> bool:
    """Whether there is each record once, given as number, subject and partition."""
    subjects = ("eu.fr", "eu.de", "us")
    return sorted(rows) == [(n, subjects[n % 3], n % 2) for n in range(COUNT)]


def test_spark(spark: SparkSession, captured: Path) -> None:
    frame = run("read.parquet", captured)["orders"]
    assert {"date", "hour"} < set(frame.columns)
    rows = frame.select("body", "subject", "partition", "applicationProperties").collect()
    assert is_complete([(int(bytes(row.body)), row.subject, row.partition) for row in rows])
    assert {int(row.applicationProperties["number"]) for row in rows} == set(range(COUNT))
    day = frame.selectExpr("cast(date as string) as date").first().date
    assert frame.where(f"date = '{day}'").count() > 0
    assert frame.where("date = '2001-01-01'").count() == 0


def test_duckdb(captured: Path) -> None:
    variables = run("import duckdb", captured)
    assert dict(variables["totals"]) == {"eu.fr": 30, "eu.de": 30, "us": 30}
    import duckdb

    rows = duckdb.sql(
        "select cast(decode(body) as int), subject, partition,"
        " cast(applicationProperties['number'] as int)"
        f" from read_parquet('{captured}/orders/**/*.parquet', hive_partitioning = true)"
    ).fetchall()
    assert is_complete([row[:3] for row in rows])
    assert all(row[0] == row[3] for row in rows)


def test_polars(captured: Path) -> None:
    variables = run("import polars as pl", captured)
    assert dict(variables["totals"].rows()) == {"eu.fr": 30, "eu.de": 30, "us": 30}
    import polars as pl

    frame = pl.scan_parquet(f"{captured}/orders/**/*.parquet", hive_partitioning=True).collect()
    bodies = [int(body) for body in frame["body"]]
    assert is_complete(list(zip(bodies, frame["subject"], frame["partition"], strict=True)))
    numbers = frame.select(pl.col("applicationProperties").map.get("number").cast(int))
    assert numbers["applicationProperties"].to_list() == bodies
