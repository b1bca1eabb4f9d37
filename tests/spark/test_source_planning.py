"""Offsets, tasks and limits: what a batch takes, and how it is cut, from offsets alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pyspark_ferrymq.offsets import Offset, OffsetError, PartitionOffset
from pyspark_ferrymq.options.subscription import Selection
from pyspark_ferrymq.reading.admission_control import backlog, end_of
from pyspark_ferrymq.stream_metadata import PartitionRange, StreamRanges
from pyspark_ferrymq.task_planning import OffsetRange, apportion, plan

names = st.text(min_size=1, max_size=5)
offsets = st.builds(
    Offset,
    st.dictionaries(
        names,
        st.builds(
            PartitionOffset,
            names,
            st.dictionaries(st.integers(0, 200), st.integers(0, 1 << 62), max_size=5),
        ),
        max_size=4,
    ),
    st.booleans(),
)


@given(offsets, st.randoms())
def test_an_offset_is_the_same_text_whatever_the_order(offset: Offset, random: object) -> None:
    text = json.dumps(offset.to_json())
    again = Offset.from_json(json.loads(text))
    assert again == offset
    shuffled = Offset(
        {
            name: PartitionOffset(position.incarnation, dict(reversed(position.partitions.items())))
            for name, position in reversed(offset.streams.items())
        },
        offset.pin,
    )
    assert json.dumps(shuffled.to_json()) == text


def test_the_text_of_an_offset() -> None:
    offset = Offset({"orders": PartitionOffset("5f", {10: 7, 2: 99})})
    assert json.dumps(offset.to_json(), separators=(",", ":")) == (
        '{"v":1,"streams":{"orders":{"id":"5f","p":{"2":99,"10":7}}}}'
    )
    assert list(offset.pinned().to_json()) == ["v", "pin", "streams"]


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {},
        {"v": 3, "streams": {}},
        {"v": 2, "streams": {"a": []}},
        {"v": 2, "streams": {"a": {"id": "x", "p": {"0": 1}}}},
        {"v": True, "streams": {}},
        {"v": 1},
        {"v": 1, "streams": {}, "more": 1},
        {"v": 1, "streams": {"a": {"id": "x"}}},
        {"v": 1, "streams": {"a": {"id": 1, "p": {}}}},
        {"v": 1, "streams": {"a": {"id": "x", "p": {"0": -1}}}},
        {"v": 1, "streams": {"a": {"id": "x", "p": {"0": "1"}}}},
        {"v": 1, "streams": {"a": {"id": "x", "p": {"zero": 1}}}},
    ],
)
def test_what_is_no_offset(found: object) -> None:
    with pytest.raises(OffsetError):
        Offset.from_json(found)


ranges = st.lists(
    st.builds(
        lambda number, first, size: OffsetRange("s", "id", number, first, first + size),
        st.integers(0, 50),
        st.integers(0, 1000),
        st.integers(-5, 300),
    ),
    max_size=6,
    unique_by=lambda each: each.partition,
)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_a_plan_covers_everything_once(
    given_ranges: list[OffsetRange], least: int | None, most: int | None
) -> None:
    planned = plan(given_ranges, least, most)
    covered = [(each.partition, at) for each in planned for at in range(each.first, each.until)]
    wanted = [(each.partition, at) for each in given_ranges for at in range(each.first, each.until)]
    assert covered == wanted
    sizes = [len(each) for each in planned]
    assert all(sizes)
    if most is not None:
        assert all(size <= most for size in sizes)
    if least is not None:
        assert len(planned) >= min(least, len(wanted))
        # No more than needed.
        assert len(planned) <= max(
            least, sum(-(-len(each) // (most or 1 << 60)) for each in given_ranges)
        )
    elif most is None:
        assert len(planned) == sum(bool(len(each)) for each in given_ranges)


def test_large_ranges_are_cut_first() -> None:
    whole = [OffsetRange("s", "id", 0, 0, 100), OffsetRange("s", "id", 1, 0, 10)]
    assert [(each.partition, len(each)) for each in plan(whole, 4)] == [
        (0, 33),
        (0, 33),
        (0, 34),
        (1, 10),
    ]


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 5000), st.integers(0, 1 << 60))
def test_shares_are_as_much_as_there_is(sizes: list[int], limit: int, turn: int) -> None:
    shares = apportion(sizes, limit, turn)
    assert sum(shares) == min(limit, sum(sizes))
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))
    waiting = sum(bool(size) for size in sizes)
    if limit >= waiting:
        assert all(share > 0 for share, size in zip(shares, sizes, strict=True) if size)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=6), st.integers(1, 5))
def test_nobody_starves(sizes: list[int], limit: int) -> None:
    """However large the others are, and however small the limit, everybody has its turn."""
    at = [0] * len(sizes)
    left = list(sizes)
    left[0] = 10_000
    for _ in range(sum(sizes) * 2 + 10):
        shares = apportion(left, limit, sum(at))
        at = [a + share for a, share in zip(at, shares, strict=True)]
        left = [size - share for size, share in zip(left, shares, strict=True)]
    assert not any(left[1:])


class Sizes:
    """A service that knows how large records are: as large as `size`."""

    def __init__(self, size: int) -> None:
        self.size = size

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        return {
            number: offset + max(1, size // self.size) for number, (offset, size) in places.items()
        }

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        raise AssertionError("nobody asks")

    def broker_ids(self) -> dict[str, str]:
        return {}

    def explain(self, name: str) -> str:
        raise AssertionError("nobody asks")

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        raise AssertionError("nobody asks")

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        raise AssertionError("nobody asks")

    def close(self) -> None:
        pass


def streams(**partitions: list[tuple[int, int]]) -> dict[str, StreamRanges]:
    """Streams by name, with first and next offset of each partition, and records of ten bytes."""
    return {
        name: StreamRanges(
            name,
            f"id-{name}",
            {
                number: PartitionRange(number, first, end, 10 * (end - first))
                for number, (first, end) in enumerate(ranges)
            },
        )
        for name, ranges in partitions.items()
    }


def at(**partitions: list[int]) -> Offset:
    return Offset(
        {
            name: PartitionOffset(f"id-{name}", dict(enumerate(offsets)))
            for name, offsets in partitions.items()
        }
    )


def test_all_there_is() -> None:
    there = streams(a=[(0, 10), (5, 20)], b=[(0, 7)])
    found = backlog(at(a=[3, 5]), there)
    assert end_of(found, there, ReadAllAvailable(), Sizes(10)) == at(a=[10, 20], b=[7])


def test_rows_in_proportion() -> None:
    there = streams(a=[(0, 100), (0, 300), (0, 0)])
    found = backlog(at(a=[0, 0, 0]), there)
    assert end_of(found, there, ReadMaxRows(40), Sizes(10)) == at(a=[10, 30, 0])
    assert end_of(found, there, ReadMaxRows(1000), Sizes(10)) == at(a=[100, 300, 0])


def test_bytes_in_proportion() -> None:
    there = streams(a=[(0, 100), (0, 300)])
    found = backlog(at(a=[0, 0]), there)
    assert end_of(found, there, ReadMaxBytes(400), Sizes(10)) == at(a=[10, 30])
    assert end_of(found, there, ReadMaxBytes(1 << 40), Sizes(10)) == at(a=[100, 300])
    # A record that is larger than all of the limit is read all the same.
    assert end_of(found, there, ReadMaxBytes(4), Sizes(10)) == at(a=[1, 1])


def test_what_is_gone_does_not_count() -> None:
    there = streams(a=[(50, 60), (0, 10)])
    found = backlog(at(a=[0, 0]), there)
    assert end_of(found, there, ReadMaxRows(10), Sizes(10)) == at(a=[55, 5])


def test_a_new_partition_begins_with_its_first_record() -> None:
    there = streams(a=[(0, 10), (0, 10)])
    found = backlog(at(a=[10]), there)
    assert end_of(found, there, ReadMaxRows(4), Sizes(10)) == at(a=[10, 4])


def test_a_stream_made_anew_begins_with_its_first_record() -> None:
    there = streams(a=[(0, 10)])
    before = Offset({"a": PartitionOffset("another", {0: 500})})
    assert end_of(backlog(before, there), there, ReadMaxRows(4), Sizes(10)) == at(a=[4])
