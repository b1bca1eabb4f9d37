"""Values that are malformed, and values that are well-formed and would cost a naive reader dearly.

`MALFORMED` has what no decoder may take, `HEAVY` what is right by the letter of AMQP 1.0 §1.2 and
§1.6 and has to be taken at no more than the price of its bytes. All of them fit into a frame of
64 KiB; `deep` makes longer ones for messages of many frames.
"""

from __future__ import annotations

import struct
from typing import Final

from tests.raw.values import (
    EMPTY_LIST,
    MAX_COUNT,
    NULL,
    array,
    binary,
    described,
    mapping,
    sequence,
    string,
    symbol,
    ulong,
)

# Of a hash of numbers in Python: two numbers that differ by a multiple have the same one.
_MODULUS: Final = 2**61 - 1

FILL: Final = 60_000


def deep_lists(depth: int) -> bytes:
    """Lists in lists."""
    value = EMPTY_LIST
    # From the inside to the outside would copy everything each time: the headers are made first.
    headers = [
        b"\xd0" + struct.pack(">II", 4 + len(value) + 9 * level, 1) for level in range(depth)
    ]
    return b"".join(reversed(headers)) + value


def deep_maps(depth: int) -> bytes:
    """Maps as values of maps; the key of each is null."""
    headers = [
        b"\xd1" + struct.pack(">II", 4 + 1 + 1 + 10 * level, 2) + NULL for level in range(depth)
    ]
    return b"".join(reversed(headers)) + NULL


def deep_keys(depth: int) -> bytes:
    """Maps as keys of maps."""
    headers = [b"\xd1" + struct.pack(">II", 4 + 2 + 10 * level, 2) for level in range(depth)]
    return b"".join(reversed(headers)) + NULL + NULL * depth


def deep_arrays(depth: int) -> bytes:
    """Arrays of one array each."""
    value = b"\xf0" + struct.pack(">II", 5, 1) + NULL
    for _ in range(depth):
        value = array(b"\xf0", 1, value[1:])
    return value


def deep_descriptors(depth: int) -> bytes:
    """Descriptors of descriptors: a byte for each level on the way in."""
    return b"\x00" * depth + NULL * (depth + 1)


def deep_described(depth: int) -> bytes:
    """Described values that are described."""
    return (b"\x00" + NULL) * depth + NULL


def deep_array_descriptors(depth: int) -> bytes:
    """One array whose elements are described so many times over."""
    return array((b"\x00" + NULL) * depth + NULL, 1)


DEEP: Final = {
    "lists": deep_lists,
    "maps": deep_maps,
    "keys": deep_keys,
    "arrays": deep_arrays,
    "descriptors": deep_descriptors,
    "described": deep_described,
    "array-descriptors": deep_array_descriptors,
}
# What fits a frame beside what is around it.
DEEPEST: Final = {
    "lists": 6_000,
    "maps": 5_000,
    "keys": 5_000,
    "arrays": 1_000,
    "descriptors": 29_000,
    "described": 29_000,
    "array-descriptors": 29_000,
}


def uuid(number: int) -> bytes:
    """A uuid of this number."""
    return b"\x98" + number.to_bytes(16, "big")


def decimal128(coefficient: int) -> bytes:
    """A decimal of this integral value, in the binary encoding of its coefficient."""
    return b"\x94" + ((0x3040 << 112) | coefficient).to_bytes(16, "big")


