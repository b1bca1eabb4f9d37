"""Records in LMDB are what records in memory are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq_broker.store import lmdb_records
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.lmdb_records import LmdbRecords
from ferrymq_broker.store.records import Brief, Records, RecordsGrow
from tests.support.memory_records import MemoryDisk, MemoryRecords

NUMBERS = st.integers(0, 20)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.integers(1, 3), st.integers(1, 2), NUMBERS, st.integers(0, 9000)
        ),
        st.tuples(st.just("drop"), st.integers(1, 3), st.integers(1, 2), NUMBERS, st.just(0)),
        st.tuples(
            st.just("extend"), st.integers(1, 3), st.integers(1, 2), NUMBERS, st.integers(0, 9000)
        ),
        st.tuples(st.just("range"), st.integers(1, 3), st.integers(1, 2), NUMBERS, NUMBERS),
        st.tuples(
            st.sampled_from(("commit", "abort")), st.just(0), st.just(0), NUMBERS, st.just(0)
        ),
    ),
    max_size=40,
)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[LmdbRecords]:
    opened = LmdbRecords(tmp_path)
    yield opened
    opened.close()


def put(records: Records, table: int, id: int, number: int, value: bytes) -> None:
    key = encode_key(table, id, number)
    records.put(key, seal(key, value))


def everything(records: Records) -> list[tuple[int, int, int, bytes]]:
    return [(table, *record) for table in range(1, 4) for record in records.scan(table)]


@given(STEPS)
@settings(deadline=None, max_examples=60)
def test_the_same_as_in_memory(steps: list[tuple[str, int, int, int, int]]) -> None:
    with TemporaryDirectory() as folder:
        disk = MemoryDisk()
        both: list[Records] = [LmdbRecords(Path(folder)), MemoryRecords(disk)]
        for records in both:
            records.begin()
        for kind, table, id, number, more in steps:
            for records in both:
                if kind == "put":
                    put(records, table, id, number, bytes(more))
                elif kind == "drop":
                    records.drop(encode_key(table, id, number))
                elif kind == "extend":
                    records.extend(encode_key(table, id, 0)[:9], more)
                elif kind == "range":
                    first, last = encode_key(table, id, number), encode_key(table, id, more)
                    while not records.drop_range(first, last, 2):
                        pass
                else:
                    if kind == "commit":
                        records.commit(number)
                    else:
                        records.abort()
                    records.begin()
            prefix = encode_key(2, 1, 0)[:9]
            assert both[0].highest(prefix) == both[1].highest(prefix)
        for records in both:
            records.abort()
        assert everything(both[0]) == everything(both[1])
        assert both[0].applied == both[1].applied
        both[0].close()
        again = LmdbRecords(Path(folder))
        assert everything(again) == everything(both[1])
        assert again.applied == both[1].applied
        again.close()


def test_a_commit_in_another_thread(records: LmdbRecords) -> None:
    for number in range(20):
        records.begin()
        put(records, 1, 1, number, b"%d" % number)
        # Until it is committed nobody sees it.
        assert records.get(1, 1, number) is None
        thread = threading.Thread(target=records.commit, args=(number,))
        thread.start()
        thread.join()
        assert records.get(1, 1, number) == b"%d" % number
        assert records.applied == number


def test_the_map_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_records, "_MIN_MAP", 1 << 16)
    monkeypatch.setattr(lmdb_records, "_HEADROOM", 0)
    records = LmdbRecords(tmp_path)
    grown = 0
    number = 0
    while number < 300:
        records.begin()
        try:
            for more in range(100):
                put(records, 1, 1, number + more, bytes(1000))
            records.commit(number)
        except RecordsGrow:
            # Nothing of it is there, and the next attempt has twice the room.
            grown += 1
            assert records.get(1, 1, number) is None
            continue
        number += 100
    assert grown
    assert len(everything(records)) == 300
    records.close()


def test_what_the_library_cannot_read_is_damage(tmp_path: Path) -> None:
    """Whatever it says: it must not look like a mistake of whoever reads."""
    records = LmdbRecords(tmp_path)
    records.begin()
    put(records, 1, 2, 3, b"value")
    records.commit(1)
    assert (records.get(1, 2, 3), records.run(1, 2, 3, 9, 100).values()) == (b"value", [b"value"])
    records.close()
    with pytest.raises(StoreDamaged, match="cannot be read"):
        records.get(1, 2, 3)
    assert records.run(1, 2, 3, 9, 100).values() == []


def test_room_is_used_again(records: LmdbRecords) -> None:
    for batch in range(60):
        records.begin()
        for number in range(100):
            put(records, 1, 1, batch * 100 + number, bytes(1000))
        if batch:
            assert records.drop_range(
                encode_key(1, 1, batch * 100 - 100), encode_key(1, 1, batch * 100 - 1), 1000
            )
        records.commit(batch)
        if batch == 20:
            size = records.file_bytes()
    assert records.file_bytes() <= size
    assert records.used_bytes() < 400_000
    assert records.count() == 101


def test_a_value_of_another_record_is_damage(records: LmdbRecords) -> None:
    records.begin()
    records.put(encode_key(5, 1, 2), seal(encode_key(5, 1, 1), b"value"))
    records.commit(1)
    with pytest.raises(StoreDamaged, match=r"data\.mdb: entry 1/2 is damaged"):
        records.get(5, 1, 2)
    with pytest.raises(StoreDamaged, match="entry 1/2 is damaged"):
        list(records.scan(5))


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as environment, environment.begin(write=True) as txn:
        txn.put(b"theirs", b"value")
    with pytest.raises(StoreDamaged, match=r"data\.mdb was not written by ferrymq"):
        LmdbRecords(tmp_path)
    with lmdb.open(str(tmp_path)) as environment, environment.begin() as txn:
        assert txn.get(b"theirs") == b"value"


@given(
    numbers=st.sets(NUMBERS),
    damaged=st.sets(NUMBERS, max_size=2),
    first=NUMBERS,
    end=NUMBERS,
    most=st.integers(1, 30),
)
@settings(deadline=None, max_examples=60)
def test_a_run_is_what_one_gets_one_by_one(
    numbers: set[int], damaged: set[int], first: int, end: int, most: int
) -> None:
    with TemporaryDirectory() as folder:
        both: list[Records] = [LmdbRecords(Path(folder)), MemoryRecords(MemoryDisk())]
        for records in both:
            records.begin()
            for number in numbers:
                key = encode_key(5, 1, number)
                # The neighbours in other tables, and of other ids, have the same numbers.
                for other in (encode_key(4, 1, number), encode_key(5, 2, number)):
                    records.put(other, seal(other, b"another"))
                sealed = bytearray(seal(key, b"%02d" % number * 2))
                sealed[-1] ^= number in damaged
                records.put(key, bytes(sealed))
            records.commit(1)
        runs = [records.run(5, 1, first, end, most).values() for records in both]
        assert runs[0] == runs[1]
        expected = []
        for number in range(first, end):
            if number not in numbers - damaged or len(expected) * 4 >= most:
                break
            expected.append(b"%02d" % number * 2)
        assert runs[0] == expected
        both[0].close()


def test_a_run_ends_before_a_value_of_another_record(records: LmdbRecords) -> None:
    records.begin()
    for number in (1, 2, 3):
        put(records, 5, 1, number, b"value")
    records.put(encode_key(5, 1, 2), seal(encode_key(5, 1, 1), b"value"))
    records.commit(1)
    assert records.run(5, 1, 1, 9, 1000).values() == [b"value"]
    assert records.run(5, 1, 2, 9, 1000).values() == []
    assert records.run(5, 1, 3, 9, 1000).values() == [b"value"]
    assert records.run(5, 1, 4, 9, 1000).values() == []


class Passing(Brief):
    """Wants all of some records, and nothing of those in ranges; the `asked` it was asked about."""

    def __init__(self, ranges: dict[int, list[tuple[int, int]]]) -> None:
        self._ranges = ranges
        self.asked = 0

    def suffices(self, id: int, head: bytes) -> bool:
        return id == 2

    def passed(self, id: int, number: int) -> int:
        self.asked += 1
        for first, last in self._ranges.get(id, ()):
            if first <= number <= last:
                return last
        return -1


@given(
    st.dictionaries(st.integers(1, 4), st.sets(st.integers(0, 300)), min_size=2),
    st.dictionaries(
        st.integers(1, 4), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 120)))
    ),
)
@settings(deadline=None, max_examples=60)
def test_records_that_nobody_asks_for_are_passed_over(
    numbers: dict[int, set[int]], lengths: dict[int, list[tuple[int, int]]]
) -> None:
    ranges = {
        id: [(first, first + length) for first, length in some] for id, some in lengths.items()
    }
    with TemporaryDirectory() as folder:
        records = LmdbRecords(Path(folder))
        records.begin()
        for id, some in numbers.items():
            for number in some:
                put(records, 1, id, number, b"%d" % number + bytes(50))
        put(records, 2, 1, 0, b"another table")
        records.commit(1)
        brief = Passing(ranges)
        seen = [(part.id, part.number) for part in records.scan_parts(1, brief)]
        expected = [
            (id, number)
            for id, some in sorted(numbers.items())
            for number in sorted(some)
            if not any(first <= number <= last for first, last in ranges.get(id, ()))
        ]
        assert seen == expected
        records.close()


def test_long_ranges_that_nobody_asks_for_are_not_gone_through(records: LmdbRecords) -> None:
    records.begin()
    for number in range(5000):
        put(records, 1, 1, number, b"%d" % number)
    records.commit(1)
    brief = Passing({1: [(10, 2999), (3001, 4999)]})
    assert [part.number for part in records.scan_parts(1, brief)] == [*range(10), 3000]
    assert brief.asked < 20


def test_short_ranges_that_nobody_asks_for(records: LmdbRecords) -> None:
    records.begin()
    for number in range(1000):
        put(records, 1, 1, number, b"%d" % number)
    records.commit(1)
    brief = Passing({1: [(number, number + 1) for number in range(0, 900, 2)]})
    assert [part.number for part in records.scan_parts(1, brief)] == list(range(900, 1000))
