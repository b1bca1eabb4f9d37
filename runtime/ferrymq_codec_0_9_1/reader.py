"""Reads the fields of methods and of content headers out of a byte buffer (AMQP 0-9-1 §4.2.5).

Nothing is allocated before the size it needs has been checked against the bytes that remain. After
a DecodeError the position is undefined: drop the FieldReader, or reset it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NoReturn, final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_codec.errors import DecodeError
from ferrymq_codec.limits import MAX_ELEMENTS
from ferrymq_codec_0_9_1.timestamps import EpochSeconds, from_seconds

U16: Final = 0xFFFF
U32: Final = 0xFFFFFFFF


@final
class FieldReader:
    """A position in `data`, bounded by `end` (both in bytes), with the limits spent so far.

    `depth` counts the field tables and arrays that are open, `budget` the values that may still be
    read from them. Without `end` the reader covers all of `data`. Raises ValueError if the bounds
    lie outside `data`.
    """

    __slots__ = ("budget", "data", "depth", "end", "pos")

    def __init__(self, data: bytes, pos: i64 = 0, end: i64 = -1) -> None:
        size: i64 = len(data)
        if end < 0:
            end = size
        if pos < 0 or pos > end or end > size:
            raise ValueError("the bounds lie outside the data")
        self.data: bytes = data
        self.pos: i64 = pos
        self.end: i64 = end
        self.depth: i64 = 0
        self.budget: i64 = MAX_ELEMENTS

    def reset(self, data: bytes, pos: i64, end: i64) -> None:
        """Start again on other bytes, with all limits restored; bounds as in the constructor."""
        if pos < 0 or pos > end or end > len(data):
            raise ValueError("the bounds lie outside the data")
        self.data = data
        self.pos = pos
        self.end = end
        self.depth = 0
        self.budget = MAX_ELEMENTS

    def fail(self, field: str, reason: str) -> NoReturn:
        """Raise DecodeError at the current position."""
        raise DecodeError(self.pos, field, reason)

    def finish(self, field: str) -> None:
        """Raise DecodeError if bytes are left."""
        if self.pos != self.end:
            self.fail(field, f"{self.end - self.pos} bytes follow the last field")

    def take(self, size: i64, field: str) -> i64:
        """Consume `size` bytes and return where they start."""
        pos = self.pos
        if size > self.end - pos:
            self.fail(field, f"truncated: {size} bytes wanted, {self.end - pos} left")
        self.pos = pos + size
        return pos

    def read_octet(self, field: str) -> i64:
        """Read an octet, 0 to 255."""
        pos = self.pos
        if pos >= self.end:
            self.fail(field, "truncated: no octet is left")
        self.pos = pos + 1
        return self.data[pos]

    def read_short(self, field: str) -> i64:
        """Read a short, 0 to 65 535."""
        pos = self.take(2, field)
        return i64(read_i16_be(self.data, pos)) & U16

    def read_long(self, field: str) -> i64:
        """Read a long, 0 to 2**32 - 1."""
        pos = self.take(4, field)
        return i64(read_i32_be(self.data, pos)) & U32

    def read_longlong(self, field: str) -> int:
        """Read a longlong, 0 to 2**64 - 1."""
        pos = self.take(8, field)
        value = read_i64_be(self.data, pos)
        if value >= 0:
            return value
        return int(value) + (1 << 64)

    def read_short_string(self, field: str) -> str:
        """Read a short string: UTF-8 of at most 255 bytes."""
        pos = self.pos
        if pos >= self.end:
            self.fail(field, "truncated: no octet is left")
        size: i64 = self.data[pos]
        start = pos + 1
        if size > self.end - start:
            self.fail(field, f"truncated: {size} bytes wanted, {self.end - start} left")
        self.pos = start + size
        if size == 0:
            return ""
        try:
            return self.data[start : start + size].decode("utf-8")
        except UnicodeDecodeError:
            raise DecodeError(start, field, "not UTF-8") from None

    def read_long_string(self, field: str) -> bytes:
        """Read a long string: any bytes, up to 2**32 - 1."""
        size = self.read_long(field)
        start = self.take(size, field)
        return self.data[start : start + size]

    def read_timestamp(self, field: str) -> datetime | EpochSeconds:
        """Read a timestamp, in whole seconds."""
        return from_seconds(self.read_longlong(field))

    # ── Asserts of domains ─────────────────────────────────────────────────────────────────────

    def check_length(self, value: str | bytes, limit: i64, field: str) -> None:
        """Raise DecodeError if the string that was just read is longer than `limit` bytes."""
        size = len(value.encode()) if isinstance(value, str) else len(value)
        if size > limit:
            self.fail(field, f"{size} bytes, not at most {limit}")

    def check_pattern(self, value: str, pattern: re.Pattern[str], field: str) -> None:
        """Raise DecodeError if the string that was just read does not match `pattern`."""
        if pattern.fullmatch(value) is None:
            self.fail(field, f"{value!r} does not match {pattern.pattern}")
