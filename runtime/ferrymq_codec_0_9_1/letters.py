"""The letters for the types of values in field tables and arrays: see `tables`."""

from __future__ import annotations

from typing import Final

BOOLEAN: Final = 0x74  # t
INT8: Final = 0x62  # b
UINT8: Final = 0x42  # B
INT16: Final = 0x73  # s
# The letter of the specification's text, which RabbitMQ does not know.
INT16_OLD: Final = 0x55  # U
UINT16: Final = 0x75  # u
INT32: Final = 0x49  # I
UINT32: Final = 0x69  # i
INT64: Final = 0x6C  # l
INT64_OLD: Final = 0x4C  # L
FLOAT: Final = 0x66  # f
DOUBLE: Final = 0x64  # d
DECIMAL: Final = 0x44  # D
STRING: Final = 0x53  # S
BYTES: Final = 0x78  # x
TIMESTAMP: Final = 0x54  # T
TABLE: Final = 0x46  # F
ARRAY: Final = 0x41  # A
VOID: Final = 0x56  # V
