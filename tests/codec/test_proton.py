"""The same values through Proton's codec: equal bytes where Proton encodes shortest, too.

Proton gives lists, maps and arrays four-byte sizes always, so those are compared byte by byte
where they are too big for one-byte sizes, and by value otherwise.
"""

from __future__ import annotations

import math
import uuid
from decimal import Decimal
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_codec import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
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
from ferrymq_codec.decimals import pack_decimal, unpack_decimal
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import read_value
from tests.codec.support import ITEMS, decode, encode, same, symbols, texts

pytestmark = pytest.mark.interop

NAMES = {
    UByte: "ubyte",
    UShort: "ushort",
    UInt: "uint",
    ULong: "ulong",
    Byte: "byte",
    Short: "short",
    Int: "int",
    int: "long",
    Float32: "float",
    float: "double",
    Decimal32: "decimal32",
    Decimal64: "decimal64",
    Decimal: "decimal128",
    Char: "char",
    Timestamp: "timestamp",
    uuid.UUID: "uuid",
    bytes: "binary",
    str: "string",
    Symbol: "symbol",
    bool: "bool",
}
CODES = {name: getattr(proton.Data, name.upper()) for name in NAMES.values()}
CODES["boolean"] = CODES["bool"]


def put(data: proton.Data, value: Any) -> None:
    """Append one of our values to Proton's tree."""
    if value is None:
        data.put_null()
    elif isinstance(value, list):
        data.put_list()
        put_all(data, value)
    elif isinstance(value, dict):
        data.put_map()
        put_all(data, [part for pair in value.items() for part in pair])
    elif isinstance(value, Described):
        data.put_described()
        put_all(data, [value.descriptor, value.value])
    elif isinstance(value, Array):
        codes = {**CODES, "list": data.LIST, "map": data.MAP, "null": data.NULL}
        data.put_array(bool(value.descriptors), codes[value.element_type])
        put_all(data, [*value.descriptors, *value])
    elif isinstance(value, Decimal):
        size = {Decimal32: 4, Decimal64: 8}.get(type(value), 16)
        packed = pack_decimal(value, size, "value")
        raw = packed if size == 16 else int.from_bytes(packed, "big")
        getattr(data, "put_" + NAMES[type(value)])(raw)
    else:
        plain = value if isinstance(value, (uuid.UUID, bytes)) else _plain(value)
        getattr(data, "put_" + NAMES[type(value)])(plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else str(value)


def put_all(data: proton.Data, items: list[Any]) -> None:
    data.enter()
    for item in items:
        put(data, item)
    data.exit()


def get(data: proton.Data) -> Any:
    """Take our value out of Proton's tree, at its current node."""
    kind = data.type()
    if kind == data.NULL:
        return None
    if kind in (data.LIST, data.MAP, data.DESCRIBED):
        data.enter()
        items = []
        while data.next() is not None:
            items.append(get(data))
        data.exit()
        if kind == data.LIST:
            return items
        if kind == data.MAP:
            return dict(zip(items[::2], items[1::2], strict=True))
        return Described(items[0], items[1])
    if kind == data.ARRAY:
        count, described, element = data.get_array()
        data.enter()
        items = []
        while data.next() is not None:
            items.append(get(data))
        data.exit()
        names = {code: name for name, code in CODES.items()}
        names |= {data.LIST: "list", data.MAP: "map", data.NULL: "null", data.ARRAY: "array"}
        descriptors = [items.pop(0)] if described else []
        assert len(items) == count
        return Array(names[element], items, descriptors=descriptors)
    for cls, name in NAMES.items():
        if kind == CODES[name]:
            raw = getattr(data, f"get_{name}")()
            if issubclass(cls, Decimal):
                size = {Decimal32: 4, Decimal64: 8}.get(cls, 16)
                packed = bytes(raw) if size == 16 else raw.to_bytes(size, "big")
                return cls(unpack_decimal(packed))
            make: Any = cls
            return raw if type(raw) is cls else make(raw)
    raise AssertionError(data.type_name(kind))


def by_proton(value: Any) -> bytes:
    data = proton.Data()
    put(data, value)
    return bytes(data.encode())


def from_proton(encoded: bytes) -> Any:
    data = proton.Data()
    assert data.decode(encoded) == len(encoded)
    data.rewind()
    assert data.next() is not None
    return get(data)


def alike(a: Any, b: Any) -> bool:
    """Exact equality, but the elements of arrays may be plain."""
    return same(a, b) or (isinstance(a, Array) and bool(a == b))


SCALARS: list[Any] = [
    None,
    True,
    False,
    *[UByte(v) for v in (0, 1, 255)],
    *[UShort(v) for v in (0, 1, 65535)],
    *[UInt(v) for v in (0, 1, 255, 256, 2**31, 2**32 - 1)],
    *[ULong(v) for v in (0, 1, 255, 256, 2**63, 2**64 - 1)],
    *[Byte(v) for v in (-128, -1, 0, 127)],
    *[Short(v) for v in (-32768, -1, 0, 32767)],
    *[Int(v) for v in (-(2**31), -129, -128, -1, 0, 127, 128, 2**31 - 1)],
    *[-(2**63), -129, -128, -1, 0, 127, 128, 2**63 - 1],
    *[Float32(v) for v in (0.0, -0.0, 1.5, -1e30, math.inf)],
    *[0.0, -0.0, 1.5, -1e300, math.inf, -math.inf],
    *[Decimal32(v) for v in ("0", "1.5", "-9999999E+90", "NaN")],
    *[Decimal64(v) for v in ("0", "1.5", "Infinity")],
    *[Decimal(v) for v in ("0", "1.5", "-1E-6176")],
    Char("a"),
    Char("\U0001f600"),
    Timestamp(0),
    Timestamp(-1),
    Timestamp(2**63 - 1),
    uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    *[b"x" * size for size in (0, 1, 255, 256, 70_000)],
    *["x" * size for size in (0, 1, 255, 256, 70_000)],
    "é€\U0001f600",
    *[Symbol("x" * size) for size in (1, 255, 256)],
    [],
    Described(ULong(0x24), []),
    Described(Symbol("a:b"), "text"),
    Described(ULong(5), Described(ULong(6), UInt(7))),
]

BIG: list[Any] = [
    [*SCALARS[:-4], "x" * 256],
    [None] * 256,
    [b"x" * 256, [b"y" * 300], []],
    {"a": "x" * 300, "b": {"c": b"y" * 300}, Symbol("d"): UInt(5)},
    Described(ULong(0x78), {Symbol("k"): "x" * 300}),
    Array("uint", [1000] * 100),
    Array("long", [-1000] * 100),
    Array("uuid", [uuid.UUID(int=i) for i in range(20)]),
    Array("double", [1.5] * 50),
    Array("boolean", [True, False] * 200),
    Array("string", ["x" * 256, "y"]),
    Array("symbol", [Symbol("x" * 256)]),
    Array("ushort", [7] * 200, descriptors=[ULong(3)]),
]

SMALL: list[Any] = [
    [1, "a", [True]],
    {"a": 1, "b": [2]},
    Described(ULong(0x28), [None, "queue", UInt(5)]),
    Array("symbol", ["a", "b"]),
    Array("uint", [1, 2]),
    Array("int", [-1, 2], descriptors=[Symbol("a:b")]),
    Array("string", []),
    Array("list", [[1, "a"], []]),
    Array("map", [{"a": 1}]),
]


@pytest.mark.parametrize("value", SCALARS, ids=lambda v: f"{type(v).__name__}-{str(v)[:20]}")
def test_scalars_have_the_same_bytes(value: Any) -> None:
    assert encode(value) == by_proton(value)
    assert same(from_proton(encode(value)), value)


@pytest.mark.parametrize("value", BIG, ids=range(len(BIG)))
def test_big_containers_have_the_same_bytes(value: Any) -> None:
    assert encode(value) == by_proton(value)


@pytest.mark.parametrize("value", SMALL + BIG, ids=range(len(SMALL + BIG)))
def test_we_read_what_proton_writes(value: Any) -> None:
    assert alike(decode(by_proton(value)), value)


@pytest.mark.parametrize("value", SMALL + BIG, ids=range(len(SMALL + BIG)))
def test_proton_reads_what_we_write(value: Any) -> None:
    assert alike(from_proton(encode(value)), value)


def is_not_described(value: object) -> bool:
    # Proton's decoder loses the element after a described value that describes another one.
    return not isinstance(value, Described)


# Proton's binding stops a string at a zero character.
plain_texts = texts.map(lambda text: text.replace("\0", "0"))
plain_symbols = symbols.map(lambda text: Symbol("s" + text.replace("\0", "0")))
scalar = st.one_of(
    st.none(),
    plain_texts,
    plain_symbols,
    *[
        ITEMS[name]
        for name in sorted(ITEMS)
        if name not in ("string", "symbol", "float", "double", "decimal32", "decimal64")
        and name != "decimal128"
    ],
)
nested = st.recursive(
    scalar,
    lambda children: (
        st.lists(children, max_size=5)
        | st.dictionaries(plain_texts, children, max_size=4)
        | st.builds(Described, plain_symbols, children.filter(is_not_described))
    ),
    max_leaves=10,
)


@given(scalar)
def test_any_scalar_has_the_same_bytes(value: Any) -> None:
    assert encode(value) == by_proton(value)


@given(nested)
def test_any_value_survives_both_ways(value: Any) -> None:
    assert same(decode(by_proton(value)), value)
    assert same(from_proton(encode(value)), value)


@pytest.mark.parametrize("body", [b"data", "text", [1, 2], {"a": 1}, 5, 1.5, uuid.uuid4()])
def test_the_sections_of_a_message_are_values_to_us(body: Any) -> None:
    message = proton.Message(
        body=body,
        durable=True,
        address="queue",
        subject="subject",
        properties={"int": 5, "text": "x", "id": uuid.UUID(int=3)},
        annotations={proton.symbol("x-opt"): 7},
        inferred=isinstance(body, bytes),
    )
    encoded = message.encode()
    sections = []
    r = Reader(bytes(encoded))
    while r.remaining():
        sections.append(read_value(r, "section"))
    found = {section.descriptor: section.value for section in sections}  # type: ignore[attr-defined]
    assert found[0x70][0] is True
    assert found[0x72] == {"x-opt": 7}
    assert found[0x73][2:4] == ["queue", "subject"]
    assert found[0x74] == {"int": 5, "text": "x", "id": uuid.UUID(int=3)}
    assert found[0x75 if isinstance(body, bytes) else 0x77] == body
