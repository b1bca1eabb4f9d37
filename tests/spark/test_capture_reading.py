"""`read_capture`: files and the live tail as one, and nothing missing or twice in silence."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq import Message
from ferrymq.arrow import schema_of
from ferrymq.capture import CaptureName, LocalPlace, claim, coverage, stream_folder
from ferrymq.capture.files import CaptureFile, capture_columns
from ferrymq.capture.place import names_in
from pyspark_ferrymq import AmqpDataLossError, AmqpOptionError
from pyspark_ferrymq.capture import capture_reader, read_capture
from pyspark_ferrymq.capture.capture_range import CaptureRange
from pyspark_ferrymq.capture.capture_reader import _within
from pyspark_ferrymq.capture.file_selection import Cut, cut_files
from pyspark_ferrymq.capture.live_part import ranges_of, settings_of
from pyspark_ferrymq.options import BrokerOptions
from pyspark_ferrymq.schema import default_schema
from pyspark_ferrymq.stream_metadata import PartitionRange, StreamRanges
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, publish

if TYPE_CHECKING:

    from pyspark.sql import DataFrame, SparkSession

HOUR = 492_000
SCHEMA = schema_of(capture_columns())


def instant(hour: int, minute: int = 0) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=HOUR + hour, minutes=minute)


CONFIG = "[[stream]]\npattern = '*'\ndurable = false\n"


def write(place: LocalPlace, first: int, count: int, hour: int = 0) -> CaptureName:
    """A file with a record every minute."""
    file = CaptureFile(place, SCHEMA, HOUR + hour, 0, first)
    rows = [
        {
            "body": b"%d" % offset,
            "partition": 0,
            "offset": offset,
            "enqueuedTime": instant(hour, offset - first),
        }
        for offset in range(first, first + count)
    ]
    file.add(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    return file.finish()


def bodies(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.body)) for row in frame.select("body").collect())


def claimed(path: Path, broker: BrokerProcess, address: str) -> LocalPlace:
    """The folder of a stream that the broker has."""
    place = LocalPlace(path / stream_folder(address))
    claim(place, address, ranges_of(settings_of(broker.url, {}), address).incarnation)
    return place


def test_files_and_tail(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 50)
    place = claimed(tmp_path, broker, address)
    write(place, 0, 10)
    write(place, 10, 20, hour=1)

    def read(*bounds: dict[int, int]) -> list[int]:
        return bodies(read_capture(spark, str(tmp_path), address, *bounds, url=broker.url))

    assert read() == list(range(50))
    # Within files, across the boundary, behind it.
    assert read({0: 5}, {0: 25}) == list(range(5, 25))
    assert read({0: 25}, {0: 40}) == list(range(25, 40))
    assert read({0: 35}) == list(range(35, 50))
    # Of files alone.
    frame = read_capture(spark, str(tmp_path), address, {0: 8}, {0: 12})
    assert bodies(frame) == [8, 9, 10, 11]
    assert frame.columns == list(capture_columns())
    assert len(frame.inputFiles()) == 2
    with pytest.raises(AmqpDataLossError, match="partition 0: the offsets from 50 to before 60"):
        read({0: 45}, {0: 60})
    with pytest.raises(AmqpDataLossError, match="from 30 to before 40 are missing"):
        read_capture(spark, str(tmp_path), address, {0: 8}, {0: 40})


def test_what_the_broker_has_captured(spark: SparkSession, tmp_path: Path) -> None:
    """The records that came after the last file was closed are read from the stream."""
    config = f"""
        [store]
        path = "{tmp_path}/data"
        [capture]
        directory = "{tmp_path}/capture"
        max-records = 20
        max-age = "1h"
        [[stream]]
        name = "a/b"
        capture = true
        """
    with BrokerProcess(config) as broker:
        publish(broker, "a/b", 0, 50)
        place = LocalPlace(tmp_path / "capture" / stream_folder("a/b"))
        deadline = time.monotonic() + 30
        while len(names_in(place)) < 2:
            assert time.monotonic() < deadline, broker.log
            time.sleep(0.05)
        frame = read_capture(spark, str(tmp_path / "capture"), "a/b", url=broker.url)
        assert bodies(frame) == list(range(50))
        assert frame.schema == default_schema(include_metadata=True, include_raw=True)
        rows = frame.select("address", "partition", "offset", "raw").collect()
        assert {(row.address, row.partition) for row in rows} == {("a/b", 0)}
        assert sorted(row.offset for row in rows) == list(range(50))
        assert all(Message.decode(bytes(row.raw)).body == b"%d" % row.offset for row in rows)
        files = read_capture(spark, str(tmp_path / "capture"), "a/b")
        assert bodies(files) == list(range(40))


def test_times(spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path) -> None:
    place = LocalPlace(tmp_path / address)
    for hour in range(4):
        write(place, 10 * hour, 10, hour)
    frame = read_capture(spark, str(tmp_path), address, instant(1, 5), instant(2, 5))
    assert bodies(frame) == list(range(15, 25))
    assert len(frame.inputFiles()) == 2
    publish(broker, address, 0, 45)
    with pytest.raises(AmqpDataLossError, match=r"no _stream.json, which names the stream"):
        read_capture(spark, str(tmp_path), address, url=broker.url)
    incarnation = ranges_of(settings_of(broker.url, {}), address).incarnation
    (tmp_path / address / "_stream.json").write_text(
        json.dumps({"version": 1, "stream": address, "incarnation": incarnation})
    )
    frame = read_capture(spark, str(tmp_path), address, instant(3, 8), url=broker.url)
    assert bodies(frame) == [38, 39, 40, 41, 42, 43, 44]


def test_streams_of_which_nothing_is_captured_and_of_which_all_is(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 5)
    assert bodies(read_capture(spark, str(tmp_path), address, url=broker.url)) == list(range(5))
    with pytest.raises(AmqpOptionError, match="there are no capture files of the stream"):
        read_capture(spark, str(tmp_path), address)
    write(claimed(tmp_path, broker, address), 0, 5)
    assert bodies(read_capture(spark, str(tmp_path), address, url=broker.url)) == list(range(5))
    assert bodies(read_capture(spark, str(tmp_path), address, {0: 5}, url=broker.url)) == []


def test_a_stream_made_anew(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 5)
    place = LocalPlace(tmp_path / address)
    claim(place, address, "one")
    write(place, 0, 5)
    with pytest.raises(AmqpDataLossError, match=r"another incarnation.*move the folder away"):
        read_capture(spark, str(tmp_path), address, url=broker.url)


def test_gaps_and_overlaps(spark: SparkSession, tmp_path: Path) -> None:
    place = LocalPlace(tmp_path / "orders")
    write(place, 0, 10)
    write(place, 15, 10)
    with pytest.raises(AmqpDataLossError, match="'orders', partition 0: the offsets from 10 to"):
        read_capture(spark, str(tmp_path), "orders")
    frame = read_capture(spark, str(tmp_path), "orders", fail_on_data_loss=False)
    assert bodies(frame) == [*range(10), *range(15, 25)]
    # The same again, and within: one of them is enough.
    write(place, 10, 5)
    write(place, 2, 3)
    assert bodies(read_capture(spark, str(tmp_path), "orders")) == list(range(25))
    write(place, 20, 10)
    with pytest.raises(AmqpDataLossError, match=r"from 20 to before 25 are in date=.*p0-20-29"):
        read_capture(spark, str(tmp_path), "orders")
    # Where nobody asks for them, they do not matter.
    assert bodies(read_capture(spark, str(tmp_path), "orders", {0: 0}, {0: 9})) == list(range(9))


def test_arguments(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AmqpOptionError, match="no time zone"):
        read_capture(spark, str(tmp_path), "orders", datetime(2026, 1, 1))
    with pytest.raises(AmqpOptionError, match="partition 0 ends at 3, before it begins, at 4"):
        read_capture(spark, str(tmp_path), "orders", {0: 4}, {0: 3})
    with pytest.raises(AmqpOptionError, match="needs a url"):
        read_capture(spark, str(tmp_path), "orders", username="alice")
    with pytest.raises(AmqpOptionError, match="has no option 'subscribe'"):
        read_capture(spark, str(tmp_path), "orders", url="amqp://127.0.0.1", subscribe="x")


def test_many_partitions(spark: SparkSession) -> None:
    """As many conditions as there are partitions are not too deep for Spark."""
    cuts = [Cut(n, 1, 3, 3, [CaptureName(HOUR, n, 0, 3)]) for n in range(1024)]
    rows = spark.range(4096).selectExpr("cast(id / 4 as int) partition", "id % 4 offset")
    assert _within(rows, cuts, CaptureRange()).count() == 2048


def test_what_is_captured_meanwhile(
    spark: SparkSession,
    broker: BrokerProcess,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that is closed while the broker is asked, whose records it then drops."""
    publish(broker, address, 0, 30)
    place = claimed(tmp_path, broker, address)
    write(place, 0, 10)

    def asked(settings: BrokerOptions, stream: str) -> StreamRanges:
        write(place, 10, 10)
        with Streams(broker) as streams:
            streams.trim(address)
        publish(broker, address, 30, 5)
        write(place, 20, 10)
        return ranges_of(settings, stream)

    monkeypatch.setattr(capture_reader, "ranges_of", asked)
    frame = read_capture(spark, str(tmp_path), address, url=broker.url)
    assert bodies(frame) == list(range(35))


