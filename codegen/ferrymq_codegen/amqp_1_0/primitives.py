"""The primitive types the codec implements, and how generated code handles each.

A spec may define any types of its own, but only the primitive types that `ferrymq_codec` can read
and write: `types.xml` must agree with this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Primitive:
    """The form of a primitive type in generated code.

    `read` and `write` are templates: `{v}` stands for the value, `{f}` for the field's name as a
    string literal. `range` are the bounds of an integer type.
    """

    python: str
    read: str
    write: str
    range: tuple[int, int] | None = None


def _method(name: str, python: str, bounds: tuple[int, int] | None = None) -> Primitive:
    return Primitive(python, f"r.read_{name}({{f}})", f"write_{name}(w, {{v}}, {{f}})", bounds)


def _function(name: str, python: str) -> Primitive:
    return Primitive(python, f"read_{name}(r, {{f}})", f"write_{name}(w, {{v}}, {{f}})")


ANYTHING: Final = Primitive("object", "read_value(r, {f})", "write_value(w, {v}, {f})")
"""The type `*`."""

PRIMITIVES: Final[dict[str, Primitive]] = {
    "null": ANYTHING,
    "boolean": _method("boolean", "bool"),
    "ubyte": _method("ubyte", "int", (0, 2**8 - 1)),
    "ushort": _method("ushort", "int", (0, 2**16 - 1)),
    "uint": _method("uint", "int", (0, 2**32 - 1)),
    "ulong": _method("ulong", "int", (0, 2**64 - 1)),
    "byte": _method("byte", "int", (-(2**7), 2**7 - 1)),
    "short": _method("short", "int", (-(2**15), 2**15 - 1)),
    "int": _method("int", "int", (-(2**31), 2**31 - 1)),
    "long": _method("long", "int", (-(2**63), 2**63 - 1)),
    "float": _method("float", "float"),
    "double": _method("double", "float"),
    "decimal32": _function("decimal32", "Decimal"),
    "decimal64": _function("decimal64", "Decimal"),
    "decimal128": _function("decimal128", "Decimal"),
    "char": _method("char", "str"),
    "timestamp": _method("timestamp", "int", (-(2**63), 2**63 - 1)),
    "uuid": _method("uuid", "UUID"),
    "binary": _method("binary", "bytes"),
    "string": _method("string", "str"),
    "symbol": _method("symbol", "str"),
    "list": _function("list", "list[object]"),
    "map": _function("map", "dict[object, object]"),
    "array": _function("array", "Array"),
}

MAPS: Final[dict[str, Primitive]] = {
    "symbol": _function("symbol_map", "dict[str, object]"),
    "annotations": _function("annotations", "dict[str | int, object]"),
    "string": _function("string_map", "dict[str, object]"),
}
"""Maps whose keys are restricted, by the word `names.MAP_KEYS` uses."""

ISINSTANCE: Final = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "bytes": "bytes",
    "UUID": "UUID",
    "Decimal": "Decimal",
    "list[object]": "list",
    "dict[object, object]": "dict",
    "dict[str, object]": "dict",
    "dict[str | int, object]": "dict",
    "Array": "Array",
}
"""The class that `isinstance` tests for, by Python type."""

CATEGORIES: Final = {
    4: ("fixed", 0),
    5: ("fixed", 1),
    6: ("fixed", 2),
    7: ("fixed", 4),
    8: ("fixed", 8),
    9: ("fixed", 16),
    0xA: ("variable", 1),
    0xB: ("variable", 4),
    0xC: ("compound", 1),
    0xD: ("compound", 4),
    0xE: ("array", 1),
    0xF: ("array", 4),
}
"""Category and width by the upper half of the constructor byte (AMQP 1.0 §1.2)."""
