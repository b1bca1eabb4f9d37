"""The Python classes of the AMQP scalars: ranges, printing, copying."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from librt.strings import BytesWriter

from ferrymq_codec import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
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
from ferrymq_codec.containers import Repeated
from ferrymq_codec.reader import Reader
from ferrymq_codec.writer import write_float
from tests.codec.support import decode, encode

RANGES = [
    (UByte, 0, 255),
    (UShort, 0, 2**16 - 1),
    (UInt, 0, 2**32 - 1),
    (ULong, 0, 2**64 - 1),
    (Byte, -128, 127),
    (Short, -(2**15), 2**15 - 1),
    (Int, -(2**31), 2**31 - 1),
    (Timestamp, -(2**63), 2**63 - 1),
]


@pytest.mark.parametrize(("kind", "low", "high"), RANGES)
def test_integers_check_their_range(kind: type[UInt], low: int, high: int) -> None:
    assert kind(low) == low
    assert kind(high) == high
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=kind.__name__):
            kind(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (UInt(5), "UInt(5)"),
        (Timestamp(-1), "Timestamp(-1)"),
        (Float32(1.5), "Float32(1.5)"),
        (Symbol("a"), "Symbol('a')"),
        (Char("a"), "Char('a')"),
        (Described(5, "x"), "Described(ULong(5), 'x')"),
    ],
)
def test_representations_say_the_type(value: object, shown: str) -> None:
    assert repr(value) == shown


@pytest.mark.parametrize(
    "value",
    [
        UByte(1),
        ULong(2**64 - 1),
        Timestamp(7),
        Float32(1.5),
        Symbol("a"),
        Char("a"),
        Decimal32("1.5"),
        Decimal64("1.5"),
        Described(5, [1]),
        Array("uint", [UInt(1), UInt(2)], descriptors=["a"], code=0x70),
        Array("null", Repeated(None, 2**32 - 1)),
        PairMap([(1, 2), (True, [3])]),
    ],
)
def test_copies_and_pickles_keep_the_type(value: object) -> None:
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(again) is type(value)
        assert again == value
        assert encode(again) == encode(value)


def test_they_print_as_what_they_resemble() -> None:
    assert f"{UInt(5)} {Float32(1.5)} {Symbol('a')} {Char('b')}" == "5 1.5 a b"
    assert type(str(Symbol("a"))) is str


def test_float32_is_rounded_when_it_is_made() -> None:
    assert Float32(0.1) == 0.10000000149011612
    assert Float32(1e-60) == 0.0
    with pytest.raises(ValueError, match="Float32"):
        Float32(1e39)
    assert Float32(float("inf")) == float("inf")


@pytest.mark.parametrize("value", ["", "ab", "\ud800", "\udfff"])
def test_a_char_is_one_unicode_character(value: str) -> None:
    with pytest.raises(ValueError):
        Char(value)


def test_a_symbol_is_ascii() -> None:
    assert Symbol("a\x7f") == "a\x7f"
    with pytest.raises(ValueError):
        Symbol("é")


def test_decimal_classes_are_decimals() -> None:
    assert Decimal32("1.50") == Decimal("1.5")
    assert isinstance(Decimal64(3), Decimal)


def test_timestamps_and_datetimes() -> None:
    moment = datetime(2011, 7, 26, 18, 21, 3, 521000, tzinfo=UTC)
    assert Timestamp.from_datetime(moment).to_datetime() == moment
    assert Timestamp.from_datetime(moment.replace(microsecond=521999)) == 1311704463521
    assert Timestamp(-1).to_datetime() == datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
    with pytest.raises(ValueError, match="time zone"):
        Timestamp.from_datetime(datetime(2011, 7, 26))
    with pytest.raises(OverflowError):
        Timestamp(2**62).to_datetime()


def test_described_values_compare_by_content() -> None:
    assert Described(5, [1]) == Described(ULong(5), [1])
    assert Described(5, 1) != Described(6, 1)
    assert Described(5, 1) != 5
    assert hash(Described("a", 1)) == hash(Described(Symbol("a"), 1))
    match Described(5, "x"):
        case Described(descriptor, value):
            assert (descriptor, value) == (5, "x")
    for descriptor in (-1, 2**64, "é"):
        with pytest.raises(ValueError):
            Described(descriptor, None)


@pytest.mark.spec("1.6.11", "1.6.12")
@pytest.mark.parametrize("bits", ["7fa00001", "ffa00001", "7f800001", "7fc00000", "ffc12345"])
def test_a_nan_keeps_its_bits(bits: str) -> None:
    data = b"\x72" + bytes.fromhex(bits)
    value = decode(data)
    assert isinstance(value, Float32) and value != value
    assert encode(value) == data
    assert encode(Float32(value)) == data
    r = Reader(data)
    w = BytesWriter()
    write_float(w, r.read_float("field"), "field")
    assert w.getvalue() == data
    array = b"\xe0\x06\x01" + data
    assert encode(decode(array)) == array
    double = b"\x82\x7f\xf4\x00\x00\x00\x00\x00\x01"
    assert encode(decode(double)) == double
