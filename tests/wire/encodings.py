"""Every encoding of every primitive type (AMQP 1.0 §1.6), with the shortest for the same value."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tests.raw.values import array, described


class Forms(NamedTuple):
    """One value in all its encodings; the shortest comes first, and is what we write."""

    shortest: bytes
    others: tuple[bytes, ...] = ()


def _forms(*encoded: str) -> Forms:
    first, *others = (bytes.fromhex(one) for one in encoded)
    return Forms(first, tuple(others))


ENCODINGS: Final = {
    "null": [_forms("40")],
    "boolean": [_forms("41", "5601"), _forms("42", "5600")],
    "ubyte": [_forms("5000"), _forms("50ff")],
    "ushort": [_forms("600000"), _forms("60ff01")],
    "uint": [
        _forms("43", "5200", "7000000000"),
        _forms("52ff", "70000000ff"),
        _forms("70ffffff01"),
    ],
    "ulong": [
        _forms("44", "5300", "800000000000000000"),
        _forms("53ff", "8000000000000000ff"),
        _forms("80ffffffffffffff01"),
    ],
    "byte": [_forms("5180"), _forms("517f")],
    "short": [_forms("618000"), _forms("617f01")],
    "int": [_forms("5480", "71ffffff80"), _forms("547f", "710000007f"), _forms("7180000001")],
    "long": [
        _forms("5580", "81ffffffffffffff80"),
        _forms("557f", "81000000000000007f"),
        _forms("818000000000000001"),
    ],
    "float": [_forms("723fc00001"), _forms("7280000000"), _forms("72ff800000")],
    "double": [_forms("823ff8000000000001"), _forms("828000000000000000")],
    "decimal32": [_forms("7432800007"), _forms("74b2800007")],
    "decimal64": [_forms("8431c0000000000007")],
    "decimal128": [_forms("943040" + "00" * 13 + "07")],
    "char": [_forms("7300000041"), _forms("730001f600")],
    "timestamp": [_forms("830000018bcfe56800"), _forms("83ffffffffffffff01")],
    "uuid": [_forms("98000102030405060708090a0b0c0d0e0f")],
    "binary": [_forms("a00100", "b00000000100"), Forms(b"\xb0\x00\x00\x01\x2c" + bytes(300))],
    "string": [
        _forms("a102c3a9", "b100000002c3a9"),
        Forms(b"\xb1\x00\x00\x01\x2c" + b"x" * 300),
    ],
    "symbol": [
        _forms("a30178", "b30000000178"),
        Forms(b"\xb3\x00\x00\x01\x2c" + b"x" * 300),
    ],
    "list": [
        _forms("45", "c00100", "d00000000400000000"),
        _forms("c0030240 41", "d00000000600000002 4041"),
    ],
    # In their order, which is not that of an alphabet.
    "map": [
        _forms("c10904 a1016241 a1016142", "d10000000c00000004 a1016241 a1016142"),
    ],
    "array": [
        _forms("e00402 50 0102", "f00000000700000002 50 0102"),
        _forms("e00602 a1 01610162", "f00000000900000002 a1 01610162"),
    ],
    # What no type is known of keeps its descriptor, a number or a symbol.
    "described": [
        _forms("00 a30178 41"),
        Forms(described(7 << 40, b"\x45"), (described(7 << 40, b"\xc0\x01\x00"),)),
    ],
}

# Content that no value of the type has, and sizes that are not those of what follows.
MALFORMED: Final = {
    "boolean": bytes.fromhex("5602"),
    "char": bytes.fromhex("730000d800"),
    "string": bytes.fromhex("a101ff"),
    "symbol": bytes.fromhex("a301e9"),
    "list-shorter-than-its-size": bytes.fromhex("c00402 414141"),
    "map-of-an-odd-number": bytes.fromhex("c10403 414240"),
    "map-with-a-key-twice": bytes.fromhex("c10904 a1016141 a1016142"),
    "array": array(b"\x50", 3, b"\x01\x02"),
    "binary-longer-than-what-there-is": bytes.fromhex("b0000000ff00"),
    "format-code": bytes.fromhex("3f"),
}


def in_a_list(value: bytes) -> bytes:
    """Encode a list of this one value, as short as can be."""
    if len(value) < 255:
        return b"\xc0" + bytes((len(value) + 1, 1)) + value
    return b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
