"""The modules from which generated code imports names."""

from __future__ import annotations

from typing import Final


def _both(module: str, *names: str) -> dict[str, str]:
    """Return the module of the reading and the writing function of each name."""
    return {f"{verb}_{n}": f"ferrymq_codec.{module}" for n in names for verb in ("read", "write")}


IMPORTS: Final = {
    "Callable": "collections.abc",
    "dataclass": "dataclasses",
    "Decimal": "decimal",
    "Enum": "enum",
    "IntEnum": "enum",
    "StrEnum": "enum",
    "Final": "typing",
    "TypeAlias": "typing",
    "UUID": "uuid",
    "BytesWriter": "librt.strings",
    "i64": "mypy_extensions",
    "NULL": "ferrymq_codec.codes",
    "Array": "ferrymq_codec.containers",
    **dict.fromkeys(["Composite", "as_bytes"], "ferrymq_codec.composite"),
    "declare": "ferrymq_codec.declared",
    "EncodeError": "ferrymq_codec.errors",
    "Reader": "ferrymq_codec.reader",
    "Described": "ferrymq_codec.scalars",
    "equal_values": "ferrymq_codec.scalars",
    **dict.fromkeys(
        ["begin_composite", "end_list", "write_descriptor", "write_empty_composite"],
        "ferrymq_codec.compound",
    ),
    **dict.fromkeys(
        [f"{what}Schema" for what in ("Type", "Field", "Choice", "Encoding")],
        "ferrymq_codec.type_schemas",
    ),
    **_both("arrays", "array"),
    **_both("values", "value", "list"),
    **_both("maps", "map", "symbol_map", "annotations", "string_map"),
    **_both("multiples", "multiple", "multiple_symbol"),
    **_both("decimals", "decimal32", "decimal64", "decimal128"),
    **dict.fromkeys(
        [
            f"write_{name}"
            for name in (
                *("boolean", "ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long"),
                *("float", "double", "char", "timestamp", "uuid", "binary", "string", "symbol"),
            )
        ],
        "ferrymq_codec.writer",
    ),
}
"""The module of each name; the types of a spec cannot have these names."""
