"""Decimals in the Binary Integer Decimal encoding of IEEE 754-2008 §3.5.2 (AMQP 1.0 §1.6.13-15).

A number is `coefficient × 10**exponent`. The encoder never rounds. It only moves zeros between
coefficient and exponent if one of them would not fit otherwise.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, final

from librt.strings import BytesWriter

from ferrymq_codec import codes
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.reader import Reader


@final
class DecimalFormat:
    """The parameters of one decimal interchange format, all in bits, digits or powers of ten."""

    __slots__ = (
        "bias",
        "bits",
        "code",
        "exponent_bits",
        "limit",
        "max_exponent",
        "name",
        "payload_bits",
        "precision",
        "significand_bits",
    )

    def __init__(self, name: str, code: int, bits: int, exponent_bits: int, precision: int) -> None:
        self.name: str = name
        self.code: int = code
        self.bits: int = bits
        self.exponent_bits: int = exponent_bits
        self.precision: int = precision
        self.limit: int = 10**precision
        # Significand bits of the first form; the second form, for bigger coefficients, has two
        # fewer and implies a leading 0b100.
        self.significand_bits: int = bits - 1 - exponent_bits
        self.payload_bits: int = bits - exponent_bits - 4
        # A biased exponent has 3 × 2**(exponent_bits - 2) values: 0b11 on top marks the 2nd form.
        values = 3 << (exponent_bits - 2)
        self.bias: int = values // 2 + precision - 2
        self.max_exponent: int = values - 1 - self.bias


_32: Final = DecimalFormat("decimal32", codes.DECIMAL32, 32, 8, 7)
_64: Final = DecimalFormat("decimal64", codes.DECIMAL64, 64, 10, 16)
_128: Final = DecimalFormat("decimal128", codes.DECIMAL128, 128, 14, 34)


def read_decimal32(r: Reader, field: str) -> Decimal:
    """Read a decimal32 (AMQP 1.0 §1.6.13)."""
    return _read(r, _32, field)


def read_decimal64(r: Reader, field: str) -> Decimal:
    """Read a decimal64 (AMQP 1.0 §1.6.14)."""
    return _read(r, _64, field)


def read_decimal128(r: Reader, field: str) -> Decimal:
    """Read a decimal128 (AMQP 1.0 §1.6.15)."""
    return _read(r, _128, field)


def write_decimal32(w: BytesWriter, value: Decimal, field: str) -> None:
    """Append a decimal32; raises EncodeError if `value` is not exactly a decimal32."""
    w.append(codes.DECIMAL32)
    w.write(_pack(value, _32, field))


def write_decimal64(w: BytesWriter, value: Decimal, field: str) -> None:
    """Append a decimal64; raises EncodeError if `value` is not exactly a decimal64."""
    w.append(codes.DECIMAL64)
    w.write(_pack(value, _64, field))


def write_decimal128(w: BytesWriter, value: Decimal, field: str) -> None:
    """Append a decimal128; raises EncodeError if `value` is not exactly a decimal128."""
    w.append(codes.DECIMAL128)
    w.write(_pack(value, _128, field))


def unpack_decimal(data: bytes) -> Decimal:
    """Decode 4, 8 or 16 bytes as decimal32, decimal64 or decimal128."""
    size = len(data)
    form = _32 if size == 4 else _64 if size == 8 else _128
    return _unpack(int.from_bytes(data, "big"), form)


def pack_decimal(value: Decimal, size: int, field: str) -> bytes:
    """Encode in 4, 8 or 16 bytes; raises EncodeError if `value` does not fit exactly."""
    return _pack(value, _32 if size == 4 else _64 if size == 8 else _128, field)


def _read(r: Reader, form: DecimalFormat, field: str) -> Decimal:
    size = form.bits // 8
    pos = r.pos
    if pos + 1 + size > r.end or r.data[pos] != form.code:
        r.unexpected(field, form.name)
    r.pos = pos + 1 + size
    return _unpack(int.from_bytes(r.data[pos + 1 : pos + 1 + size], "big"), form)


def _unpack(number: int, form: DecimalFormat) -> Decimal:
    sign = "-" if number >> (form.bits - 1) else ""
    top = (number >> (form.bits - 6)) & 0b11111
    if top == 0b11110:
        return Decimal(sign + "Infinity")
    if top == 0b11111:
        signalling = (number >> (form.bits - 7)) & 1
        payload = number & ((1 << form.payload_bits) - 1)
        if payload >= form.limit // 10:
            payload = 0
        return Decimal(f"{sign}{'s' if signalling else ''}NaN{payload or ''}")
    width = form.significand_bits
    if top >> 3 == 0b11:
        width -= 2
        coefficient = (0b100 << width) | (number & ((1 << width) - 1))
    else:
        coefficient = number & ((1 << width) - 1)
    exponent = (number >> width) & ((1 << form.exponent_bits) - 1)
    if coefficient >= form.limit:
        # Not canonical: the standard gives such a coefficient the value zero.
        coefficient = 0
    return Decimal(f"{sign}{coefficient}E{exponent - form.bias}")


def _pack(value: Decimal, form: DecimalFormat, field: str) -> bytes:
    sign, digits, special = value.as_tuple()
    number = sign << (form.bits - 1)
    if isinstance(special, str):
        if special == "F":
            number |= 0b11110 << (form.bits - 6)
        else:
            # The payload of a NaN has one digit less than a number.
            if len(digits) >= form.precision:
                raise EncodeError(field, f"the payload of {value} does not fit {form.name}")
            number |= 0b11111 << (form.bits - 6)
            if special == "N":
                number |= 1 << (form.bits - 7)
            number |= _coefficient(digits)
        return number.to_bytes(form.bits // 8, "big")
    exponent = special
    lowest = -form.bias
    used = len(digits)
    while used > 1 and digits[used - 1] == 0 and (used > form.precision or exponent < lowest):
        used -= 1
        exponent += 1
    if used > form.precision:
        raise EncodeError(field, f"{used} digits do not fit {form.name}")
    coefficient = _coefficient(digits[:used])
    if coefficient == 0:
        exponent = min(max(exponent, lowest), form.max_exponent)
    if exponent < lowest:
        raise EncodeError(field, f"{value} is out of range for {form.name}")
    if exponent > form.max_exponent:
        missing = exponent - form.max_exponent
        if missing > form.precision or coefficient * 10**missing >= form.limit:
            raise EncodeError(field, f"{value} is out of range for {form.name}")
        coefficient *= 10**missing
        exponent = form.max_exponent
    biased = exponent + form.bias
    width = form.significand_bits
    if coefficient >> width:
        # The leading 0b100 of the coefficient is implied by the 0b11 on top of the exponent.
        number |= 0b11 << (form.bits - 3)
        number |= biased << (width - 2)
        number |= coefficient & ((1 << (width - 2)) - 1)
    else:
        number |= biased << width
        number |= coefficient
    return number.to_bytes(form.bits // 8, "big")


def _coefficient(digits: tuple[int, ...]) -> int:
    number = 0
    for digit in digits:
        number = number * 10 + digit
    return number
