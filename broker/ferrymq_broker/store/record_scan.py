"""Records out of keys and what is stored for them: many at once, as there may be millions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import google_crc32c
from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_broker.store.keys import encode_key
from ferrymq_broker.store.records import HEAD_BYTES, Brief, Part, Record

_KEY_BYTES: Final = 17
_CRC_BYTES: Final = 4
_PAGE: Final = 4096
# So many records are passed one by one: the cursor would not be there sooner.
_FEW: Final = 8

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend
# What the class itself does, without a call of Python in between.
_new: Final[Any] = tuple.__new__


def take_records(
    items: Iterator[tuple[bytes, bytes]], table: int, records: list[Record], count: i64, most: i64
) -> bytes | None:
    """Append the next records of `table` to `records`: up to `count`, until they have `most` bytes.

    The answer is the key of a damaged one, where it ends. It ends without any at a record of
    another table, and at the end of `items`.
    """
    wanted: i64 = table
    size: i64 = 0
    while count > 0 and size < most:
        item = next(items, None)
        if item is None:
            return None
        key, stored = item
        if i64(key[0]) != wanted:
            return None
        count -= 1
        size += len(stored)
        if len(key) != _KEY_BYTES or len(stored) < _CRC_BYTES:
            return key
        value = stored[_CRC_BYTES:]
        crc: int = _extend_crc(_crc(key), value)
        if i64(crc) != i64(read_i32_be(stored, 0)) & 0xFFFF_FFFF:
            return key
        records.append(_new(Record, (read_i64_be(key, 1), read_i64_be(key, 9), value)))
    return None


def take_parts(
    items: Iterator[tuple[memoryview, memoryview]],
    table: int,
    brief: Brief,
    parts: list[Part],
    count: i64,
    most: i64,
    beyond: list[bytes],
) -> bytes | None:
    """As `take_records`, with no more of each value than `brief` wants; what is left out counts a
    page.

    At many records that nobody asks for it ends, and `beyond` has the key behind them.
    """
    wanted: i64 = table
    taken: i64 = 0
    while count > 0 and taken < most:
        item = next(items, None)
        if item is None:
            return None
        key = bytes(item[0])
        view = item[1]
        if i64(key[0]) != wanted:
            return None
        size: i64 = len(view) - _CRC_BYTES
        if len(key) != _KEY_BYTES or size < 0:
            return key
        id = read_i64_be(key, 1)
        number = read_i64_be(key, 9)
        last: i64 = brief.passed(id, number)
        if last >= number + _FEW:
            beyond.append(encode_key(table, id, last + 1))
            return None
        if last >= 0:
            continue
        count -= 1
        if size > HEAD_BYTES:
            head = bytes(view[_CRC_BYTES : _CRC_BYTES + HEAD_BYTES])
            if brief.suffices(id, head):
                parts.append(_new(Part, (id, number, head, size)))
                taken += size if size < _PAGE else _PAGE
                continue
        taken += size
        stored = bytes(view)
        value = stored[_CRC_BYTES:]
        crc: int = _extend_crc(_crc(key), value)
        if i64(crc) != i64(read_i32_be(stored, 0)) & 0xFFFF_FFFF:
            return key
        parts.append(_new(Part, (id, number, value, size)))
    return None


def take_values(
    items: Iterator[tuple[bytes, bytes]], key: bytes, end: i64, most: i64
) -> list[bytes]:
    """The values of the records from the one of `key` on, with numbers without gaps before `end`.

    They end before one that is damaged, and when they have `most` bytes together.
    """
    values: list[bytes] = []
    if len(key) != _KEY_BYTES:
        return values
    prefix = key[:9]
    number = read_i64_be(key, 9)
    size: i64 = 0
    while number < end and size < most:
        item = next(items, None)
        if item is None:
            break
        found, stored = item
        if len(found) != _KEY_BYTES or len(stored) < _CRC_BYTES:
            break
        if read_i64_be(found, 9) != number or not found.startswith(prefix):
            break
        value = stored[_CRC_BYTES:]
        crc: int = _extend_crc(_crc(found), value)
        if i64(crc) != i64(read_i32_be(stored, 0)) & 0xFFFF_FFFF:
            break
        values.append(value)
        size += len(value)
        number += 1
    return values
