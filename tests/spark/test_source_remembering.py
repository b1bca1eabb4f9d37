"""What the driver of a query decides on Spark 4.0 and 4.1, which do not say where a batch begins.

The calls are those that Spark makes, in its order: a new query is first asked for the latest
offset, then for the initial one. One that goes on is first asked for the partitions of an empty
range.
"""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_ferrymq import AmqpDataLossError, AmqpOptionError
from pyspark_ferrymq.options import SourceOptions
from pyspark_ferrymq.reading import stream_reader
from pyspark_ferrymq.reading.remembering_reader import RememberingStreamReader
from tests.spark.test_source_deciding import There, ranges, reader_of


def old_reader_of(
    there: There, monkeypatch: pytest.MonkeyPatch, **options: str
) -> RememberingStreamReader:
    """A process of the driver that has just begun, on an old Spark."""
    monkeypatch.setattr(stream_reader, "open_service", lambda settings: there)
    parsed = SourceOptions.parse({"url": "amqp://127.0.0.1", "subscribe": "a", **options})
    return RememberingStreamReader(parsed, ["body"])


def first_batch(reader: RememberingStreamReader) -> tuple[dict[str, Any], list[str]]:
    end = reader.latestOffset()
    return end, ranges(reader, reader.initialOffset(), end)


def test_the_first_batch_has_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10, 3])
    reader = old_reader_of(there, monkeypatch, startingOffsets="earliest")
    end, read = first_batch(reader)
    assert read == ["a::0 from 0 to before 10", "a::1 from 0 to before 3"]
    # With nothing new the text is the same, so that there is no batch.
    assert reader.latestOffset() == end
    there.make("a", [12, 3])
    later = reader.latestOffset()
    assert ranges(reader, end, later) == ["a::0 from 10 to before 12"]
    assert list(later) == ["v", "streams"] and reader.latestOffset() == later


def test_the_latest_is_where_the_query_began(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    reader = old_reader_of(there, monkeypatch)
    end = reader.latestOffset()
    # What comes before Spark asks for the initial offset is behind the start.
    there.make("a", [15])
    assert ranges(reader, reader.initialOffset(), end) == []
    assert ranges(reader, end, reader.latestOffset()) == ["a::0 from 10 to before 15"]


@pytest.mark.parametrize("place", ["earliest", "latest"])
def test_the_first_batch_is_repeated_as_it_was(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """The start of the query is in the end of the batch, whatever `place` means now."""
    there = There(a=[10])
    end, read = first_batch(old_reader_of(there, monkeypatch, startingOffsets=place))
    there.make("a", [25])
    there.first = 5
    again = old_reader_of(there, monkeypatch, startingOffsets=place)
    assert again.partitions(end, end) == []
    assert ranges(again, again.initialOffset(), end) == read
    assert ranges(again, end, again.latestOffset()) == ["a::0 from 10 to before 25"]


def test_a_newer_spark_repeats_the_first_batch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    end, read = first_batch(old_reader_of(there, monkeypatch, startingOffsets="earliest"))
    there.make("a", [25])
    newer = reader_of(there, monkeypatch, subscribe="a", startingOffsets="latest")
    assert ranges(newer, newer.initialOffset(), end) == read


def test_a_newer_spark_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    end, _ = first_batch(old_reader_of(there, monkeypatch, startingOffsets="earliest"))
    there.make("a", [25])
    newer = reader_of(there, monkeypatch, subscribe="a")
    later = newer.latestOffset(end, newer.getDefaultReadLimit())
    assert ranges(newer, end, later) == ["a::0 from 10 to before 25"]


def test_it_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    end, _ = first_batch(old_reader_of(there, monkeypatch, startingOffsets="earliest"))
    again = old_reader_of(there, monkeypatch, startingOffsets="earliest")
    assert again.partitions(end, end) == []
    assert again.latestOffset() == end
    there.make("a", [11])
    assert ranges(again, end, again.latestOffset()) == ["a::0 from 10 to before 11"]


def test_an_unfinished_batch_is_repeated_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    reader = old_reader_of(there, monkeypatch, startingOffsets="earliest")
    first, _ = first_batch(reader)
    there.make("a", [20])
    second = reader.latestOffset()
    there.make("a", [30])
    again = old_reader_of(there, monkeypatch, startingOffsets="earliest")
    assert again.partitions(second, second) == []
    assert ranges(again, first, second) == ["a::0 from 10 to before 20"]
    assert ranges(again, second, again.latestOffset()) == ["a::0 from 20 to before 30"]


def test_what_is_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    end, _ = first_batch(old_reader_of(there, monkeypatch, startingOffsets="earliest"))
    there.make("a", [30])
    there.first = 20
    again = old_reader_of(there, monkeypatch)
    again.partitions(end, end)
    with pytest.raises(AmqpDataLossError, match="from 10 on, available from 20"):
        again.latestOffset()


def test_a_hold_begins_with_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    reader = old_reader_of(there, monkeypatch, startingOffsets="earliest", hold="mine")
    end, _ = first_batch(reader)
    assert there.holds == {"a": {0: 0}}
    reader.commit(end)
    assert there.holds == {"a": {0: 10}}


def test_the_first_batch_does_not_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[1])
    reader = old_reader_of(there, monkeypatch, startingOffsets="earliest", minOffsetsPerTrigger="5")
    end, read = first_batch(reader)
    assert read == ["a::0 from 0 to before 1"]
    there.make("a", [4])
    assert reader.latestOffset() == end
    there.make("a", [6])
    assert ranges(reader, end, reader.latestOffset()) == ["a::0 from 1 to before 6"]


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_limits_are_for_a_known_trigger(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    with pytest.raises(AmqpOptionError, match=f"'{option}' needs Spark 4.2 or newer, or"):
        old_reader_of(There(a=[1]), monkeypatch, **{option: "10"})


def test_a_limit_holds_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"maxOffsetsPerTrigger": "10", "trigger": "processingTime"}
    there = There(a=[25])
    reader = old_reader_of(there, monkeypatch, startingOffsets="earliest", **options)
    end, found = first_batch(reader)
    for _ in range(2):
        last, end = end, reader.latestOffset()
        found += ranges(reader, last, end)
    assert found == [
        "a::0 from 0 to before 10",
        "a::0 from 10 to before 20",
        "a::0 from 20 to before 25",
    ]
    assert reader.latestOffset() == end