# -- stitching, without Spark --------------------------------------------------------------------


@pytest.mark.parametrize(("after", "before"), [(1, 3), (2, 4), (3, 4), (3, 6)])
def test_times_that_may_be_missing(after: int, before: int) -> None:
    """What was published between two files is of some hour between theirs."""
    covered = coverage([CaptureName(HOUR + 1, 0, 0, 9), CaptureName(HOUR + 5, 0, 50, 59)])
    with pytest.raises(AmqpDataLossError, match="from 10 to before 50 are missing"):
        cut_files("orders", covered, CaptureRange.of(instant(after), instant(before)), None, True)


@pytest.mark.parametrize(("after", "before"), [(-3, 0), (6, 8)])
def test_times_before_and_behind_all_files(after: int, before: int) -> None:
    covered = coverage([CaptureName(HOUR + 1, 0, 0, 9), CaptureName(HOUR + 5, 0, 50, 59)])
    (cut,) = cut_files(
        "orders", covered, CaptureRange.of(instant(after), instant(before)), None, True
    )
    assert cut.files == []


def test_offsets_where_no_file_is() -> None:
    covered = coverage([CaptureName(HOUR, 0, 10, 19), CaptureName(HOUR, 0, 30, 39)])
    for first, next in ((0, 5), (22, 27)):
        with pytest.raises(AmqpDataLossError, match=f"from {first} to before {next} are missing"):
            cut_files("orders", covered, CaptureRange.of({0: first}, {0: next}), None, True)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=6),
    st.none() | st.tuples(st.integers(0, 50), st.integers(0, 20)),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 60),
)
def test_what_is_read_is_what_was_asked_for(
    files: list[tuple[int, int]],
    live: tuple[int, int] | None,
    first: int | None,
    next: int | None,
) -> None:
    """Either every offset in the range comes from just one place, or it is said that it does
    not."""
    if first is not None and next is not None and next < first:
        return
    names = [CaptureName(HOUR, 0, at, at + count - 1) for at, count in files]
    ranges = None
    if live is not None:
        there = PartitionRange(0, live[0], live[0] + live[1])
        ranges = StreamRanges("orders", "one", {0: there})
    bounds = CaptureRange.of(
        None if first is None else {0: first}, None if next is None else {0: next}
    )
    filed = {offset for name in names for offset in range(name.first, name.next)}
    held = set() if live is None else set(range(live[0], live[0] + live[1]))
    try:
        cuts = cut_files("orders", coverage(names), bounds, ranges, True)
    except AmqpDataLossError:
        # What it has not, or has twice, was asked for.
        begin = 0 if first is None else first
        end = max([*filed, *held, 0]) + 1 if next is None else next
        missing = set(range(begin, end)) - filed - held
        boundary = max(filed, default=-1) + 1
        unreachable = set(range(begin, end)) - filed - {o for o in held if o >= boundary}
        assert missing or unreachable or coverage(names)[0].partial
        return
    for cut in cuts:
        read = [
            offset
            for name in cut.files
            for offset in range(name.first, name.next)
            if cut.first <= offset < cut.boundary
        ]
        read += range(cut.boundary, cut.next)
        begin = cut.first if first is None else first
        end = cut.next if next is None else next
        assert sorted(read) == list(range(begin, end))
        assert set(range(cut.boundary, cut.next)) <= held
