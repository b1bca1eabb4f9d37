"""Hypothesis strategies for every generated type, built from the XML and not from its output.

The spec is read by the generator's own reader; what each type may hold is said here once more, so
that a wrong conclusion of the generator meets an independent one.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec import Described, Symbol, Timestamp, UInt, ULong
from ferrymq_codec.composite import Composite
from ferrymq_codec.containers import Array
from ferrymq_codegen.model import Field
from ferrymq_codegen.names import MAP_KEYS, field_name
from ferrymq_codegen.read import read_spec
from ferrymq_codegen.resolve import Resolved, resolve
from ferrymq_types import registry

ROOT = Path(__file__).resolve().parents[2]


@cache
def spec() -> Resolved:
    """The project's spec with its extensions."""
    return resolve(read_spec([ROOT / "spec", ROOT / "spec" / "extensions"]))


def described_types() -> list[str]:
    """The names of all types with a descriptor, in document order."""
    return [name for name, type_ in spec().types.items() if type_.descriptors]


def python(name: str) -> Any:
    """The generated class, enum or alias of a type."""
    module, attribute = registry.TYPES[name]
    return getattr(importlib.import_module(f"ferrymq_types.{module}"), attribute)


def encode(value: Composite) -> bytes:
    """The encoding of one composite, with its descriptor."""
    w = BytesWriter()
    value.encode(w)
    return w.getvalue()


def integers(low: int, high: int) -> st.SearchStrategy[int]:
    """Integers of a range, its bounds and those of the short encodings preferred."""
    edges = [v for v in (low, -129, -128, -1, 0, 1, 127, 128, 255, 256, high) if low <= v <= high]
    return st.sampled_from(edges) | st.integers(low, high)


SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=20)
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("é" * 200)
BINARIES = st.binary(max_size=20) | st.just(b"x" * 300)

SCALARS = (
    st.none()
    | st.booleans()
    | integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | STRINGS
    | BINARIES
    | st.uuids()
    | SYMBOLS.map(Symbol)
    | integers(0, 2**32 - 1).map(UInt)
    | integers(-(2**63), 2**63 - 1).map(Timestamp)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(STRINGS, inner, max_size=3)
        | st.builds(Described, integers(0, 15).map(ULong), inner)
        | st.lists(integers(0, 2**32 - 1), max_size=3).map(lambda items: Array("uint", items))
    ),
    max_leaves=5,
)

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "ubyte": integers(0, 2**8 - 1),
    "ushort": integers(0, 2**16 - 1),
    "uint": integers(0, 2**32 - 1),
    "ulong": integers(0, 2**64 - 1),
    "byte": integers(-(2**7), 2**7 - 1),
    "short": integers(-(2**15), 2**15 - 1),
    "int": integers(-(2**31), 2**31 - 1),
    "long": integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, width=32),
    "double": st.floats(allow_nan=False),
    "char": st.characters(exclude_categories=["Cs"]),
    "timestamp": integers(-(2**63), 2**63 - 1),
    "uuid": st.uuids(),
    "binary": BINARIES,
    "string": STRINGS,
    "symbol": SYMBOLS,
    "list": st.lists(VALUES, max_size=4),
    "map": st.dictionaries(STRINGS, VALUES, max_size=4),
}

MAPS = {
    "symbol": st.dictionaries(SYMBOLS, VALUES, max_size=4),
    "annotations": st.dictionaries(SYMBOLS | integers(0, 2**64 - 1), VALUES, max_size=4),
    "string": st.dictionaries(STRINGS, SCALARS, max_size=4),
}


def content(name: str) -> st.SearchStrategy[Any]:
    """What a type holds behind its descriptor, if it has one."""
    while name != "*":
        type_ = spec().types[name]
        if name in MAP_KEYS:
            return MAPS[MAP_KEYS[name]]
        if type_.choices and not type_.provides:
            return st.sampled_from(list(python(name)))
        if type_.source is None or type_.cls == "primitive":
            return PRIMITIVES[name]
        name = type_.source
    return VALUES


def values(name: str) -> st.SearchStrategy[Any]:
    """Values of a type as a field holds them."""
    if name == "*":
        return VALUES
    type_ = spec().types[name]
    if not type_.descriptors:
        return content(name)
    return composites(name)


def composites(name: str) -> st.SearchStrategy[Any]:
    """Instances of the class of a described type."""
    type_ = spec().types[name]
    if type_.cls != "composite":
        return st.builds(python(name), content(name))
    required = {field_name(f.name): one(f) for f in type_.fields if f.mandatory}
    optional = {
        field_name(f.name): one(f) if f.default is not None else st.none() | one(f)
        for f in type_.fields
        if not f.mandatory
    }
    return st.fixed_dictionaries(required, optional=optional).map(
        lambda fields: python(name)(**fields)
    )


def one(field: Field) -> st.SearchStrategy[Any]:
    """What a field holds when it holds something."""
    if field.multiple:
        return st.lists(values(field.type), min_size=1, max_size=4)
    if field.type == "*" and field.requires:
        providers = [
            t for t in spec().types.values() if set(t.provides).intersection(field.requires)
        ]
        if providers:
            return st.one_of([values(t.name) for t in providers])
    return values(field.type)
