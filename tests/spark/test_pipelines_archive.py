"""Archive and replay: every record once, in its order, byte for byte."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq import blocking
from pyspark_ferrymq.cli.error_messages import reason_of
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.pipelines.archive import ArchiveOptions
from pyspark_ferrymq.pipelines.archive import run as archive
from pyspark_ferrymq.pipelines.archive_report import write_report
from pyspark_ferrymq.pipelines.replay import ReplayOptions
from pyspark_ferrymq.pipelines.replay import run as replay
from pyspark_ferrymq.pipelines.replay_plan import Plan
from pyspark_ferrymq.pipelines.replay_report import write_report as replay_report
from pyspark_ferrymq.pipelines.sections import Sections
from pyspark_ferrymq.pipelines.stream_input import Choice
from pyspark_ferrymq.traffic import Traffic
from pyspark_ferrymq.traffic.run import run_producer
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def produce(broker: BrokerProcess, prefix: str, seed: int, count: int) -> dict[str, int]:
    traffic = Traffic(seed=seed, count=count, prefix=prefix, queues=False)
    ledger = asyncio.run(run_producer({"url": broker.url}, traffic))
    return {name: counted.messages for name, counted in ledger.addresses.items()}


def payloads(broker: BrokerProcess, stream: str, partition: int) -> list[bytes]:
    """The records of a partition, as they are told to a consumer."""
    found: list[bytes] = []
    with blocking.connect(broker.url) as connection:
        receiver = connection.receiver(f"{stream}::{partition}", start="first", credit=0)
        receiver.add_credit(100_000)
        receiver.drain(timeout=30)
        while True:
            try:
                found += [one.payload for one in receiver.receive_many(1000, timeout=0)]
            except TimeoutError:
                return found


def bare(payload: bytes) -> bytes:
    return Sections.split(payload).bare


def options_of(broker: BrokerProcess, address: str, tmp_path: Path) -> ArchiveOptions:
    return ArchiveOptions(
        connection={"url": broker.url},
        source=Choice(streams=(f"{address}.orders", f"{address}.payments"), limit=400),
        path=str(tmp_path / "archive"),
        checkpoint=str(tmp_path / "checkpoint"),
        once=True,
    )


def test_everything_is_archived_once_and_held_until_then(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    options = options_of(broker, address, tmp_path)
    counts = produce(broker, address, 1, 1400)
    both = counts[f"{address}.orders"] + counts[f"{address}.payments"]
    done = archive(spark, options)
    assert done.course.rows == both
    assert sum(one.next - one.first for one in done.partitions) == both
    assert {one.missing for one in done.partitions} == {0}
    assert len(done.course.steps) > 1
    more = produce(broker, address, 2, 300)
    again = archive(spark, options)
    assert again.course.rows == more[f"{address}.orders"] + more[f"{address}.payments"]
    for stream in options.source.streams:
        frame = spark.read.parquet(f"{options.path}/{stream}").select("partition", "offset")
        assert frame.count() == frame.distinct().count() == counts[stream] + more[stream]
    with Streams(broker) as streams:
        for stream in options.source.streams:
            ends = [end for _, end in streams.ranges(stream)]
            found = {one.partition: one.next for one in again.partitions if one.stream == stream}
            assert found == dict(enumerate(ends))
            (held,) = streams.ask("READ", "stream", stream)["holds"]
            assert (held["holder"], held["offsets"]) == ("archive", ends)
    page = tmp_path / "report.html"
    write_report(page, done, options)
    assert "Records in the archive" in page.read_text("utf-8")


def test_a_replay_that_is_killed_goes_on_and_sends_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    stream = f"{address}.orders"
    produce(broker, address, 4, 1600)
    kept = options_of(broker, address, tmp_path)
    archive(spark, replace(kept, source=Choice(streams=(stream,))))
    # What comes behind the archive is read from the broker.
    produce(broker, address, 5, 400)
    options = ReplayOptions(
        connection={"url": broker.url},
        stream=stream,
        target=f"{address}.again",
        checkpoint=str(tmp_path / "replay"),
        archive=kept.path,
        start={0: 5},
        step=200,
    )

    class Killed(Exception):
        pass

    def die(sent: int, all: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        replay(spark, options, die)
    # The stream goes on; the range is what it was.
    produce(broker, address, 6, 200)
    done = replay(spark, options)
    assert 0 < done.before < done.plan.count == done.sent + done.before
    assert replay(spark, options).sent == 0
    page = tmp_path / "report.html"
    replay_report(page, done, 1.0)
    assert f"<b>{done.before:,}</b><span>sent by runs before</span>" in page.read_text("utf-8")
    for partition, (first, next) in done.plan.partitions.items():
        before = payloads(broker, stream, partition)[first:next]
        after = payloads(broker, options.target, partition)
        assert [bare(one) for one in after] == [bare(one) for one in before]
        told = [Sections.split(one).annotations for one in after]
        assert [one["x-opt-replayed-offset"] for one in told] == list(range(first, next))
        assert {one["x-opt-replayed-partition"] for one in told} == {partition}
        assert {one["x-opt-replayed-from"] for one in told} == {stream}
        times = [Sections.split(one).annotations["x-opt-enqueued-time"] for one in before]
        assert [one["x-opt-replayed-time"] for one in told] == times
    assert done.plan.partitions[0][0] == 5

    with pytest.raises(AmqpOptionError, match="take another directory"):
        replay(spark, replace(options, annotate=False))
    with pytest.raises(AmqpOptionError, match="replay to an empty one"):
        replay(spark, replace(options, checkpoint=str(tmp_path / "other")))


def test_live_alone_byte_for_byte(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    stream, target = f"{address}.payments", f"{address}.copy"
    count = produce(broker, address, 7, 600)[stream]
    options = ReplayOptions(
        connection={"url": broker.url},
        stream=stream,
        target=target,
        checkpoint=str(tmp_path / "replay"),
        annotate=False,
    )
    done = replay(spark, options)
    assert done.sent == count

    def raws(name: str) -> list[tuple[int, int, bytes]]:
        reader = spark.read.format("amqp").schema("partition int, offset bigint, raw binary")
        frame = reader.options(url=broker.url, subscribe=name).load()
        return sorted((row[0], row[1], bytes(row[2])) for row in frame.collect())

    assert raws(stream) == raws(target)

    with pytest.raises(Exception, match="no-such") as caught:
        replay(spark, replace(options, stream="no-such", checkpoint=str(tmp_path / "none")))
    assert "\n" not in reason_of(caught.value)


@given(
    st.dictionaries(
        st.integers(0, 8), st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), max_size=5
    ),
    st.integers(1, 60),
)
def test_steps_have_every_offset_once(partitions: dict[int, list[int]], step: int) -> None:
    ranges = {number: (first, next) for number, (first, next) in partitions.items()}
    plan = Plan.make(("a", "b", True), ranges, step)
    found: dict[int, list[int]] = {number: [] for number in ranges}
    for part in plan.steps():
        assert part.keys() == ranges.keys()
        assert sum(next - first for first, next in part.values()) <= max(step, len(ranges))
        for number, (first, next) in part.items():
            found[number] += range(first, next)
    assert found == {number: list(range(*pair)) for number, pair in ranges.items()}


def test_a_plan_is_kept_as_it_is(tmp_path: Path) -> None:
    what = ("a", "b", True)
    plan = Plan.make(what, {0: (1, 5), 3: (7, 7)}, 40)
    place = str(tmp_path / "some" / "where")
    assert Plan.load(place, what) is None
    plan.save(place)
    assert Plan.load(place, what) == plan
    Path(place, "plan.json").write_text("[]")
    with pytest.raises(AmqpOptionError, match="is not a plan"):
        Plan.load(place, what)
