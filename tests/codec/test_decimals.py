"""Decimals in the binary integer encoding (AMQP 1.0 §1.6.13 to §1.6.15, IEEE 754-2008 §3.5.2)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec import Decimal32, Decimal64, DecodeError, EncodeError
from ferrymq_codec.decimals import (
    read_decimal32,
    read_decimal64,
    read_decimal128,
    unpack_decimal,
    write_decimal32,
    write_decimal64,
    write_decimal128,
)
from ferrymq_codec.reader import Reader
from tests.codec.support import decimals, decode, encode

WRITERS: dict[int, Callable[[BytesWriter, Decimal, str], None]] = {
    32: write_decimal32,
    64: write_decimal64,
    128: write_decimal128,
}
READERS: dict[int, Callable[[Reader, str], Decimal]] = {
    32: read_decimal32,
    64: read_decimal64,
    128: read_decimal128,
}
CODES = {32: 0x74, 64: 0x84, 128: 0x94}


def pack(bits: int, value: str) -> str:
    w = BytesWriter()
    WRITERS[bits](w, Decimal(value), "field")
    data = w.getvalue()
    assert data[0] == CODES[bits]
    assert len(data) == 1 + bits // 8
    return data[1:].hex()


def unpack(bits: int, data: str) -> Decimal:
    r = Reader(bytes([CODES[bits]]) + bytes.fromhex(data))
    value = READERS[bits](r, "field")
    assert r.remaining() == 0
    return value


# Worked out by hand from the bit layout of the standard.
VECTORS = [
    (32, "0", "32800000"),
    (32, "-0", "b2800000"),
    (32, "1", "32800001"),
    (32, "-7.50", "b18002ee"),
    (32, "1E-101", "00000001"),
    (32, "8388607", "32ffffff"),
    (32, "8388608", "6ca00000"),
    (32, "9999999", "6cb8967f"),
    (32, "9.999999E+96", "77f8967f"),
    (32, "Infinity", "78000000"),
    (32, "-Infinity", "f8000000"),
    (32, "NaN", "7c000000"),
    (32, "sNaN", "7e000000"),
    (32, "NaN999999", "7c0f423f"),
    (64, "0", "31c0000000000000"),
    (64, "1", "31c0000000000001"),
    (64, "-7.50", "b1800000000002ee"),
    (64, "9007199254740991", "31dfffffffffffff"),
    (64, "9007199254740992", "6c70000000000000"),
    (64, "9.999999999999999E+384", "77fb86f26fc0ffff"),
    (64, "1E-398", "0000000000000001"),
    (64, "-Infinity", "f800000000000000"),
    (64, "NaN", "7c00000000000000"),
    (128, "0", "30400000000000000000000000000000"),
    (128, "1", "30400000000000000000000000000001"),
    (128, "-7.50", "b03c00000000000000000000000002ee"),
    (128, "9" * 34, "3041ed09bead87c0378d8e63ffffffff"),
    (128, "9." + "9" * 33 + "E+6144", "5fffed09bead87c0378d8e63ffffffff"),
    (128, "1E-6176", "00000000000000000000000000000001"),
    (128, "Infinity", "78000000000000000000000000000000"),
    (128, "sNaN", "7e000000000000000000000000000000"),
]


@pytest.mark.spec("1.6.15")
@pytest.mark.parametrize(("bits", "value", "data"), VECTORS)
def test_vectors(bits: int, value: str, data: str) -> None:
    assert pack(bits, value) == data
    assert unpack(bits, data).as_tuple() == Decimal(value).as_tuple()


def _round_trip(bits: int, precision: int, low: int, high: int) -> None:
    @given(decimals(precision, low, high))
    def check(value: Decimal) -> None:
        w = BytesWriter()
        WRITERS[bits](w, value, "field")
        again = READERS[bits](Reader(w.getvalue()), "field")
        assert again.as_tuple() == value.as_tuple()
        assert type(again) is Decimal

    check()


@pytest.mark.parametrize(
    ("bits", "precision", "low", "high"),
    [(32, 7, -101, 90), (64, 16, -398, 369), (128, 34, -6176, 6111)],
)
def test_every_number_of_the_format_round_trips(
    bits: int, precision: int, low: int, high: int
) -> None:
    _round_trip(bits, precision, low, high)


@given(st.integers(0, 2**32 - 1))
def test_every_pattern_of_32_bits_has_a_value(number: int) -> None:
    value = unpack_decimal(number.to_bytes(4, "big"))
    w = BytesWriter()
    write_decimal32(w, value, "field")
    assert unpack_decimal(w.getvalue()[1:]).as_tuple() == value.as_tuple()


@pytest.mark.parametrize(
    ("bits", "data", "value"),
    [
        # Coefficients above the precision mean zero.
        (32, "6cb89680", "0"),
        (32, "ecbfffff", "-0"),
        (64, "6c7fffffffffffff", "0"),
        (128, "3041ed09bead87c0378d8e6400000000", "0"),
        (128, "60000000000000000000000000000001", None),
        # So do payloads of a NaN.
        (32, "7c0fffff", "NaN"),
        # Bits that the format does not use are ignored.
        (32, "78000001", "Infinity"),
        (32, "7df00001", "NaN1"),
    ],
)
def test_patterns_that_are_not_canonical(bits: int, data: str, value: str | None) -> None:
    result = unpack(bits, data)
    if value is None:
        assert result.is_zero()
    elif result.is_finite():
        assert result.is_zero()
        assert result.is_signed() == value.startswith("-")
    else:
        assert result.as_tuple() == Decimal(value).as_tuple()


@pytest.mark.parametrize(
    ("bits", "value", "written"),
    [
        # Zeros move between coefficient and exponent where that saves the exact value.
        (32, "1E+96", "1000000E+90"),
        (32, "12345670000E0", "1234567E+4"),
        (32, "1000E-103", "10E-101"),
        (32, "0E+500", "0E+90"),
        (32, "0E-500", "0E-101"),
        (64, "1E+384", "1000000000000000E+369"),
    ],
)
def test_zeros_move_where_they_must(bits: int, value: str, written: str) -> None:
    assert pack(bits, value) == pack(bits, written)
    assert unpack(bits, pack(bits, value)).as_tuple() == Decimal(written).as_tuple()


@pytest.mark.parametrize(
    ("bits", "value"),
    [
        (32, "12345678"),
        (32, "1E+97"),
        (32, "12E+96"),
        (32, "1E-102"),
        (32, "15E-102"),
        (32, "NaN1000000"),
        (64, "1" * 17),
        (64, "1E+385"),
        (128, "1" * 35),
        (128, "1E+6145"),
        (128, "1E+999999"),
        (128, "1E-999999"),
        (128, "1" * 5000),
    ],
)
def test_a_decimal_is_never_rounded(bits: int, value: str) -> None:
    with pytest.raises(EncodeError):
        pack(bits, value)


def test_the_decimal_context_has_no_influence() -> None:
    with localcontext(prec=2, Emax=3, Emin=-3):
        assert unpack(128, pack(128, "1." + "3" * 33)) == Decimal("1." + "3" * 33)


def test_the_class_decides_the_format() -> None:
    assert encode(Decimal32("1"))[0] == 0x74
    assert encode(Decimal64("1"))[0] == 0x84
    assert encode(Decimal("1"))[0] == 0x94
    assert type(decode(encode(Decimal32("1")))) is Decimal32
    with pytest.raises(EncodeError):
        encode(Decimal32("12345678"))


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_truncation_and_other_types(bits: int) -> None:
    data = bytes([CODES[bits]]) + bytes(bits // 8)
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            READERS[bits](Reader(data[:size]), "field")
    with pytest.raises(DecodeError):
        READERS[bits](Reader(b"\x40" * 20), "field")
