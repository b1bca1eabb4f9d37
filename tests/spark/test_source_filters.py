"""Queries over one frame give the rows that they give over a local copy of it.

Spark plans a frame anew for each filter that it hands to a source in Python, and takes the last
plan for every scan of the frame. A reader that leaves out rows by a filter is therefore wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSourceReader

from ferrymq import Message
from pyspark_ferrymq.options import SourceOptions
from pyspark_ferrymq.reading import make_batch_reader
from pyspark_ferrymq.schema import default_schema
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, drain, follow, numbers, read

PARTITIONS = 3
RECORDS = 45
QUERIES = 6
KINDS = ("union", "subtract", "intersect", "join", "within", "scalar", "cache")
SUBJECTS = [None, "", "a", "A", "ab", "b", "it's", "ä", "zz"]
COLUMNS = ("partition", "offset", "subject")
SETTING = "spark.sql.python.filterPushdown.enabled"


@dataclass
class Query:
    """One random query as steps that any frame with the columns `COLUMNS` can take."""

    seed: int

    def of(self, frame: DataFrame, view: str) -> DataFrame:
        """The query over a frame, which is the view too."""
        return self._frame(random.Random(self.seed), frame, view, depth=1 + self.seed % 2)

    def _frame(self, chance: random.Random, frame: DataFrame, view: str, depth: int) -> DataFrame:
        if depth == 0:
            return frame.where(_condition(chance)) if chance.random() < 0.8 else frame
        kind = chance.choice(KINDS)
        if kind == "within":
            text = f"select * from {view} where {_condition(chance)} and `offset` in"
            inner = f"(select `offset` from {view} where {_condition(chance)})"
            return frame.sparkSession.sql(f"{text} {inner}").select(*COLUMNS)
        if kind == "scalar":
            inner = f"(select max(`offset`) from {view} where {_condition(chance)})"
            text = f"select * from {view} where `offset` >= {inner} - 4 and {_condition(chance)}"
            return frame.sparkSession.sql(text).select(*COLUMNS)
        left = self._frame(chance, frame, view, depth - 1)
        if kind == "cache":
            return left.cache().where(_condition(chance))
        right = self._frame(chance, frame, view, depth - 1)
        if kind == "union":
            return left.union(right)
        if kind == "subtract":
            return left.subtract(right)
        if kind == "intersect":
            return left.intersectAll(right)
        how = chance.choice(("inner", "leftsemi", "leftanti", "left"))
        joined = left.alias("l").join(
            right.alias("r"),
            (F.col("l.offset") == F.col("r.offset"))
            & (F.col("l.partition") != F.col("r.partition")),
            how,
        )
        other = "l" if how in ("leftsemi", "leftanti") else "r"
        return joined.select("l.partition", "l.offset", f"{other}.subject")


def _condition(chance: random.Random) -> str:
    last = RECORDS // PARTITIONS
    number = chance.randrange(last + 1)
    return chance.choice(
        (
            f"`offset` < {last - number // 2}",
            f"`offset` >= {number // 2}",
            f"`offset` = {number}",
            f"`offset` in ({number}, 3)",
            f"partition = {chance.randrange(PARTITIONS)}",
            f"partition <> {chance.randrange(PARTITIONS)}",
            f"subject = '{chance.choice(('a', 'A', 'zz'))}'",
            "subject like 'a%'",
            "subject is null",
            "subject is not null",
        )
    )


@pytest.fixture(scope="module")
def streams(broker: BrokerProcess) -> Iterator[Streams]:
    with Streams(broker) as kit:
        yield kit


@pytest.fixture(scope="module")
def filled(streams: Streams) -> str:
    """A stream with `RECORDS` records in `PARTITIONS` partitions."""
    streams.create("filtered", PARTITIONS)
    streams.publish(
        "filtered",
        [
            Message(b"%d" % number, subject=SUBJECTS[number // PARTITIONS % len(SUBJECTS)])
            for number in range(RECORDS)
        ],
    )
    return "filtered"


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[None]:
    """The session has its settings back, and caches nothing, when the test is over."""
    yield
    spark.conf.unset(SETTING)
    spark.catalog.clearCache()


def _rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


@pytest.mark.usefixtures("setting")
def test_random_queries_over_one_frame(
    spark: SparkSession, broker: BrokerProcess, filled: str
) -> None:
    frame = read(spark, broker, subscribe=filled).select(*COLUMNS)
    copy = spark.createDataFrame(frame.collect(), frame.schema)
    frame.createOrReplaceTempView("streamed")
    copy.createOrReplaceTempView("copied")
    found = 0
    for seed in range(QUERIES):
        query = Query(seed)
        expected = _rows(query.of(copy, "copied"))
        for handed_over in ("true", "false"):
            spark.conf.set(SETTING, handed_over)
            rows = _rows(query.of(frame, "streamed"))
            assert rows == expected, f"seed {seed}, filters handed over: {handed_over}"
        found += bool(expected)
    assert found >= QUERIES // 2, "half of the queries find something"


@pytest.mark.usefixtures("setting")
@pytest.mark.parametrize("handed_over", ["true", "false"])
def test_a_filter_of_one_side_is_none_of_the_other(
    spark: SparkSession, broker: BrokerProcess, filled: str, handed_over: str
) -> None:
    spark.conf.set(SETTING, handed_over)
    frame = read(spark, broker, subscribe=filled).select(*COLUMNS)
    low, high = frame.where("offset < 3"), frame.where("offset > 10")
    assert low.union(high).count() == 3 * PARTITIONS + 4 * PARTITIONS
    assert low.union(frame).count() == 3 * PARTITIONS + RECORDS
    assert frame.subtract(low).count() == RECORDS - 3 * PARTITIONS
    # A later query of the same frame.
    assert frame.count() == RECORDS


@pytest.mark.parametrize("more", [{}, {"queueMode": "browse"}, {"service": "eventhubs"}])
def test_no_reader_takes_filters(more: dict[str, str]) -> None:
    options = SourceOptions.parse({"url": "amqp://localhost", "subscribe": "orders", **more})
    reader = make_batch_reader(options, default_schema())
    assert type(reader).pushFilters is DataSourceReader.pushFilters


def test_a_selector(spark: SparkSession, broker: BrokerProcess, filled: str) -> None:
    frame = read(spark, broker, subscribe=filled, selector="p.subject = 'a' OR p.subject = 'it''s'")
    every = read(spark, broker, subscribe=filled)
    expected = every.where("subject in ('a', 'it\\'s')")
    assert numbers(frame) == numbers(expected) != []
    with pytest.raises(Exception, match=r"'selector': 'p.subject =' is refused by .*amqp:inv"):
        read(spark, broker, subscribe=filled, selector="p.subject =").collect()


def test_a_query_with_a_selector(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, tmp_path: Path
) -> None:
    streams.create("selected", 2)
    streams.publish("selected", [Message(b"%d" % n, subject="ab"[n // 2 % 2]) for n in range(40)])
    frame = follow(
        spark,
        broker,
        subscribe="selected",
        selector="p.subject = 'b'",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=7,
    )
    query = drain(frame, tmp_path / "checkpoint", tmp_path / "output")
    assert numbers(spark.read.parquet(str(tmp_path / "output"))) == [
        number for number in range(40) if number // 2 % 2
    ]
    # Limits count records, selected or not.
    assert sum(report["numInputRows"] for report in query.recentProgress) == 20
    assert query.lastProgress is not None
    assert query.lastProgress["batchId"] >= 40 // 7
