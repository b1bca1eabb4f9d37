"""Values cut out of records that were read together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.record_run import VALUE, RecordRun

NUMBERS = st.one_of(
    st.integers(0, 300), st.integers(2**32 - 300, 2**32), st.integers(0, 2**63 - 301)
)


def run_of(first: int, values: list[bytes], most: int = 1_000_000) -> RecordRun:
    stored = [seal(encode_key(5, 7, first + at), value) for at, value in enumerate(values)]
    return RecordRun(encode_key(5, 7, first), stored, most)


@given(
    first=NUMBERS, values=st.lists(st.binary(max_size=40), max_size=300), head=st.integers(0, 20)
)
def test_each_value_is_there_and_the_rest_behind_its_head(
    first: int, values: list[bytes], head: int
) -> None:
    run = run_of(first, values)
    assert run.values() == values
    for at, value in enumerate(values):
        assert run.rest(at, head) == (value[head:] if len(value) >= head else None)
        assert run.stored[at][VALUE:] == value


@given(
    values=st.lists(st.binary(max_size=30), min_size=1, max_size=5),
    bit=st.integers(min_value=0),
    head=st.integers(0, 30),
)
def test_any_bit_that_changes_is_damage_to_one_value(
    values: list[bytes], bit: int, head: int
) -> None:
    stored = [bytearray(seal(encode_key(5, 7, at), value)) for at, value in enumerate(values)]
    which = bit % len(values)
    bit %= 8 * len(stored[which])
    stored[which][bit // 8] ^= 1 << bit % 8
    run = RecordRun(encode_key(5, 7, 0), [bytes(one) for one in stored], 1_000_000)
    assert run.values() == values[:which]
    for at, value in enumerate(values):
        intact = at != which and len(value) >= head
        assert run.rest(at, head) == (value[head:] if intact else None)


def test_a_record_of_another_key_is_damage() -> None:
    for key in (encode_key(4, 7, 1), encode_key(5, 8, 1), encode_key(5, 7, 2)):
        run = RecordRun(encode_key(5, 7, 1), [seal(key, b"value")], 100)
        assert run.rest(0, 0) is None and run.values() == []


def test_a_record_without_a_whole_checksum_is_damage() -> None:
    run = RecordRun(encode_key(5, 7, 1), [b"crc", seal(encode_key(5, 7, 2), b"value")], 100)
    assert run.rest(0, 0) is None and run.rest(1, 0) == b"value"


def test_records_behind_the_wanted_bytes_are_left_out() -> None:
    values = [b"12345", b"12345", b"12345"]
    assert run_of(1, values, 10).values() == values[:2]
    assert run_of(1, values, 11).values() == values
    assert run_of(1, values, 1).values() == values[:1]
