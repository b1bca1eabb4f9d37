"""The keys of records (table u8, id i64, number i64), and the checksums of values with them."""

from __future__ import annotations

from typing import Any, Final

import google_crc32c

from ferrymq_broker.store.tables import NAMES

KEY_BYTES: Final = 17

# The only record of the store itself: the number of the last applied batch. Tables begin at 1, so
# its key is before all others.
APPLIED_KEY: Final = b"\0applied"

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend


def encode_key(table: int, id: int, number: int) -> bytes:
    """Return the key of a record."""
    return bytes((table,)) + id.to_bytes(8, "big") + number.to_bytes(8, "big")


def describe_key(key: bytes) -> str:
    """Return a description of the record of a key, for messages."""
    if key == APPLIED_KEY:
        return "the number of the last batch"
    if len(key) != KEY_BYTES:
        return f"the record {key.hex()}"
    table = NAMES.get(key[0], str(key[0]))
    return f"{table} {int.from_bytes(key[1:9], 'big')}/{int.from_bytes(key[9:], 'big')}"


def seal(key: bytes, value: bytes) -> bytes:
    """Return the bytes to store for a key: checksum and value."""
    crc: int = _extend_crc(_crc(key), value)
    return crc.to_bytes(4, "big") + value


def is_intact(key: bytes, stored: bytes) -> bool:
    """Return whether the checksum of the bytes stored for a key is right."""
    value = stored[4:]
    crc: int = _extend_crc(_crc(key), value)
    return crc == int.from_bytes(stored[:4], "big") and len(stored) >= 4
