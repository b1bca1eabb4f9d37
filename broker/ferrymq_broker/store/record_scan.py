"""Functions that read many records at once, from keys and stored values; there may be millions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import google_crc32c
from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_broker.store.keys import encode_key
from ferrymq_broker.store.records import HEAD_BYTES, Brief, Part, Record

_KEY_BYTES: Final = 17
_CRC_BYTES: Final = 4
_PAGE: Final = 4096
# Up to this many unwanted records are skipped one by one, because moving the cursor is not faster.
_FEW: Final = 8

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend
# The constructor of a named tuple, without running Python code.
_new: Final[Any] = tuple.__new__


def take_records(
    items: Iterator[tuple[bytes, bytes]], table: int, records: list[Record], count: i64, most: i64
) -> bytes | None:
    """Append the next records of `table` to `records`: up to `count`, until they have `most` bytes.

    Stop at a damaged record and return its key. Return None otherwise, also at a record of another
    table and at the end of `items`.
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
    """Append parts of records, as `take_records` does, with only the bytes of a value that `brief`
    needs. A value cut short counts as at most a page.

    Stop before a long run of unwanted records, and append the key behind them to `beyond`.
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


def take_run(cursor: Any, key: bytes, count: i64, most: i64) -> list[bytes]:
    """Return what is stored for consecutive numbers, from that of `key` on: up to `count`, and
    hardly more than needed until the values have `most` bytes."""
    stored: list[bytes] = []
    if count <= 0 or not cursor.set_range(key):
        return stored
    items: Iterator[bytes] = cursor.iternext(keys=False)
    size: i64 = 0
    # Expect values as large as those before.
    wanted: i64 = 1
    while wanted > 0 and size < most:
        more = list(islice(items, wanted))
        if not more:
            break
        for one in more:
            size += len(one) - _CRC_BYTES
        stored += more
        taken: i64 = len(stored)
        wanted = 1 if size == 0 else (most - size) * taken // size
        if wanted < 1:
            wanted = 1
        if wanted > count - taken:
            wanted = count - taken
    number = read_i64_be(key, 9)
    # Keys come in order: if the last one is right, so are all. Copies of all keys would cost more.
    if cursor.key() != encode_key(key[0], read_i64_be(key, 1), number + len(stored) - 1):
        cursor.set_range(key)
        right: i64 = 0
        for found in islice(cursor.iternext(values=False), len(stored)):
            if found != encode_key(key[0], read_i64_be(key, 1), number + right):
                break
            right += 1
        del stored[right:]
    return stored
