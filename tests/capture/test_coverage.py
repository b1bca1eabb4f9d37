"""What capture files cover: gaps and overlaps, compared with sets of offsets."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ferrymq.capture.coverage import PARTIAL, SAME, SUBSET, Range, coverage
from ferrymq.capture.names import CaptureName


def file(first: int, last: int, partition: int = 0, hour: int = 0) -> CaptureName:
    return CaptureName(hour, partition, first, last)


def offsets(files: list[CaptureName]) -> set[int]:
    return {offset for each in files for offset in range(each.first, each.next)}


some_files = st.lists(
    st.builds(
        lambda first, count, partition, hour: file(first, first + count, partition, hour),
        st.integers(0, 40),
        st.integers(0, 15),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    max_size=12,
)


@given(some_files)
def test_ranges_and_gaps_are_what_offsets_say(files: list[CaptureName]) -> None:
    covered = coverage(files)
    assert set(covered) == {each.partition for each in files}
    for partition, found in covered.items():
        own = offsets([each for each in files if each.partition == partition])
        assert {o for each in found.ranges for o in range(each.first, each.next)} == own
        assert {o for each in found.gaps for o in range(each.first, each.next)} == (
            set(range(min(own), max(own) + 1)) - own
        )
        # Ranges rise and do not touch.
        for one, other in zip(found.ranges, found.ranges[1:], strict=False):
            assert one.next < other.first
        assert (found.first, found.next) == (min(own), max(own) + 1)


@given(some_files)
def test_nothing_is_missing_without_what_is_redundant(files: list[CaptureName]) -> None:
    for partition, found in coverage(files).items():
        own = [each for each in files if each.partition == partition]
        assert offsets(found.files) == offsets(own)
        assert sorted([*found.files, *found.redundant]) == sorted(own)
        # Each offset is there once, but for what partial overlaps say.
        total = sum(each.next - each.first for each in found.files)
        twice = sum(each.range.next - each.range.first for each in found.partial)
        assert total == len(offsets(own)) + twice


@given(some_files, st.integers(0, 60), st.integers(0, 60))
def test_missing_is_what_is_not_there(files: list[CaptureName], first: int, next: int) -> None:
    for partition, found in coverage(files).items():
        own = offsets([each for each in files if each.partition == partition])
        missing = {o for each in found.missing(first, next) for o in range(each.first, each.next)}
        assert missing == set(range(first, next)) - own
        if first < next:
            assert found.covers(first, next) == (not missing)


@given(st.lists(st.integers(1, 10), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_files_one_behind_the_other_are_one_range(counts: list[int], random: Random) -> None:
    files: list[CaptureName] = []
    for count in counts:
        first = files[-1].next if files else 7
        files.append(file(first, first + count - 1))
    random.shuffle(files)
    [found] = coverage(files).values()
    assert found.ranges == [Range(7, 7 + sum(counts))]
    assert not found.gaps
    assert not found.overlaps


def test_kinds_of_overlaps() -> None:
    again = coverage([file(0, 9), file(0, 9, hour=1)])[0]
    assert [each.kind for each in again.overlaps] == [SAME]
    within = coverage([file(0, 19), file(5, 14)])[0]
    assert [(each.kind, each.file) for each in within.overlaps] == [(SUBSET, file(5, 14))]
    across = coverage([file(0, 9), file(5, 14)])[0]
    assert [(each.kind, each.range) for each in across.overlaps] == [(PARTIAL, Range(5, 10))]
