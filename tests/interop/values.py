"""AMQP values in a form that belongs to no client, so that clients can be compared type by type.

A value is a list: its type's name, then its content as JSON can hold it exactly.

| type | content |
|---|---|
| null | nothing |
| boolean | true or false |
| the integers, timestamp | decimal digits, for JavaScript has no 64-bit integers |
| float, double, decimal32/64/128, uuid, binary | hexadecimal digits of the bytes |
| char | its code point |
| string, symbol | the text |
| list | a list of values |
| map | a list of pairs of values |
| array | the name of the element type, then a list of values of that type |
| described | the descriptor, then the value |
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

Value: TypeAlias = list[Any]
Section: TypeAlias = tuple[int, Value]
"""One section of a message: the code of its descriptor, and what it describes."""

DATA, SEQUENCE, VALUE = 0x75, 0x76, 0x77
APPLICATION_PROPERTIES = 0x74


def float32(value: float) -> Value:
    """A float."""
    return ["float", struct.pack(">f", value).hex()]


def double(value: float) -> Value:
    """A double."""
    return ["double", struct.pack(">d", value).hex()]


def integer(name: str, value: int) -> Value:
    """One of the integer types, or a timestamp in ms."""
    return [name, str(value)]


def string(text: str) -> Value:
    """A string."""
    return ["string", text]


def symbol(text: str) -> Value:
    """A symbol."""
    return ["symbol", text]


def binary(data: bytes) -> Value:
    """A binary."""
    return ["binary", data.hex()]


def mapping(*pairs: tuple[Value, Value]) -> Value:
    """A map."""
    return ["map", [list(pair) for pair in pairs]]


_UNSIGNED = {"ubyte": 8, "ushort": 16, "uint": 32, "ulong": 64}
_SIGNED = {"byte": 8, "short": 16, "int": 32, "long": 64}

PRIMITIVES: dict[str, list[Value]] = {
    "null": [["null"]],
    "boolean": [["boolean", True], ["boolean", False]],
    **{
        name: [integer(name, n) for n in (0, 1, 127, 128, 255, 2**bits - 1)]
        for name, bits in _UNSIGNED.items()
    },
    **{
        name: [
            integer(name, n) for n in (0, 1, -1, 127, -128, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)))
        ]
        for name, bits in _SIGNED.items()
    },
    "float": [float32(x) for x in (0.0, -0.0, 1.5, -3.25e30, float("inf"), float("nan"))],
    "double": [double(x) for x in (0.0, -0.0, 0.1, 1.7e308, float("-inf"), float("nan"))],
    # 1.23, -7E+3, and the largest exponent's infinity, in the binary integer encoding.
    "decimal32": [["decimal32", bits] for bits in ("3180007b", "b4000007", "78000000")],
    "decimal64": [["decimal64", bits] for bits in ("318000000000007b", "b220000000000007")],
    "decimal128": [["decimal128", bits + "7b".rjust(28, "0")] for bits in ("303c", "b046")],
    "char": [["char", code] for code in (0x41, 0xE4, 0x20AC, 0x1F980)],
    "timestamp": [integer("timestamp", ms) for ms in (0, 1_735_689_600_123, -62_135_596_800_000)],
    "uuid": [["uuid", "00" * 16], ["uuid", "0123456789abcdeffedcba9876543210"]],
    "binary": [binary(b""), binary(bytes(range(256))), binary(b"\x80" * 300)],
    "string": [string(""), string("größer 🦀 \0"), string("x" * 300)],
    "symbol": [symbol(""), symbol("amqp:some-symbol"), symbol("s" * 300)],
}
"""Every primitive type of AMQP 1.0 §1.6 but the compound ones, with its edges."""

SCALARS: list[Value] = [value for values in PRIMITIVES.values() for value in values]

ARRAYS: list[Value] = [
    ["array", "uint", [integer("uint", n) for n in (0, 7, 2**32 - 1)]],
    ["array", "long", [integer("long", n) for n in (-1, 2**62)]],
    ["array", "symbol", [symbol("a"), symbol("b" * 300)]],
    ["array", "string", [string("eins"), string("zwei")]],
    ["array", "double", [double(0.5), double(-2.0)]],
    ["array", "uuid", [["uuid", "ab" * 16]]],
]

LISTS: list[Value] = [
    ["list", []],
    ["list", SCALARS],
    ["list", [["list", [["list", [string("deep"), ["null"]]], ["list", []]]]]],
]

MAPS: list[Value] = [
    ["map", []],
    mapping(
        (string("a"), integer("uint", 1)),
        (symbol("s"), ["list", [["boolean", True], ["null"]]]),
        (integer("ulong", 2**40), mapping((string("in"), binary(b"in")))),
        (["uuid", "cd" * 16], ["array", "ubyte", [integer("ubyte", 1), integer("ubyte", 2)]]),
    ),
]

DESCRIBED: list[Value] = [
    ["described", symbol("example:point:list"), ["list", [double(1.0), double(2.0)]]],
    ["described", integer("ulong", 0x1234), string("numbered")],
]

# rhea keeps one descriptor of a value, so the described values stand inside a list, not directly
# in the section, which is described itself.
COMPOUNDS: list[Value] = [*ARRAYS, *LISTS, *MAPS, ["list", DESCRIBED]]


def application_properties() -> Value:
    """The map of an application-properties section with a value of every primitive type."""
    return mapping(
        *(
            (string(f"{name}-{number}"), value)
            for name, values in PRIMITIVES.items()
            for number, value in enumerate(values)
        )
    )


def canonical(value: Value) -> Value:
    """The value with its maps' entries in a fixed order, in which maps are equal or not."""
    kind = value[0]
    if kind == "map":
        pairs = [[canonical(key), canonical(item)] for key, item in value[1]]
        return ["map", sorted(pairs, key=repr)]
    if kind == "list":
        return ["list", [canonical(item) for item in value[1]]]
    if kind == "array":
        return ["array", value[1], [canonical(item) for item in value[2]]]
    if kind == "described":
        return ["described", canonical(value[1]), canonical(value[2])]
    return value
