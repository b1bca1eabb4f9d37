"""What the driver of a query decides while streams come, go and are made anew around it."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

import pytest

from pyspark_ferrymq.errors import AmqpDataLossError, AmqpSourceError
from pyspark_ferrymq.options import Selection, SourceOptions
from pyspark_ferrymq.read_columns import ReadColumns
from pyspark_ferrymq.reading import stream_reader as reading
from pyspark_ferrymq.reading.stream_reader import OffsetStreamReader
from pyspark_ferrymq.spark_api import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark_ferrymq.stream_metadata import PartitionRange, StreamRanges
from pyspark_ferrymq.task_planning import RangePartition


class There:
    """A service whose streams a test makes: by name, incarnation and the ends of partitions."""

    def __init__(self, **streams: list[int]) -> None:
        self.streams: dict[str, tuple[str, list[int]]] = {}
        self.first = 0
        self.holds: dict[str, dict[int, int]] = {}
        # Streams that may not be held.
        self.forbidden: set[str] = set()
        for name, ends in streams.items():
            self.make(name, ends)

    def make(self, name: str, ends: list[int], incarnation: str = "1") -> None:
        self.streams[name] = (incarnation, ends)

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        return {
            name: StreamRanges(
                name,
                incarnation,
                {
                    number: PartitionRange(number, self.first, end)
                    for number, end in enumerate(ends)
                    if selection.reads(name, number)
                },
            )
            for name, (incarnation, ends) in self.streams.items()
            if selection.matches(name)
        }

    def broker_ids(self) -> dict[str, str]:
        return {}

    def explain(self, name: str) -> str:
        return f"there is no stream {name!r}"

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        raise AssertionError("nobody asks")

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        raise AssertionError("nobody asks")

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        if name in self.forbidden:
            raise AmqpSourceError(f"{name} is not ours to hold")
        self.holds[name] = dict(offsets)

    def close(self) -> None:
        pass


def reader_of(there: There, monkeypatch: pytest.MonkeyPatch, **options: str) -> OffsetStreamReader:
    """A process of the driver that has just begun."""
    monkeypatch.setattr(reading, "open_service", lambda settings: there)
    parsed = SourceOptions.parse({"url": "amqp://127.0.0.1", **options})
    return OffsetStreamReader(parsed, ReadColumns(("body",)))


def follow(reader: OffsetStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def ranges(reader: OffsetStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    planned = reader.partitions(start, end)
    return [str(each.range) for each in planned if isinstance(each, RangePartition)]


def test_errors_come_without_a_traceback_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(There(), monkeypatch, subscribe="a")
    with pytest.raises(AmqpSourceError, match="there is no stream 'a'") as caught:
        reader.initialOffset()
    names = [frame.name for frame in traceback.extract_tb(caught.tb)]
    # The test, and what raises the error again.
    assert len(names) == 2 and caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_what_comes_before_it_begins_is_not_behind_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query that ends with what there is decides that first, and its beginning after that."""
    there = There(a=[10])
    reader = reader_of(there, monkeypatch, subscribePattern=".*")
    reader.prepareForTriggerAvailableNow()
    there.make("a", [15, 3])
    there.make("b", [7])
    start = reader.initialOffset()
    end = follow(reader, start)
    assert follow(reader, end) == end
    assert end["streams"] == {"a": {"id": "1", "p": {"0": 10}}}
    # The next run has it all.
    later = reader_of(there, monkeypatch, subscribePattern=".*")
    later.prepareForTriggerAvailableNow()
    found = ranges(later, end, follow(later, end))
    assert found == [
        "a::0 from 10 to before 15",
        "a::1 from 0 to before 3",
        "b::0 from 0 to before 7",
    ]


def test_all_of_a_stream_that_comes_while_the_only_batch_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = There(a=[10])
    reader = reader_of(there, monkeypatch, subscribePattern=".*", startingOffsets="earliest")
    start = reader.initialOffset()
    there.make("b", [7])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert ranges(reader, start, end) == ["a::0 from 0 to before 10", "b::0 from 0 to before 7"]