def colliding_uuids(count: int = FILL // 18) -> bytes:
    """A map whose keys all have one hash."""
    return mapping(*(item for n in range(count) for item in (uuid(n * _MODULUS + 7), NULL)))


def colliding_decimals(count: int = FILL // 18) -> bytes:
    """The same with decimals."""
    return mapping(*(item for n in range(count) for item in (decimal128(n * _MODULUS + 7), NULL)))


MALFORMED: Final = {
    **{f"{name}-33": make(33) for name, make in DEEP.items()},
    **{f"{name}-deepest": make(DEEPEST[name]) for name, make in DEEP.items()},
    "list-count-above-the-bytes": b"\xd0" + struct.pack(">II", 5, 2) + NULL,
    "list-count-2^32-1": b"\xd0" + struct.pack(">II", 5, MAX_COUNT) + NULL,
    "small-list-count-255": b"\xc0\x02\xff\x40",
    "map-count-2^32-2": b"\xd1" + struct.pack(">II", 6, MAX_COUNT - 1) + NULL + NULL,
    "array-count-2^32-1-of-bytes": array(b"\x50", MAX_COUNT, b"\x01"),
    "array-count-of-strings": array(b"\xa1", 3, b"\x00\x00"),
    "list-longer-than-its-elements": b"\xd0" + struct.pack(">II", 6, 1) + NULL + NULL,
    "list-of-size-0": b"\xd0" + struct.pack(">II", 0, 0),
    "list-of-2^31-bytes": b"\xd0" + struct.pack(">II", 1 << 31, 1) + NULL,
    "list-of-2^31-1-bytes": b"\xd0" + struct.pack(">II", (1 << 31) - 1, 1) + NULL,
    "list-of-2^32-1-bytes": b"\xd0" + struct.pack(">II", MAX_COUNT, 1) + NULL,
    "map-of-2^32-1-bytes": b"\xd1" + struct.pack(">II", MAX_COUNT, 2) + NULL,
    "array-of-2^32-1-bytes": b"\xf0" + struct.pack(">II", MAX_COUNT, 1) + NULL,
    "array-of-2^31-bytes": b"\xf0" + struct.pack(">II", 1 << 31, 1) + NULL,
    "binary-of-2^31-bytes": b"\xb0" + struct.pack(">I", 1 << 31),
    "binary-of-2^32-1-bytes": b"\xb0" + struct.pack(">I", MAX_COUNT),
    "string-of-2^31-1-bytes": b"\xb1" + struct.pack(">I", (1 << 31) - 1),
    "symbol-of-2^32-1-bytes": b"\xb3" + struct.pack(">I", MAX_COUNT),
    "map-of-3": mapping(string("a"), NULL, string("b")),
    "map-of-1": mapping(string("a")),
    "duplicate-string-keys": mapping(string("a"), NULL, string("a"), NULL),
    "duplicate-null-keys": mapping(NULL, NULL, NULL, NULL),
    "duplicate-list-keys": mapping(EMPTY_LIST, NULL, EMPTY_LIST, NULL),
    "colliding-uuid-keys": colliding_uuids(),
    "colliding-decimal-keys": colliding_decimals(),
    "string-not-utf-8": string(b"\xff\xfe"),
    "string-of-a-surrogate": string(b"\xed\xa0\x80"),
    "string-overlong": string(b"\xc0\xaf"),
    "symbol-not-ascii": symbol("é".encode()),
    "boolean-2": b"\x56\x02",
    "array-of-booleans-2": array(b"\x56", 1, b"\x02"),
    "char-of-a-surrogate": b"\x73\x00\x00\xd8\x00",
    "char-above-unicode": b"\x73\x00\x11\x00\x00",
    "no-constructor-3f": b"\x3f",
    "no-constructor-f1": b"\xf1\x00\x00\x00\x00",
    "array-of-no-constructor": array(b"\x3f", 1),
    "a-descriptor-alone": b"\x00\x53\x24",
}

ZERO_WIDTH: Final = {f"{code:02x}": bytes((code,)) for code in range(0x40, 0x46)}

HEAVY: Final = {
    **{f"2^32-1-times-{name}": array(code, MAX_COUNT) for name, code in ZERO_WIDTH.items()},
    **{
        f"many-times-2^32-1-times-{name}": sequence(*[array(code, MAX_COUNT)] * (FILL // 10))
        for name, code in ZERO_WIDTH.items()
    },
    **{
        f"2^32-1-times-described-{name}": array(b"\x00" + ulong(7) + code, MAX_COUNT)
        for name, code in ZERO_WIDTH.items()
    },
    "many-arrays-of-described": sequence(*[array(b"\x00\x53\x07\x45", MAX_COUNT)] * 4000),
    "many-empty-lists": sequence(*[EMPTY_LIST] * FILL),
    "many-nulls": sequence(*[NULL] * FILL),
    "many-descriptors": sequence(*[b"\x00\x40\x40"] * (FILL // 3)),
    "many-keys": mapping(*(item for n in range(FILL // 10) for item in (ulong(n << 40), NULL))),
    "null-key": mapping(NULL, NULL),
    "list-key": mapping(EMPTY_LIST, NULL),
    "depth-20": deep_lists(20),
    "long-string": string("x" * FILL),
    "long-binary": binary(bytes(FILL)),
    "descriptor-with-a-suffix": described(symbol("amqp:data:binary@"), NULL),
}
