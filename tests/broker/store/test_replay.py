"""The net effect of batches is what making their changes one by one comes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.store.changes import LAST, Changes
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.keys import encode_key, is_intact
from ferrymq_broker.store.net_effect import DroppedRanges, NetEffect
from tests.support.memory_records import MemoryDisk, MemoryRecords

Change = tuple[str, int, int, int, int]

NUMBERS = st.integers(0, 9)
CHANGES = st.tuples(
    st.sampled_from(("put", "put", "drop", "range")),
    st.integers(5, 6),
    st.integers(1, 2),
    NUMBERS,
    NUMBERS,
)
BATCHES = st.lists(st.lists(CHANGES, max_size=12), max_size=6)


def new_changes() -> Changes:
    changes = Changes()
    changes.enabled = True
    return changes


def batches_of(batches: list[list[Change]]) -> list[bytes]:
    changes = new_changes()
    written = []
    for batch in batches:
        for kind, table, id, number, last in batch:
            if kind == "put":
                changes.put(table, id, number, b"%d" % changes.total)
            elif kind == "drop":
                changes.drop(table, id, number)
            else:
                changes.drop_range(table, id, number, last)
        written.append(b"".join(changes.close()))
    return written


def one_by_one(stored: dict[bytes, bytes], batches: list[bytes]) -> dict[bytes, bytes]:
    """What comes of each change applied by itself."""
    disk = MemoryDisk()
    disk.stored = dict(stored)
    records = MemoryRecords(disk)
    for batch in batches:
        at = 0
        while at < len(batch):
            records.begin()
            key = batch[at + 1 : at + 18]
            if batch[at] == 1:
                size = int.from_bytes(batch[at + 18 : at + 22], "big")
                records.put(key, batch[at + 22 : at + 26 + size])
                at += 26 + size
            elif batch[at] == 2:
                records.drop(key)
                at += 18
            else:
                last = key[:9] + batch[at + 18 : at + 26]
                assert records.drop_range(key, last, 1000)
                at += 26
            records.commit(1)
    return disk.stored


class CountingRecords(MemoryRecords):
    """Records that know how often they were changed."""

    made = 0

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        self.made += 1
        super().put(key, value)

    def drop(self, key: bytes) -> None:
        self.made += 1
        super().drop(key)


def net_effect(
    stored: dict[bytes, bytes], batches: list[bytes], at_once: int
) -> tuple[dict[bytes, bytes], CountingRecords]:
    disk = MemoryDisk()
    disk.stored = dict(stored)
    records = CountingRecords(disk)
    effect = NetEffect()
    for batch in batches:
        effect.begin(batch)
        while not effect.read(at_once):
            pass
    records.begin()
    effect.rewind()
    while not effect.write(records, at_once):
        pass
    records.commit(1)
    return disk.stored, records


@given(BATCHES, BATCHES, st.integers(1, 7))
def test_the_same_comes_of_it(
    before: list[list[Change]], batches: list[list[Change]], at_once: int
) -> None:
    stored = one_by_one({}, batches_of(before))
    written = batches_of(batches)
    found, _ = net_effect(stored, written, at_once)
    assert found == one_by_one(stored, written)
    assert all(is_intact(key, value) for key, value in found.items())


@given(BATCHES, BATCHES)
def test_doing_it_twice_changes_nothing(
    before: list[list[Change]], batches: list[list[Change]]
) -> None:
    stored = one_by_one({}, batches_of(before))
    written = batches_of(batches)
    once, _ = net_effect(stored, written, 100)
    assert net_effect(once, written, 100)[0] == once


def test_what_comes_and_goes_is_never_written() -> None:
    changes = new_changes()
    for number in range(100, 200):
        changes.put(5, 1, number, b"x")
        changes.drop(5, 1, number)
    stored = {encode_key(5, 1, 99): b"----", encode_key(5, 2, 500): b"----"}
    found, records = net_effect(stored, [b"".join(changes.close())], 1000)
    assert found == stored
    assert records.made == 0


def test_what_was_there_before_is_dropped() -> None:
    changes = new_changes()
    changes.put(6, 1, 7, b"again")
    changes.drop(6, 1, 7)
    key = encode_key(6, 1, 7)
    assert net_effect({key: b"----"}, [b"".join(changes.close())], 10)[0] == {}


def test_a_range_without_end() -> None:
    changes = new_changes()
    changes.drop_range(5, 1, 3, LAST)
    changes.put(5, 1, 4, b"later")
    stored = {encode_key(5, 1, n): b"----" for n in range(6)}
    stored[encode_key(5, 2, 3)] = b"----"
    found, _ = net_effect(stored, [b"".join(changes.close())], 1)
    assert sorted(found) == [*(encode_key(5, 1, n) for n in (0, 1, 2, 4)), encode_key(5, 2, 3)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12))))
def test_ranges_know_when_a_number_was_last_dropped(added: list[tuple[int, int]]) -> None:
    ranges = DroppedRanges()
    times = [-1] * 50
    for time, (first, length) in enumerate(added):
        ranges.add(first, first + length, time)
        times[first : first + length + 1] = [time] * (length + 1)
    assert [ranges.time_of(number) for number in range(50)] == times
    # They are disjoint and in order, so many of them cost no more than a search.
    ends = [end for pair in zip(ranges.firsts, ranges.lasts, strict=True) for end in pair]
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    "batch",
    [
        b"\x04" + bytes(30),
        b"\x00",
        b"\x01" + bytes(10),
        b"\x01" + bytes(17) + b"\x00\x00\x00\x09" + bytes(12),
        b"\x01" + bytes(17) + b"\xff\xff\xff\xff" + bytes(12),
        b"\x02" + bytes(16),
        b"\x03" + bytes(24),
        b"\x03" + bytes(9) + b"\xff" * 8 + bytes(8),
    ],
)
def test_what_is_no_change_is_refused(batch: bytes) -> None:
    effect = NetEffect()
    effect.begin(batch)
    with pytest.raises(StoreDamaged, match="an invalid change is at byte 0"):
        effect.read(10)
