"""What the codec's tests share: short cuts, exact comparison and Hypothesis strategies."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from uuid import UUID

from hypothesis import strategies as st
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
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import read_value, write_value


def encode(value: object) -> bytes:
    """The encoding of one untyped value."""
    w = BytesWriter()
    write_value(w, value, "value")
    return w.getvalue()


def decode(data: bytes) -> object:
    """The one untyped value that `data` holds, which must be all of it."""
    r = Reader(data)
    value = read_value(r, "value")
    assert r.pos == len(data)
    assert r.depth == 0
    assert r.end == len(data)
    return value


def same(a: object, b: object) -> bool:
    """Equality that tells types, signs of zero, NaNs and decimal exponents apart."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a):
            return math.isnan(b)
        return struct.pack(">d", a) == struct.pack(">d", b)
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (dict, PairMap)) and isinstance(b, (dict, PairMap)):
        left, right = list(a.items()), list(b.items())
        return len(left) == len(right) and all(
            same(x[0], y[0]) and same(x[1], y[1]) for x, y in zip(left, right, strict=True)
        )
    if isinstance(a, Described) and isinstance(b, Described):
        return same(a.descriptor, b.descriptor) and same(a.value, b.value)
    if isinstance(a, Array) and isinstance(b, Array):
        return (
            a.element_type == b.element_type
            and same(list(a.descriptors), list(b.descriptors))
            and len(a) == len(b)
            and all(same(x, y) for x, y in zip(a, b, strict=True))
        )
    return a == b


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    """Integers of a width, with an emphasis on the edges of the encodings."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = [v for v in (low, -129, -128, -1, 0, 1, 127, 128, 255, 256, high) if low <= v <= high]
    return st.sampled_from(edges) | st.integers(low, high)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
symbols = st.text(st.characters(max_codepoint=127), max_size=300)


def decimals(precision: int, low: int, high: int) -> st.SearchStrategy[Decimal]:
    """Numbers that fit a decimal format: coefficient digits and exponent range given."""
    numbers = st.builds(
        lambda sign, coefficient, exponent: Decimal(f"{sign}{coefficient}E{exponent}"),
        st.sampled_from(["", "-"]),
        st.integers(0, 10**precision - 1),
        st.integers(low, high),
    )
    specials = st.sampled_from(["Infinity", "-Infinity", "NaN", "-NaN", "sNaN", "NaN123", "-0"])
    return numbers | specials.map(Decimal)


uuids = st.binary(min_size=16, max_size=16).map(lambda b: UUID(bytes=b))

ITEMS: dict[str, st.SearchStrategy[object]] = {
    "boolean": st.booleans(),
    "ubyte": integers(8, False).map(UByte),
    "ushort": integers(16, False).map(UShort),
    "uint": integers(32, False).map(UInt),
    "ulong": integers(64, False).map(ULong),
    "byte": integers(8, True).map(Byte),
    "short": integers(16, True).map(Short),
    "int": integers(32, True).map(Int),
    "long": integers(64, True),
    "float": st.floats(width=32).map(Float32),
    "double": st.floats(),
    "decimal32": decimals(7, -101, 90).map(Decimal32),
    "decimal64": decimals(16, -398, 369).map(Decimal64),
    "decimal128": decimals(34, -6176, 6111),
    "char": st.characters(exclude_categories=["Cs"]).map(Char),
    "timestamp": integers(64, True).map(Timestamp),
    "uuid": uuids,
    "binary": st.binary(max_size=300),
    "string": texts,
    "symbol": symbols.map(Symbol),
}
"""For each primitive but null and the compound ones, its values in an untyped place."""

scalars: st.SearchStrategy[object] = st.none() | st.one_of(*ITEMS.values())

keys = st.one_of(
    st.booleans(), integers(64, True), texts, symbols.map(Symbol), uuids, st.binary(max_size=9)
)


def _arrays(children: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    # The first only has the depth that it needs: elements of one primitive type.
    flat = st.sampled_from(sorted(ITEMS)).flatmap(
        lambda name: st.lists(ITEMS[name], max_size=5).map(lambda items: Array(name, items))
    )
    lists = st.lists(st.lists(children, max_size=3), max_size=3)
    described = st.builds(
        lambda items, code: Array("list", items, descriptors=[ULong(code), Symbol("a:b")]),
        lists,
        integers(64, False),
    )
    nested = st.lists(flat, max_size=3).map(lambda items: Array("array", items))
    maps = st.lists(st.dictionaries(texts, children, max_size=3), max_size=3)
    return flat | described | nested | maps.map(lambda items: Array("map", items))


def _containers(children: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.lists(children, max_size=6),
        st.dictionaries(keys, children, max_size=5),
        st.builds(Described, integers(64, False).map(ULong) | symbols.map(Symbol), children),
        _arrays(children),
    )


values: st.SearchStrategy[object] = st.recursive(scalars, _containers, max_leaves=12)
