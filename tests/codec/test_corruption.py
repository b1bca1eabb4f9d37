"""Damaged encodings give a value or a DecodeError: no other exception, no crash, no delay."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_codec import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    DecodeError,
    Described,
    Float32,
    Int,
    PairMap,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
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
from tests.codec.support import ITEMS, decode, encode, values

EVERYTHING = [
    None,
    True,
    UByte(1),
    UShort(2),
    UInt(3),
    UInt(300),
    ULong(4),
    ULong(2**64 - 1),
    Byte(-1),
    Short(-2),
    Int(-3),
    Int(1000),
    -4,
    2**40,
    Float32(1.5),
    2.5,
    Decimal32("1.5"),
    Decimal64("-2.5"),
    Decimal("NaN"),
    Char("é"),
    Timestamp(1),
    UUID(int=5),
    b"binary",
    "string é",
    Symbol("symbol"),
]

CORPUS = [
    EVERYTHING,
    {"a": EVERYTHING, 1: {Symbol("b"): {}}, None: [], UUID(int=9): 1, 1.5: 2},
    PairMap([(1, 2), (True, [3]), (Decimal("sNaN"), 4), ([5], {})]),
    {Symbol("x-opt"): UInt(5), Symbol("y"): [1], Symbol("z"): "text"},
    {"a": 1, "b": "text", "c": UUID(int=1), "d": Timestamp(5)},
    Described(0x14, [UInt(0), UInt(1), b"tag", UInt(0), False, Described(0x24, [])]),
    Described("a:b", Described(5, {"x": Described(6, None)})),
    Array("symbol", ["one", "two", ""]),
    Array("uint", [1, 2, 300]),
    Array("array", [Array("int", [1, 1000]), Array("string", ["x"]), Array("null", [None] * 5)]),
    Array("list", [[], [1, "two"], [None] * 3], descriptors=[0x25]),
    Array("map", [{"a": 1}, {}], descriptors=["d:e", 7]),
    Array("decimal64", [Decimal(1), Decimal("Infinity")]),
    Array("boolean", [True, False]),
    [Array(name, []) for name in sorted(ITEMS)],
    [b"x" * 300, "y" * 300, Symbol("z" * 300), {"k" * 300: [None] * 300}],
]

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
]


def attempt(data: bytes) -> None:
    """Read `data` in every way; a value that comes out must be one that can be written."""
    for read in READS:
        r = Reader(data)
        try:
            value = read(r, "field")
        except DecodeError as error:
            assert 0 <= error.offset <= len(data)
            assert error.field == "field"
            continue
        assert 0 <= r.pos <= len(data)
        assert r.depth == 0
        assert r.end == len(data)
        if read is read_value:
            encode(value)


@pytest.mark.parametrize("value", CORPUS)
def test_truncated_at_every_byte(value: object) -> None:
    data = encode(value)
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:size])
        attempt(data[:size])


# Values of a byte that are likely to matter: sizes, signs and every constructor.
MARKS = sorted(
    {0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, 0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0, 0xA0, 0xB0, 0xA1, 0xB1}
    | {0xA3, 0xB3, 0x40, 0x41, 0x45, 0x43, 0x52, 0x53, 0x56, 0x70, 0x73, 0x74, 0x84, 0x94, 0x98}
)


@pytest.mark.parametrize("value", CORPUS)
def test_every_byte_replaced(value: object) -> None:
    data = bytearray(encode(value))
    for at in range(min(len(data), 400)):
        before = data[at]
        for replacement in {*MARKS, before ^ 1, before ^ 0x80, (before + 1) & 0xFF}:
            data[at] = replacement
            attempt(bytes(data))
        data[at] = before


@given(values, st.data())
def test_damage_in_random_places(value: object, data: st.DataObject) -> None:
    encoded = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    attempt(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    attempt(data)


@given(st.sampled_from([0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0x00]), st.binary(max_size=60))
def test_random_content_of_containers(code: int, content: bytes) -> None:
    size = len(content)
    if code in (0xD0, 0xD1, 0xF0):
        header = (size + 4).to_bytes(4, "big") + (size // 2).to_bytes(4, "big")
    elif code:
        header = bytes([size + 1, size // 2 & 0xFE])
    else:
        header = b""
    attempt(bytes([code]) + header + content)
