"""Constructor codes of the primitive encodings (AMQP 1.0 §1.6) and the names of their types.

This table is written by hand, as are the reader and the writer of each encoding. A test compares it
with `spec/types.xml`. No other module writes a code as a number.
"""

from __future__ import annotations

from typing import Final

DESCRIBED: Final = 0x00
NULL: Final = 0x40
TRUE: Final = 0x41
FALSE: Final = 0x42
UINT0: Final = 0x43
ULONG0: Final = 0x44
LIST0: Final = 0x45
UBYTE: Final = 0x50
BYTE: Final = 0x51
SMALL_UINT: Final = 0x52
SMALL_ULONG: Final = 0x53
SMALL_INT: Final = 0x54
SMALL_LONG: Final = 0x55
BOOLEAN: Final = 0x56
USHORT: Final = 0x60
SHORT: Final = 0x61
UINT: Final = 0x70
INT: Final = 0x71
FLOAT: Final = 0x72
CHAR: Final = 0x73
DECIMAL32: Final = 0x74
ULONG: Final = 0x80
LONG: Final = 0x81
DOUBLE: Final = 0x82
TIMESTAMP: Final = 0x83
DECIMAL64: Final = 0x84
DECIMAL128: Final = 0x94
UUID: Final = 0x98
BINARY8: Final = 0xA0
STRING8: Final = 0xA1
SYMBOL8: Final = 0xA3
BINARY32: Final = 0xB0
STRING32: Final = 0xB1
SYMBOL32: Final = 0xB3
LIST8: Final = 0xC0
MAP8: Final = 0xC1
LIST32: Final = 0xD0
MAP32: Final = 0xD1
ARRAY8: Final = 0xE0
ARRAY32: Final = 0xF0

# The first code of each group, named for the number of bytes of content or of size that follow
# (AMQP 1.0 §1.2).
FIXED_0: Final = 0x40
FIXED_1: Final = 0x50
FIXED_2: Final = 0x60
FIXED_4: Final = 0x70
FIXED_8: Final = 0x80
FIXED_16: Final = 0x90
VARIABLE_1: Final = 0xA0
VARIABLE_4: Final = 0xB0
COMPOUND_1: Final = 0xC0
COMPOUND_4: Final = 0xD0
ARRAY_1: Final = 0xE0
ARRAY_4: Final = 0xF0

# The difference between the codes of a type with a four-byte and with a one-byte size.
WIDER: Final = VARIABLE_4 - VARIABLE_1

TYPE_NAMES: Final[dict[int, str]] = {
    NULL: "null",
    TRUE: "boolean",
    FALSE: "boolean",
    UINT0: "uint",
    ULONG0: "ulong",
    LIST0: "list",
    UBYTE: "ubyte",
    BYTE: "byte",
    SMALL_UINT: "uint",
    SMALL_ULONG: "ulong",
    SMALL_INT: "int",
    SMALL_LONG: "long",
    BOOLEAN: "boolean",
    USHORT: "ushort",
    SHORT: "short",
    UINT: "uint",
    INT: "int",
    FLOAT: "float",
    CHAR: "char",
    DECIMAL32: "decimal32",
    ULONG: "ulong",
    LONG: "long",
    DOUBLE: "double",
    TIMESTAMP: "timestamp",
    DECIMAL64: "decimal64",
    DECIMAL128: "decimal128",
    UUID: "uuid",
    BINARY8: "binary",
    STRING8: "string",
    SYMBOL8: "symbol",
    BINARY32: "binary",
    STRING32: "string",
    SYMBOL32: "symbol",
    LIST8: "list",
    MAP8: "map",
    LIST32: "list",
    MAP32: "map",
    ARRAY8: "array",
    ARRAY32: "array",
}
"""The primitive type that each constructor code belongs to."""


def describe_code(code: int) -> str:
    """Describe a constructor code for an error message."""
    if code == DESCRIBED:
        return "a described value"
    name = TYPE_NAMES.get(code)
    return f"0x{code:02x}" if name is None else f"{name} (0x{code:02x})"
