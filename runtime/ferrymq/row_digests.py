"""The sum of the digests of rows."""

from __future__ import annotations

from collections.abc import Callable

from librt.strings import read_i32_le
from mypy_extensions import i64


def sum_of_digests(rows: list[bytes], digest_of: Callable[[bytes], bytes]) -> int:
    """Return the sum of the first 16 bytes of each row's digest, as little-endian numbers."""
    # The sums of the four words of 32 bits: 64 bits hold those of any list.
    first: i64 = 0
    second: i64 = 0
    third: i64 = 0
    fourth: i64 = 0
    for row in rows:
        digest = digest_of(row)
        first += i64(read_i32_le(digest, 0)) & 0xFFFFFFFF
        second += i64(read_i32_le(digest, 4)) & 0xFFFFFFFF
        third += i64(read_i32_le(digest, 8)) & 0xFFFFFFFF
        fourth += i64(read_i32_le(digest, 12)) & 0xFFFFFFFF
    return int(first) + (int(second) << 32) + (int(third) << 64) + (int(fourth) << 96)
