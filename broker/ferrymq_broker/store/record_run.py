"""Records with consecutive numbers that are read together.

    crc u32 | value       each record, as it is stored

The checksum (CRC-32C, RFC 3720 §12.1) covers key and value. It is computed over the bytes as they
are stored, so that no value has to be copied for it: see `_start`.
"""

from __future__ import annotations

from typing import Any, Final, final

import google_crc32c
from librt.strings import BytesWriter, read_i32_be, read_i32_le, read_i64_be, write_i64_be
from mypy_extensions import i64

# Where the value begins in what is stored.
VALUE: Final = 4

# The bytes of a key before the number: table and id.
_PREFIX: Final = 9
_ONES: Final = 0xFFFF_FFFF

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend


@final
class RecordRun:
    """Records with consecutive numbers, the first of which has this `key`.

    `stored` is what is stored for each; records behind one that makes it `most` bytes are left out.
    A checksum is checked when a value is asked for.
    """

    __slots__ = ("stored", "_first", "_prefix", "_high", "_register")

    def __init__(self, key: bytes, stored: list[bytes], most: i64) -> None:
        size: i64 = 0
        for index, one in enumerate(stored):
            if size >= most:
                stored = stored[:index]
                break
            size += len(one) - VALUE
        self.stored: list[bytes] = stored
        self._first: i64 = read_i64_be(key, _PREFIX)
        self._prefix: bytes = key[:_PREFIX]
        # The upper half of a number, and the checksum register after it.
        self._high: i64 = -1
        self._register: i64 = 0

    def rest(self, index: i64, head: i64) -> bytes | None:
        """Return the value of a record without its first `head` bytes; None if the value is
        damaged or shorter than that."""
        stored = self.stored[index]
        if len(stored) < VALUE + head:
            return None
        checksum = i64(read_i32_be(stored, 0)) & _ONES
        crc: int = _extend_crc(self._start(self._first + index, stored) ^ _ONES, stored)
        if i64(crc) != checksum:
            return None
        return stored[VALUE + head :]

    def values(self) -> list[bytes]:
        """Return all values before the first damaged one."""
        values: list[bytes] = []
        for index in range(len(self.stored)):
            value = self.rest(index, 0)
            if value is None:
                break
            values.append(value)
        return values

    def _start(self, number: i64, stored: bytes) -> i64:
        """Return the register that is the one after the key as soon as it has taken in the first
        four bytes of what is stored, the checksum.

        Four bytes are taken in by adding (XOR) them to the register, which then changes in a way
        that depends on this sum only. So it is the register before the last four bytes of the key,
        with these and the checksum added to it.
        """
        high = number >> 32
        if high != self._high:
            w = BytesWriter()
            write_i64_be(w, number)
            crc: int = _crc(self._prefix + w.getvalue()[:4])
            self._high = high
            self._register = i64(crc) ^ _ONES
        # The bytes of the key are big-endian, the register is little-endian.
        low = number & _ONES
        swapped = (
            (low >> 24)
            | ((low >> 8) & 0xFF00)
            | ((low << 8) & 0xFF_0000)
            | ((low << 24) & 0xFF00_0000)
        )
        return self._register ^ swapped ^ (i64(read_i32_le(stored, 0)) & _ONES)
