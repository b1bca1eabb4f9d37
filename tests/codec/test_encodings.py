"""Every primitive encoding of AMQP 1.0 §1.6, byte by byte."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

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
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from ferrymq_codec.codes import TYPE_NAMES
from tests.codec.support import decode, encode, same

UID = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")


def spec(section: str, data: str, value: object) -> object:
    """A vector: the section that defines the encoding, its bytes in hex, the value."""
    return pytest.param(bytes.fromhex(data), value, marks=pytest.mark.spec(section), id=data[:40])


# What the encoder chooses: the shortest encoding of each value.
SHORTEST = [
    spec("1.6.1", "40", None),
    spec("1.6.2", "41", True),
    spec("1.6.2", "42", False),
    spec("1.6.3", "50 00", UByte(0)),
    spec("1.6.3", "50 ff", UByte(255)),
    spec("1.6.4", "60 0000", UShort(0)),
    spec("1.6.4", "60 ff01", UShort(0xFF01)),
    spec("1.6.5", "43", UInt(0)),
    spec("1.6.5", "52 01", UInt(1)),
    spec("1.6.5", "52 ff", UInt(255)),
    spec("1.6.5", "70 00000100", UInt(256)),
    spec("1.6.5", "70 ffffffff", UInt(2**32 - 1)),
    spec("1.6.6", "44", ULong(0)),
    spec("1.6.6", "53 ff", ULong(255)),
    spec("1.6.6", "80 0000000000000100", ULong(256)),
    spec("1.6.6", "80 ffffffffffffffff", ULong(2**64 - 1)),
    spec("1.6.6", "80 8000000000000000", ULong(2**63)),
    spec("1.6.7", "51 80", Byte(-128)),
    spec("1.6.7", "51 7f", Byte(127)),
    spec("1.6.8", "61 8000", Short(-(2**15))),
    spec("1.6.8", "61 7fff", Short(2**15 - 1)),
    spec("1.6.9", "54 80", Int(-128)),
    spec("1.6.9", "54 7f", Int(127)),
    spec("1.6.9", "71 00000080", Int(128)),
    spec("1.6.9", "71 ffffff7f", Int(-129)),
    spec("1.6.9", "71 80000000", Int(-(2**31))),
    spec("1.6.10", "55 ff", -1),
    spec("1.6.10", "81 0000000000000080", 128),
    spec("1.6.10", "81 ffffffffffffff7f", -129),
    spec("1.6.10", "81 8000000000000000", -(2**63)),
    spec("1.6.11", "72 3fc00000", Float32(1.5)),
    spec("1.6.11", "72 7f7fffff", Float32(3.4028234663852886e38)),
    spec("1.6.11", "72 ff800000", Float32(float("-inf"))),
    spec("1.6.11", "72 80000000", Float32(-0.0)),
    spec("1.6.12", "82 3ff8000000000000", 1.5),
    spec("1.6.12", "82 7ff0000000000000", float("inf")),
    spec("1.6.12", "82 8000000000000000", -0.0),
    spec("1.6.13", "74 32800001", Decimal32("1")),
    spec("1.6.14", "84 31c0000000000001", Decimal64("1")),
    spec("1.6.15", "94 3040000000000000 0000000000000001", Decimal("1")),
    spec("1.6.16", "73 00000041", Char("A")),
    spec("1.6.16", "73 0010ffff", Char("\U0010ffff")),
    # The moment that the specification gives as its example: 2011-07-26T18:21:03.521Z.
    spec("1.6.17", "83 0000013167adb8a1", Timestamp(1311704463521)),
    spec("1.6.17", "83 ffffffffffffffff", Timestamp(-1)),
    spec("1.6.18", "98 f81d4fae7dec11d0a76500a0c91e6bf6", UID),
    spec("1.6.19", "a0 00", b""),
    spec("1.6.19", "a0 02 00ff", b"\x00\xff"),
    spec("1.6.19", "a0 ff" + "61" * 255, b"a" * 255),
    spec("1.6.19", "b0 00000100" + "61" * 256, b"a" * 256),
    spec("1.6.20", "a1 00", ""),
    spec("1.6.20", "a1 06 e282ac 61 c3a9", "€aé"),
    spec("1.6.20", "b1 00000100" + "61" * 256, "a" * 256),
    spec("1.6.20", "b1 00000100" + "c3a9" * 128, "é" * 128),
    spec("1.6.21", "a3 03 612d62", Symbol("a-b")),
    spec("1.6.21", "b3 00000100" + "61" * 256, Symbol("a" * 256)),
    spec("1.6.22", "45", []),
    spec("1.6.22", "c0 04 03 40 41 42", [None, True, False]),
    spec("1.6.22", "c0 ff fe" + "40" * 254, [None] * 254),
    spec("1.6.22", "d0 00000103 000000ff" + "40" * 255, [None] * 255),
    spec("1.6.23", "c1 01 00", {}),
    spec("1.6.23", "c1 06 02 a1 01 61 55 05", {"a": 5}),
    spec("1.6.24", "e0 0a 02 70 00000001 00000002", Array("uint", [UInt(1), UInt(2)])),
    spec("1.6.24", "e0 06 02 a3 01 61 01 62", Array("symbol", [Symbol("a"), Symbol("b")])),
    spec("1.6.24", "e0 04 02 56 01 00", Array("boolean", [True, False])),
    spec("1.2", "00 53 10 45", Described(ULong(0x10), [])),
    spec("1.2", "00 a3 03 613a62 a1 01 63", Described(Symbol("a:b"), "c")),
    # The example of the specification: a URL, with a string for a descriptor.
    spec("1.2", "00 a1 03 55524c a1 02 6162", Described.reserved("URL", "ab")),
]

# Legal, but longer than need be.
LONGER = [
    spec("1.6.2", "56 01", True),
    spec("1.6.2", "56 00", False),
    spec("1.6.5", "52 00", UInt(0)),
    spec("1.6.5", "70 00000000", UInt(0)),
    spec("1.6.6", "53 00", ULong(0)),
    spec("1.6.6", "80 0000000000000005", ULong(5)),
    spec("1.6.9", "71 fffffffb", Int(-5)),
    spec("1.6.10", "81 fffffffffffffffb", -5),
    spec("1.6.19", "b0 00000001 61", b"a"),
    spec("1.6.20", "b1 00000001 61", "a"),
    spec("1.6.21", "b3 00000001 61", Symbol("a")),
    spec("1.6.22", "c0 01 00", []),
    spec("1.6.22", "c0 03 01 55 05", [5]),
    spec("1.6.22", "d0 00000004 00000000", []),
    spec("1.6.22", "d0 00000005 00000001 40", [None]),
    spec("1.6.23", "d1 00000004 00000000", {}),
    spec("1.6.23", "d1 00000009 00000002 a1 01 61 55 05", {"a": 5}),
    spec("1.6.24", "f0 0000000d 00000002 70 00000001 00000002", Array("uint", [UInt(1), UInt(2)])),
    spec("1.2", "00 80 0000000000000010 45", Described(ULong(0x10), [])),
    spec("1.2", "00 44 40", Described(ULong(0), None)),
]


@pytest.mark.parametrize(("data", "value"), SHORTEST)
def test_the_encoder_takes_the_shortest_encoding(data: bytes, value: object) -> None:
    assert encode(value) == data


@pytest.mark.parametrize(("data", "value"), SHORTEST + LONGER)
def test_every_encoding_is_decoded_to_its_exact_type(data: bytes, value: object) -> None:
    assert same(decode(data), value)


def test_the_vectors_use_every_constructor() -> None:
    used = {vector.values[0][0] for vector in SHORTEST + LONGER}  # type: ignore[attr-defined]
    assert used - {0x00} == set(TYPE_NAMES)


@pytest.mark.spec("1.2")
@pytest.mark.parametrize("code", sorted(set(range(1, 256)) - set(TYPE_NAMES)))
def test_a_constructor_of_no_type_is_refused(code: int) -> None:
    with pytest.raises(DecodeError):
        decode(bytes([code]) + bytes(64))


@pytest.mark.spec("1.6.17")
def test_the_timestamp_of_the_specification_is_its_date() -> None:
    moment = Timestamp(1311704463521).to_datetime()
    assert moment.isoformat(timespec="milliseconds") == "2011-07-26T18:21:03.521+00:00"
