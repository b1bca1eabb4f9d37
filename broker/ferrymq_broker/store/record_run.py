"""Records with consecutive numbers that are read together.

The records are copied once, into one bytes object, and each value is cut out of it. The head of a
value (what a reader looks at but does not keep) is not copied again: a reader finds it in `data`.

    crc u32 | value       each record, as it is stored

The checksum (CRC-32C, RFC 3720 §12.1) covers key and value. Here a table computes it over what is
not a bytes object of its own: the key and the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import google_crc32c
from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i32_le,
    read_i64_be,
    read_i64_le,
    write_i64_be,
    write_i64_le,
)
from mypy_extensions import i64

_CRC_BYTES: Final = 4
# The bytes of a key before the number: table and id.
_PREFIX: Final = 9
_END: Final = 8
# The polynomial of CRC-32C with its bits reversed.
_POLYNOMIAL: Final = 0x82F6_3B78
_ONES: Final = 0xFFFF_FFFF

_extend_crc: Final[Any] = google_crc32c.extend


def _make_table() -> bytes:
    """Return the checksum register after each byte, from an empty register: 256 times i64."""
    w = BytesWriter()
    byte: i64 = 0
    while byte < 256:
        register = byte
        bit: i64 = 0
        while bit < 8:
            register = (register >> 1) ^ (_POLYNOMIAL if register & 1 else 0)
            bit += 1
        write_i64_le(w, register)
        byte += 1
    return w.getvalue()


_TABLE: Final = _make_table()
# The bytes of 256 entries.
_ROW: Final = 8 * 256


@final
class RecordRun:
    """Records with consecutive numbers, the first of which has this `key`.

    `stored` is what is stored for each; records behind one that makes it `most` bytes are left out.
    `data` has `count` records, one after another. A checksum is checked when a value is asked for.
    """

    __slots__ = ("count", "data", "_first", "_ends", "_prefix", "_high", "_register")

    def __init__(self, key: bytes, stored: Sequence[bytes | memoryview], most: i64) -> None:
        self._first: i64 = read_i64_be(key, _PREFIX)
        ends = BytesWriter()
        count: i64 = 0
        end: i64 = 0
        size: i64 = 0
        for one in stored:
            if size >= most:
                break
            length: i64 = len(one)
            end += length
            size += length - _CRC_BYTES
            write_i64_be(ends, end)
            count += 1
        self.count: i64 = count
        self.data: bytes = b"".join(stored if count == len(stored) else stored[:count])
        self._ends: bytes = ends.getvalue()
        # The checksum register after table and id, and after the number without its last byte.
        self._prefix: i64 = _step(_ONES, key, 0, _PREFIX)
        self._high: i64 = -1
        self._register: i64 = 0

    def begin(self, index: i64) -> i64:
        """Return where in `data` the value of a record begins."""
        return _CRC_BYTES + (read_i64_be(self._ends, _END * (index - 1)) if index > 0 else 0)

    def rest(self, index: i64, head: i64) -> bytes | None:
        """Return the value of a record without its first `head` bytes; None if the value is
        damaged or shorter than that."""
        data = self.data
        begin = self.begin(index)
        start = begin + head
        end = read_i64_be(self._ends, _END * index)
        if start > end:
            return None
        rest = data[start:end]
        register = _step(self._after_key(self._first + index), data, begin, start)
        crc: int = _extend_crc(register ^ _ONES, rest)
        if i64(crc) != i64(read_i32_be(data, begin - _CRC_BYTES)) & _ONES:
            return None
        return rest

    def rests(self, head: i64) -> list[bytes]:
        """Return what `rest` returns for all records before the first damaged one."""
        data = self.data
        ends = self._ends
        shift = _shift_by(head)
        rests: list[bytes] = []
        begin: i64 = _CRC_BYTES
        # A head, and the register after it from an empty register. Heads are often equal.
        known: i64 = -1
        own: i64 = 0
        for index in range(self.count):
            end = read_i64_be(ends, _END * index)
            start = begin + head
            if start > end:
                break
            if known < 0 or not _is_equal(data, known, begin, head):
                own = _step(0, data, begin, start)
                known = begin
            # The register is linear: the parts of key and head are computed apart and added.
            register = _shifted(shift, self._after_key(self._first + index)) ^ own
            rest = data[start:end]
            crc: int = _extend_crc(register ^ _ONES, rest)
            if i64(crc) != i64(read_i32_be(data, begin - _CRC_BYTES)) & _ONES:
                break
            rests.append(rest)
            begin = end + _CRC_BYTES
        return rests

    def values(self) -> list[bytes]:
        """Return all values before the first damaged one."""
        return self.rests(0)

    def _after_key(self, number: i64) -> i64:
        """Return the checksum register after the key of a number."""
        high = number >> 8
        if high != self._high:
            w = BytesWriter()
            write_i64_be(w, number)
            self._high = high
            self._register = _step(self._prefix, w.getvalue(), 0, 7)
        register = self._register
        return read_i64_le(_TABLE, 8 * ((register ^ number) & 255)) ^ (register >> 8)


def _step(register: i64, data: bytes, begin: i64, end: i64) -> i64:
    """Return the checksum register after the bytes from `begin` to before `end`."""
    table = _TABLE
    while begin < end:
        register = read_i64_le(table, 8 * ((register ^ i64(data[begin])) & 255)) ^ (register >> 8)
        begin += 1
    return register


def _is_equal(data: bytes, one: i64, other: i64, count: i64) -> bool:
    """Return whether so many bytes at two places are equal."""
    while count >= 4:
        count -= 4
        if read_i32_le(data, one + count) != read_i32_le(data, other + count):
            return False
    while count > 0:
        count -= 1
        if data[one + count] != data[other + count]:
            return False
    return True


_shifts: Final[dict[int, bytes]] = {}


def _shift_by(zeros: i64) -> bytes:
    """Return a table for `_shifted`: the register after so many zero bytes, for each value of each
    byte of the register before them."""
    found = _shifts.get(zeros)
    if found is None:
        nothing = bytes(zeros)
        w = BytesWriter()
        place: i64 = 0
        while place < 4:
            byte: i64 = 0
            while byte < 256:
                write_i64_le(w, _step(byte << (8 * place), nothing, 0, zeros))
                byte += 1
            place += 1
        found = w.getvalue()
        _shifts[zeros] = found
    return found


def _shifted(table: bytes, register: i64) -> i64:
    """Return the checksum register after the zero bytes of the table."""
    return (
        read_i64_le(table, 8 * (register & 255))
        ^ read_i64_le(table, _ROW + 8 * ((register >> 8) & 255))
        ^ read_i64_le(table, 2 * _ROW + 8 * ((register >> 16) & 255))
        ^ read_i64_le(table, 3 * _ROW + 8 * (register >> 24))
    )
