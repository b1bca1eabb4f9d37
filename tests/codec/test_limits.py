"""What a hostile peer may send: depth, counts and sizes cost no more than the bytes received."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from ferrymq_codec import Array, DecodeError, Described, EncodeError
from ferrymq_codec.limits import ELEMENT_MEMORY, MAX_DEPTH, MAX_ELEMENTS, MAX_MEMORY
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import (
    read_annotations,
    read_array,
    read_list,
    read_map,
    read_multiple,
    read_multiple_symbol,
    read_string_map,
    read_symbol_map,
    read_value,
)
from tests.codec.support import decode, encode

# A budget that takes no time to spend.
FEW = 10_000

READS: list[Callable[[Reader, str], object]] = [
    read_value,
    read_list,
    read_map,
    read_array,
    read_symbol_map,
    read_annotations,
    read_string_map,
    read_multiple_symbol,
    lambda r, field: read_multiple(r, "uint", field),
    lambda r, field: r.skip_value(field),
    lambda r, field: r.read_descriptor(field),
    lambda r, field: r.read_binary(field),
    lambda r, field: r.read_string(field),
    lambda r, field: r.read_symbol(field),
    lambda r, field: r.enter_list(field),
    lambda r, field: r.enter_map(field),
]


def wide(code: int, count: int, content: bytes) -> bytes:
    """A list, map or array with four-byte sizes."""
    return (
        bytes([code]) + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content
    )


def lists(depth: int) -> bytes:
    data = b"\xc0\x01\x00"
    for _ in range(depth - 1):
        data = wide(0xD0, 1, data)
    return data


def maps(depth: int) -> bytes:
    data = b"\xc1\x01\x00"
    for _ in range(depth - 1):
        data = wide(0xD1, 2, b"\xa1\x01a" + data)
    return data


def map_keys(depth: int) -> bytes:
    data = b"\xc1\x01\x00"
    for _ in range(depth - 1):
        data = wide(0xD1, 2, data + b"\x40")
    return data


def arrays(depth: int) -> bytes:
    content = b"\x00\x00\x00\x05\x00\x00\x00\x00\x40"
    for _ in range(depth - 1):
        content = b"\xf0" + content
        content = (len(content) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + content
    return b"\xf0" + content


def described(depth: int) -> bytes:
    return b"\x00\x53\x01" * depth + b"\x40"


def descriptors(depth: int) -> bytes:
    # A descriptor that is itself described, and so on; the innermost descriptor comes last.
    return b"\x00" * depth + b"\x53\x01" + b"\x40" * depth


def array_descriptors(depth: int) -> bytes:
    return wide(0xF0, 0, b"\x00\x53\x01" * (depth - 1) + b"\x40")


def lists_of_arrays(depth: int) -> bytes:
    # An array of lists, whose elements are arrays, and so on.
    data = b"\x40"
    for level in range(depth):
        if level % 2:
            data = wide(0xF0, 1, b"\xd0" + data[1:])
        else:
            data = wide(0xD0, 1, data)
    return data


NESTINGS = [
    lists,
    maps,
    map_keys,
    arrays,
    described,
    descriptors,
    array_descriptors,
    lists_of_arrays,
]


@pytest.mark.parametrize("nesting", NESTINGS)
def test_the_deepest_nesting_is_accepted_and_one_more_is_not(
    nesting: Callable[[int], bytes],
) -> None:
    decode(nesting(MAX_DEPTH))
    with pytest.raises(DecodeError, match="nested too deeply"):
        decode(nesting(MAX_DEPTH + 1))


# Wide headers repeated for every level are quadratic to build in the order of the wire, so these
# are put together from the outside.
def _deep(code: int, per_level: bytes, depth: int) -> bytes:
    step = 9 + len(per_level)
    parts = []
    for level in range(depth):
        size = (depth - level) * step - 5 + 1
        parts.append(
            bytes([code])
            + size.to_bytes(4, "big")
            + (1 if code == 0xD0 else 2).to_bytes(4, "big")
            + per_level
        )
    return b"".join(parts) + b"\x45"


@pytest.mark.parametrize(
    "data",
    [
        _deep(0xD0, b"", 100_000),
        _deep(0xD1, b"\x40", 100_000),
        described(100_000),
        descriptors(100_000),
        b"\x00" * 100_000,
        array_descriptors(100_000),
        b"\xf0\x7f\xff\xff\xff\x00\x00\x00\x01" * 100_000,
        b"\xc0\xff\xff" * 100_000,
        b"\xe0\xff\xff" * 100_000,
    ],
)
@pytest.mark.parametrize("read", READS)
def test_nesting_without_end_is_an_error_not_a_crash(
    read: Callable[[Reader, str], object], data: bytes
) -> None:
    # Skipping a whole value and opening one level are the only things that may succeed.
    try:
        read(Reader(data), "field")
    except DecodeError:
        pass


def test_an_empty_list_counts_as_one_however_it_is_written() -> None:
    for empty in (b"\x45", b"\xc0\x01\x00"):
        data = empty
        for _ in range(MAX_DEPTH - 1):
            data = wide(0xD0, 1, data)
        assert encode(decode(data))
        with pytest.raises(DecodeError, match="too deep"):
            decode(wide(0xD0, 1, data))


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 1000])
def test_encoding_has_the_same_limit(depth: int) -> None:
    in_list: object = None
    in_map: object = None
    in_described: object = None
    in_array = Array("null")
    for _ in range(depth):
        in_list = [in_list]
        in_map = {"a": in_map}
        in_described = Described(1, in_described)
    for _ in range(depth - 1):
        in_array = Array("array", [in_array])
    for value in (in_list, in_map, in_described, in_array):
        if depth <= MAX_DEPTH:
            decode(encode(value))
        else:
            with pytest.raises(EncodeError, match="nested too deeply"):
                encode(value)
    with pytest.raises(EncodeError, match="nested too deeply"):
        encode(Array("null", [], descriptors=[1] * MAX_DEPTH))


HUGE = [
    "f0 00000005 ffffffff 50",
    "f0 00000005 ffffffff a0",
    "f0 00000005 ffffffff 70",
    "f0 00000005 ffffffff 98",
    "f0 00000005 ffffffff d0",
    "f0 00000005 ffffffff f0",
    "f0 ffffffff ffffffff 40",
    "f0 7ffffffb 00000001 40",
    "d0 00000005 ffffffff 40",
    "d0 ffffffff ffffffff 40",
    "d0 7fffffff 7fffffff 40",
    "d0 80000000 80000000 40",
    "d1 00000006 fffffffe 40 40",
    "d1 ffffffff fffffffe 40 40",
    "b0 ffffffff",
    "b0 7fffffff 00",
    "b0 80000000 00",
    "b1 fffffffe 61",
    "b1 7fffffff 61",
    "b3 ffffffff 61",
    "a0 ff 00",
    "00 b3 ffffffff 61",
    "00 53 01 b0 7fffffff",
    "c0 ff ff",
    "c1 ff fe",
    "e0 ff ff 50",
]


@pytest.mark.parametrize("data", HUGE)
@pytest.mark.parametrize("read", READS)
def test_sizes_and_counts_beyond_the_data_allocate_nothing(
    read: Callable[[Reader, str], object], data: str
) -> None:
    encoded = bytes.fromhex(data)
    tracemalloc.start()
    try:
        try:
            read(Reader(encoded), "field")
        except DecodeError:
            pass
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    with pytest.raises(DecodeError):
        decode(encoded)


@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
def test_four_thousand_million_elements_of_no_bytes(code: int) -> None:
    data = bytes.fromhex("f0 00000005 ffffffff") + bytes([code])
    array = decode(data)
    assert isinstance(array, Array)
    assert len(array) == 2**32 - 1
    # Many of them, nested, still cost only what they take on the wire.
    element = data[1:]
    tracemalloc.start()
    try:
        many = decode(wide(0xF0, 1000, b"\xf0" + element * 1000))
        assert isinstance(many, Array)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("code", [0xD0, 0xD1])
def test_the_elements_of_one_reader_are_bounded(code: int) -> None:
    def content(count: int) -> bytes:
        if code == 0xD0:
            return b"\x45" * count
        return b"".join(b"\x81" + i.to_bytes(8, "big") + b"\x40" for i in range(count // 2))

    for count, fits in ((FEW, True), (FEW + 2, False)):
        data = wide(code, count, content(count))
        r = Reader(data)
        # By default the bound is far above.
        read_value(r, "field")
        r.reset(data, 0, len(data))
        r.budget = FEW
        if fits:
            read_value(r, "field")
        else:
            with pytest.raises(DecodeError, match="too many elements"):
                read_value(r, "field")


def test_the_default_bound_is_one_of_memory() -> None:
    assert Reader(b"").budget * ELEMENT_MEMORY == MAX_MEMORY
    data = wide(0xD0, MAX_ELEMENTS + 1, b"\x40" * (MAX_ELEMENTS + 1))
    with pytest.raises(DecodeError, match="too many elements"):
        read_value(Reader(data), "field")


def test_the_budget_is_shared_by_all_values_and_restored_by_a_reset() -> None:
    half = wide(0xD0, FEW // 2, b"\x40" * (FEW // 2))
    data = half * 3
    r = Reader(data)
    r.budget = FEW
    read_value(r, "a")
    read_value(r, "b")
    with pytest.raises(DecodeError, match="too many elements"):
        read_value(r, "c")
    r.reset(data, 0, len(data))
    assert r.budget == MAX_ELEMENTS
    for name in "abc":
        read_value(r, name)


def test_arrays_and_typed_maps_are_charged_too() -> None:
    r = Reader(wide(0xF0, FEW + 1, b"\x50" + bytes(FEW + 1)))
    r.budget = FEW
    with pytest.raises(DecodeError, match="too many elements"):
        read_value(r, "field")
    r = Reader(encode({"a": 1}))
    r.budget = 1
    with pytest.raises(DecodeError, match="too many elements"):
        read_string_map(r, "field")


def test_a_failed_message_is_short() -> None:
    key = b"\xb1" + (100_000).to_bytes(4, "big") + b"k" * 100_000
    with pytest.raises(DecodeError) as caught:
        decode(wide(0xD1, 4, key + b"\x40" + key + b"\x40"))
    assert len(str(caught.value)) < 300


def test_big_values_are_read_in_linear_time() -> None:
    value = [{f"k{i}": [b"x" * 20, i] for i in range(5)} for _ in range(3_000)]
    data = encode(value)
    started = time.process_time()
    assert decode(data) == value
    assert time.process_time() - started < 5
