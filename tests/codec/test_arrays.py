"""Arrays of every element type (AMQP 1.0 §1.2.4, §1.6.24)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec import Array, DecodeError, Described, EncodeError, Symbol, UInt, ULong
from ferrymq_codec.codes import TYPE_NAMES
from ferrymq_codec.containers import Repeated
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import read_array, write_array
from tests.codec.support import ITEMS, decode, encode, same, values

pytestmark = pytest.mark.spec("1.6.24")

UID = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")


@pytest.mark.parametrize(
    ("data", "array"),
    [
        ("e0 02 00 40", Array("null")),
        ("e0 02 03 40", Array("null", [None] * 3)),
        ("e0 04 02 56 01 00", Array("boolean", [True, False])),
        ("e0 03 01 50 ff", Array("ubyte", [255])),
        ("e0 04 01 60 ffff", Array("ushort", [65535])),
        ("e0 0a 02 70 00000000 00000100", Array("uint", [0, 256])),
        ("e0 06 01 70 00000005", Array("uint", [5])),
        ("e0 0a 01 80 0000000000000005", Array("ulong", [5])),
        ("e0 06 01 71 ffffffff", Array("int", [-1])),
        ("e0 0a 01 81 ffffffffffffffff", Array("long", [-1])),
        ("e0 0b 01 d0 00000005 00000001 40", Array("list", [[None]])),
        ("e0 0e 01 d1 00000008 00000002 55 01 55 02", Array("map", [{1: 2}])),
        ("e0 0b 01 f0 00000005 00000000 40", Array("array", [Array("null")])),
        ("e0 0a 01 80 ffffffffffffffff", Array("ulong", [2**64 - 1])),
        ("e0 03 01 51 80", Array("byte", [-128])),
        ("e0 04 01 61 8000", Array("short", [-32768])),
        ("e0 06 01 71 00000080", Array("int", [128])),
        ("e0 0a 01 81 0000000000000080", Array("long", [128])),
        ("e0 06 01 72 3fc00000", Array("float", [1.5])),
        ("e0 0a 01 82 3ff8000000000000", Array("double", [1.5])),
        ("e0 06 01 74 32800001", Array("decimal32", [Decimal(1)])),
        ("e0 0a 01 84 31c0000000000001", Array("decimal64", [Decimal(1)])),
        ("e0 12 01 94 3040000000000000 0000000000000001", Array("decimal128", [Decimal(1)])),
        ("e0 06 01 73 0001f600", Array("char", ["\U0001f600"])),
        ("e0 0a 01 83 ffffffffffffffff", Array("timestamp", [-1])),
        ("e0 12 01 98 f81d4fae7dec11d0a76500a0c91e6bf6", Array("uuid", [UID])),
        ("e0 05 02 a0 00 01 ff", Array("binary", [b"", b"\xff"])),
        ("e0 05 01 a1 02 c3a9", Array("string", ["é"])),
        ("e0 06 02 a3 01 61 01 62", Array("symbol", ["a", "b"])),
        ("e0 07 02 00 53 24 50 01 02", Array("ubyte", [1, 2], descriptors=[0x24])),
        ("e0 06 01 00 a3 01 61 40", Array("null", [None], descriptors=["a"])),
        (
            "e0 09 01 00 53 01 00 53 02 50 07",
            Array("ubyte", [7], descriptors=[ULong(1), ULong(2)]),
        ),
    ],
)
def test_vectors(data: str, array: Array) -> None:
    encoded = bytes.fromhex(data)
    assert encode(array) == encoded
    again = decode(encoded)
    assert isinstance(again, Array)
    assert again == array
    assert encode(again) == encoded


@pytest.mark.parametrize(
    ("data", "array"),
    [
        ("e0 04 02 52 00 ff", Array("uint", [0, 255])),
        ("e0 03 01 53 05", Array("ulong", [5])),
        ("e0 04 02 54 80 7f", Array("int", [-128, 127])),
        ("e0 03 01 55 ff", Array("long", [-1])),
        ("e0 07 02 c0 01 00 02 01 40", Array("list", [[], [None]])),
        ("e0 08 01 c1 05 02 55 01 55 02", Array("map", [{1: 2}])),
        ("e0 09 02 e0 03 01 54 07 02 00 40", Array("array", [Array("int", [7]), Array("null")])),
    ],
)
def test_narrow_constructors_are_read_and_kept(data: str, array: Array) -> None:
    """The encoder does not choose them, because RabbitMQ cannot read them in an array."""
    encoded = bytes.fromhex(data)
    again = decode(encoded)
    assert again == array
    assert encode(again) == encoded
    assert encode(array) != encoded


@pytest.mark.parametrize("name", sorted(set(TYPE_NAMES.values())))
def test_an_empty_array_keeps_its_element_type(name: str) -> None:
    again = decode(encode(Array(name)))
    assert isinstance(again, Array)
    assert (again.element_type, len(again), list(again)) == (name, 0, [])


def _round_trip(name: str) -> None:
    @given(st.lists(ITEMS[name], max_size=20))
    def check(items: list[object]) -> None:
        array = Array(name, items)
        data = encode(array)
        again = decode(data)
        assert same(again, array)
        assert encode(again) == data

    check()


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_round_trip_of_every_primitive(name: str) -> None:
    _round_trip(name)


@given(st.lists(st.lists(values, max_size=3), max_size=3), st.booleans())
def test_round_trip_of_lists(items: list[object], described: bool) -> None:
    array = Array("list", items, descriptors=[Symbol("x:y")] if described else [])
    assert same(decode(encode(array)), array)


@pytest.mark.parametrize("size", [250, 251, 252, 253, 254, 255, 256, 300])
def test_sizes_around_the_limit_of_the_narrow_encodings(size: int) -> None:
    for array in (
        Array("binary", [b"x" * size, b""]),
        Array("string", ["x" * size]),
        Array("ubyte", [7] * size),
        Array("list", [[None] * size, []]),
        Array("array", [Array("ubyte", [7] * size), Array("binary", [b"x" * size])]),
    ):
        data = encode(array)
        assert data[0] == (0xE0 if len(data) <= 257 and len(array) < 256 else 0xF0)
        assert same(decode(data), decode(encode(decode(data))))
        assert decode(data) == array


@pytest.mark.parametrize(
    "data",
    [
        "e0 02 03 43",
        "e0 02 03 41",
        "e0 02 03 45",
        "e0 06 01 70 00000001",
        "e0 06 01 b3 00000000",
        "e0 0a 01 d0 00000004 00000000",
        "f0 00000005 00000003 44",
        "e0 07 01 a3 04 61626364",
    ],
)
def test_the_constructor_of_the_elements_is_kept(data: str) -> None:
    encoded = bytes.fromhex(data)
    again = encode(decode(encoded))
    constructor = encoded[3] if encoded[0] == 0xE0 else encoded[9]
    assert again[0] == 0xE0
    assert again[3] == constructor


@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
@pytest.mark.parametrize("descriptor", [b"", b"\x00\x53\x24"])
def test_elements_without_bytes_stay_lazy(code: int, descriptor: bytes) -> None:
    size = (5 + len(descriptor)).to_bytes(4, "big")
    data = b"\xf0" + size + b"\xff\xff\xff\xff" + descriptor + bytes([code])
    tracemalloc.start()
    try:
        array = decode(data)
        assert isinstance(array, Array)
        assert len(array) == 2**32 - 1
        assert array[2**32 - 2] == array[0] == array[-1]
        assert array == decode(data)
        assert encode(array) == data
        assert array[0] in array
        assert len(repr(array)) < 200
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    with pytest.raises(IndexError):
        array[2**32 - 1]


def test_lazy_lists_are_not_shared() -> None:
    array = decode(bytes.fromhex("e0 02 03 45"))
    assert isinstance(array, Array)
    first = array[0]
    assert isinstance(first, list)
    first.append(1)
    assert list(array) == [[], [], []]


def test_repeated_is_like_the_tuple_of_its_elements() -> None:
    assert Repeated(None, 3) == Repeated(None, 3)
    assert Repeated(None, 3) != Repeated(None, 2)
    assert Repeated(1, 3) != Repeated(2, 3)
    assert Repeated(1, 0) == Repeated(2, 0)
    assert Repeated(1, 2) == [1, 1]
    assert Repeated(1, 2) == (1, 1)
    assert Repeated(1, 2) != (1, 2)
    assert Repeated(1, 2) != "11"
    assert list(Repeated(1, 2)) == [1, 1]
    for index in (2, -3):
        with pytest.raises(IndexError):
            Repeated(1, 2)[index]
    with pytest.raises(ValueError):
        Repeated(1, -1)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("e0", "no size"),
        ("e0 01 00", "no constructor"),
        ("e0 00", "no count"),
        ("e0 02 01 50", "element missing"),
        ("e0 02 02 a1", "elements missing"),
        ("e0 04 01 50 01 02", "bytes left over"),
        ("e0 03 00 50 01", "bytes left over"),
        ("e0 05 01 50 01", "size beyond the end"),
        ("e0 02 01 4f", "unknown constructor"),
        ("e0 02 01 00", "no descriptor"),
        ("e0 04 01 00 53 01", "described nothing"),
        ("e0 03 01 56 02", "neither true nor false"),
        ("e0 06 01 73 0000d800", "surrogate"),
        ("e0 04 01 a1 01 ff", "not UTF-8"),
        ("e0 04 01 a3 01 80", "not ASCII"),
        ("e0 03 01 a0 01", "content missing"),
        ("e0 05 01 c1 02 01 40", "key without a value"),
        ("f0 00000005 ffffffff 50", "count beyond the end"),
        ("f0 00000006 ffffffff 50 00", "count beyond the end"),
        ("f0 00000009 7fffffff a1 00000000", "count beyond the end"),
        ("f0 ffffffff 00000001 40", "size beyond the end"),
        ("f0 80000000 00000001 40", "size beyond the end"),
        ("f0 7fffffff 00000001 40", "size beyond the end"),
        ("f0 00000004 00000000", "no constructor"),
        ("f0 00000005 0000", "truncated"),
    ],
)
def test_arrays_that_do_not_add_up_are_refused(data: str, why: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(data))


@pytest.mark.parametrize(
    "array",
    [
        Array("ubyte", [256]),
        Array("uint", [-1]),
        Array("uint", [True]),
        Array("uint", ["1"]),
        Array("uint", [256], code=0x52),
        Array("uint", [1], code=0x43),
        Array("boolean", [1]),
        Array("boolean", [True, False], code=0x41),
        Array("boolean", Repeated(True, 5), code=0x42),
        Array("null", [1]),
        Array("float", [1e39]),
        Array("double", ["1"]),
        Array("char", ["ab"]),
        Array("char", [1]),
        Array("string", [b"a"]),
        Array("string", ["\ud800"]),
        Array("symbol", ["é"]),
        Array("symbol", ["a" * 256], code=0xA3),
        Array("binary", ["a"]),
        Array("uuid", ["a"]),
        Array("decimal32", [Decimal("12345678")]),
        Array("decimal64", [1.5]),
        Array("timestamp", [datetime(2020, 1, 1)]),
        Array("list", [{}]),
        Array("list", [[None] * 300], code=0xC0),
        Array("map", [[]]),
        Array("array", [[]]),
        Array("array", [1]),
        Array("list", [[object()]]),
        Array("null", [], descriptors=[object()]),
    ],
)
def test_elements_that_the_type_cannot_hold_are_refused(array: Array) -> None:
    with pytest.raises(EncodeError):
        encode(array)


def test_what_elements_may_look_like() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert decode(encode(Array("timestamp", [moment]))) == Array("timestamp", [1000])
    assert decode(encode(Array("float", [1, 1.5]))) == Array("float", [1.0, 1.5])
    assert decode(encode(Array("list", [(1, 2)]))) == Array("list", [[1, 2]])
    assert decode(encode(Array("boolean", Repeated(True, 2)))) == Array("boolean", [True] * 2)
    assert decode(encode(Array("uint", Repeated(5, 2)))) == Array("uint", [5, 5])


def test_an_array_is_a_sequence() -> None:
    array = Array("uint", [1, 2])
    assert issubclass(Array, Sequence)
    assert (len(array), array[1], array[-1], list(array), 2 in array) == (2, 2, 2, [1, 2], True)
    assert array == Array("uint", (1, 2))
    assert array != Array("ulong", [1, 2])
    assert array != Array("uint", [1, 2], descriptors=[1])
    assert array != [1, 2]
    assert repr(array) == "Array('uint', [1, 2])"
    assert "descriptors" in repr(Array("uint", [], descriptors=["a"]))
    with pytest.raises(TypeError):
        hash(array)
    for name, code in (("integer", None), ("uint", 0x71), ("uint", 0x00)):
        with pytest.raises(ValueError):
            Array(name, [], code=code)


def test_arrays_have_functions_of_their_own() -> None:
    w = BytesWriter()
    write_array(w, Array("uint", [1]), "field")
    assert read_array(Reader(w.getvalue()), "field") == Array("uint", [UInt(1)])
    with pytest.raises(DecodeError, match="expected array"):
        read_array(Reader(b"\x45"), "field")


def test_described_elements_are_given_bare() -> None:
    array = decode(bytes.fromhex("e0 07 02 00 53 24 50 01 02"))
    assert isinstance(array, Array)
    assert array.descriptors == (ULong(0x24),)
    assert not any(isinstance(item, Described) for item in array)
