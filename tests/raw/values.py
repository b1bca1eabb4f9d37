"""Values encoded by hand (AMQP 1.0 §1.6): what no codec of ours would make, too.

Nothing here imports what is tested. A value is `bytes`, encoded already, so that a test can put
anything anywhere.
"""

from __future__ import annotations

import struct
from typing import Final

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"
EMPTY_LIST: Final = b"\x45"

# The largest count or size that can be stated.
MAX_COUNT: Final = 0xFFFFFFFF


def uint(number: int) -> bytes:
    """A uint (AMQP 1.0 §1.6.5)."""
    return b"\x70" + struct.pack(">I", number)


def ushort(number: int) -> bytes:
    """A ushort."""
    return b"\x60" + struct.pack(">H", number)


def ubyte(number: int) -> bytes:
    """A ubyte."""
    return b"\x50" + bytes((number,))


def ulong(number: int) -> bytes:
    """A ulong."""
    return b"\x80" + struct.pack(">Q", number)


def symbol(text: str | bytes) -> bytes:
    """A symbol; bytes are taken as they are."""
    return _variable(b"\xa3", b"\xb3", text.encode("ascii") if isinstance(text, str) else text)


def string(text: str | bytes) -> bytes:
    """A string; bytes are taken as they are."""
    return _variable(b"\xa1", b"\xb1", text.encode() if isinstance(text, str) else text)


def binary(content: bytes) -> bytes:
    """A binary."""
    return _variable(b"\xa0", b"\xb0", content)


def _variable(narrow: bytes, wide: bytes, content: bytes) -> bytes:
    if len(content) < 256:
        return narrow + bytes((len(content),)) + content
    return wide + struct.pack(">I", len(content)) + content


def sequence(*items: bytes) -> bytes:
    """A list."""
    return _compound(b"\xd0", items)


def mapping(*items: bytes) -> bytes:
    """A map: keys and values in turn."""
    return _compound(b"\xd1", items)


def _compound(code: bytes, items: tuple[bytes, ...]) -> bytes:
    content = b"".join(items)
    return code + struct.pack(">II", len(content) + 4, len(items)) + content


def array(constructor: bytes, count: int, content: bytes = b"") -> bytes:
    """An array of `count` elements, whatever `content` says."""
    return (
        b"\xf0"
        + struct.pack(">II", 4 + len(constructor) + len(content), count)
        + (constructor + content)
    )


def described(code: int | bytes, value: bytes) -> bytes:
    """A described value; `code` as a number, or as an encoded descriptor."""
    descriptor = b"\x80" + struct.pack(">Q", code) if isinstance(code, int) else code
    return b"\x00" + descriptor + value


def composite(code: int | bytes, fields: list[bytes]) -> bytes:
    """A described list; fields that are null at the end are left out."""
    while fields and fields[-1] == NULL:
        fields = fields[:-1]
    return described(code, sequence(*fields))


def data_section(content: bytes = b"x") -> bytes:
    """A message with this body."""
    return described(0x75, binary(content))