def test_the_empty_first_batch_of_an_older_release_stays_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In older releases, the end of the first batch was the start of the query, without `begin`."""
    there = There(a=[10], b=[5])
    first = reader_of(there, monkeypatch, subscribePattern=".*")
    end = {"v": 1, "streams": first.initialOffset()["streams"]}
    there.make("a", [20])
    there.make("b", [9], "2")
    again = reader_of(there, monkeypatch, subscribePattern=".*", failOnDataLoss="false")
    assert ranges(again, again.initialOffset(), end) == []


@pytest.mark.parametrize("limit", [ReadMaxRows(4), ReadAllAvailable()])
def test_the_first_batch_is_repeated_as_it_was(
    monkeypatch: pytest.MonkeyPatch, limit: ReadLimit
) -> None:
    there = There(a=[10])
    first = reader_of(there, monkeypatch, subscribe="a", startingOffsets="earliest")
    start = first.initialOffset()
    end = first.latestOffset(start, limit)
    read = ranges(first, start, end)
    assert len(read) == 1
    there.make("a", [20])
    # The start of the query is decided: `latest` does not count for this batch.
    again = reader_of(there, monkeypatch, subscribe="a", startingOffsets="latest")
    assert ranges(again, again.initialOffset(), end) == read
    there.make("a", [20], "2")
    anew = reader_of(there, monkeypatch, subscribe="a")
    with pytest.raises(AmqpDataLossError):
        anew.partitions(anew.initialOffset(), end)


def test_a_hold_is_where_the_query_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where it would begin if the first batch were not written down yet."""
    there = There(a=[10])
    options = {"subscribe": "a", "hold": "q"}
    first = reader_of(there, monkeypatch, **options)
    end = follow(first, first.initialOffset())
    assert there.holds == {"a": {0: 10}}
    there.make("a", [25])
    again = reader_of(there, monkeypatch, **options)
    assert ranges(again, again.initialOffset(), end) == []
    assert there.holds == {"a": {0: 10}}
    assert ranges(again, end, follow(again, end)) == ["a::0 from 10 to before 25"]


def test_a_hold_is_of_one_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    reader = reader_of(there, monkeypatch, subscribe="a", hold="q", failOnDataLoss="false")
    end = follow(reader, reader.initialOffset())
    there.make("a", [30], "2")
    there.holds.clear()
    follow(reader, end)
    reader.commit(end)
    assert there.holds == {}


@pytest.mark.parametrize(("asked", "held"), [(3, 5), (7, 7), (90, 10)])
def test_what_is_gone_is_not_held(monkeypatch: pytest.MonkeyPatch, asked: int, held: int) -> None:
    there = There(a=[10])
    there.first = 5
    reader = reader_of(
        there,
        monkeypatch,
        subscribe="a",
        startingOffsets=json.dumps({"a": {"0": asked}}),
        hold="q",
        failOnDataLoss="false",
    )
    follow(reader, reader.initialOffset())
    assert there.holds == {"a": {0: held}}


def test_one_that_cannot_be_held_is_not_in_the_way_of_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there = There(a=[10], b=[10])
    reader = reader_of(there, monkeypatch, subscribePattern=".*", hold="q")
    end = follow(reader, reader.initialOffset())
    there.make("a", [12])
    there.make("b", [14])
    there.forbidden.add("a")
    reader.commit(follow(reader, end))
    assert there.holds["b"] == {0: 14}
    assert "a is not ours to hold" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_a_stream_that_is_named_and_goes(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    there = There(a=[10], b=[10])
    flag = "true" if fails else "false"
    reader = reader_of(there, monkeypatch, subscribe="a,b", failOnDataLoss=flag)
    end = follow(reader, reader.initialOffset())
    del there.streams["b"]
    there.make("a", [12])
    if fails:
        with pytest.raises(AmqpDataLossError, match="'b'"):
            follow(reader, end)
        return
    end = follow(reader, end)
    there.make("a", [15])
    # It has been told; the query goes on, batch after batch.
    after = follow(reader, end)
    assert ranges(reader, end, after) == ["a::0 from 12 to before 15"]
    assert follow(reader, after) == after


@pytest.mark.parametrize("seen", [True, False], ids=["seen-gone", "at-once"])
@pytest.mark.parametrize(
    "chosen",
    [
        {"subscribe": "a"},
        {"subscribePattern": "."},
        {"assign": '{"a":[0,1,2]}'},
        {"assign": '{"a":[1,2]}'},
        {"subscribe": "a", "hold": "q"},
        {"subscribe": "a", "maxOffsetsPerTrigger": "100"},
    ],
    ids=str,
)
def test_a_stream_made_anew_with_fewer_partitions(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], seen: bool
) -> None:
    there = There(a=[10, 10, 10])
    reader = reader_of(there, monkeypatch, failOnDataLoss="false", **chosen)
    end = follow(reader, reader.initialOffset())
    if seen:
        del there.streams["a"]
        end = follow(reader, end)
    there.make("a", [5], "2")
    read: list[str] = []
    for number in (5, 8, 8):
        there.make("a", [number], "2")
        after = follow(reader, end)
        read += ranges(reader, end, after)
        reader.commit(after)
        end = after
    if chosen.get("assign") == '{"a":[1,2]}':
        assert read == []
    else:
        assert read == ["a::0 from 0 to before 5", "a::0 from 5 to before 8"]


def test_a_name_that_was_never_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(a=[10])
    reader = reader_of(there, monkeypatch, subscribe="a")
    end = follow(reader, reader.initialOffset())
    changed = reader_of(there, monkeypatch, subscribe="a,oders", failOnDataLoss="false")
    with pytest.raises(AmqpSourceError, match="there is no stream 'oders'"):
        follow(changed, end)
