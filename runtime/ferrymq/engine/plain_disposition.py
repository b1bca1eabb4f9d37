"""Dispositions of the usual shape: a receiver accepts deliveries (AMQP 1.0 §2.7.6, §3.4.2).

Nearly all dispositions are like this. `PlainDisposition` reads such a disposition field by field
into numbers, without an object for it and for its state. Any other disposition is left to the
decoder of the specification's type, which also finds what is wrong with a malformed one.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_codec import codes
from ferrymq_types import descriptors

_U32: Final = 0xFFFFFFFF
# The fields up to the state, and all fields.
_UP_TO_STATE: Final = 5
_FIELDS: Final = 6
# The state: a described list without fields.
_STATE: Final = codes.SMALL_ULONG << 16 | descriptors.ACCEPTED << 8 | codes.LIST0
# The least bytes: the list and the role, both numbers, `settled` and the state.
_LEAST: Final = 12


@final
class PlainDisposition:
    """Fields of the disposition that was read last. `last` is `first` if the disposition has no
    `last`."""

    __slots__ = ("first", "last", "settled")

    def __init__(self) -> None:
        self.first: i64 = 0
        self.last: i64 = 0
        self.settled: bool = False

    def read(self, data: bytes, pos: i64, end: i64) -> bool:
        """Read the list of a disposition that begins at `pos`, and return true.

        Return false if the disposition has another shape or does not end at `end`; it may be legal.
        """
        if pos + _LEAST > end:
            return False
        # Four bytes at a time: the list and the role.
        word = i64(read_i32_be(data, pos))
        count = (word >> 8) & 0xFF
        if (
            (word >> 24) & 0xFF != codes.LIST8
            or pos + 2 + ((word >> 16) & 0xFF) != end
            or word & 0xFF != codes.TRUE
            or (count != _UP_TO_STATE and count != _FIELDS)
        ):
            return False
        # `settled` and `batchable` have one byte each, and the state has four: as many as fields.
        flags = end - count
        if i64(read_i32_be(data, flags + 1)) != _STATE:
            return False
        settled = i64(data[flags])
        if settled != codes.TRUE and settled != codes.FALSE and settled != codes.NULL:
            return False
        self.settled = settled == codes.TRUE
        if count == _FIELDS:
            batchable = i64(data[end - 1])
            if batchable != codes.FALSE and batchable != codes.TRUE and batchable != codes.NULL:
                return False
        pos += 4
        # Eight bytes: the first number, and at least the code of the last.
        word = read_i64_be(data, pos)
        code = (word >> 56) & 0xFF
        if code == codes.UINT:
            self.first = (word >> 24) & _U32
            code = (word >> 16) & 0xFF
            pos += 5
        elif code == codes.SMALL_UINT:
            self.first = (word >> 48) & 0xFF
            code = (word >> 40) & 0xFF
            pos += 2
        else:
            return False
        size = flags - pos
        if size == 1 and code == codes.NULL:
            self.last = self.first
        elif size == 5 and code == codes.UINT:
            self.last = i64(read_i32_be(data, pos + 1)) & _U32
        elif size == 2 and code == codes.SMALL_UINT:
            self.last = i64(data[pos + 1])
        else:
            return False
        return True
