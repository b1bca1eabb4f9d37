"""The partition that Event Hubs chooses for a partition key.

Its clients publish the function, because those that buffer events choose the partition themselves:
Bob Jenkins' *lookup3* of the key's bytes, both of its halves combined by exclusive or, the lower 16
bits as a number with a sign, and the absolute value of its remainder by the number of partitions.
The remainder has the sign of the number, as in .NET and JavaScript. The client for Python takes a
remainder without sign: for half of the keys, its buffered producer chooses another partition.
"""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = 0xFFFF_FFFF
_SEED: Final = 0xDEAD_BEEF
_BLOCK: Final = 12
_WORDS: Final = struct.Struct("<III")
# The distances of the rotations, in the order of the steps.
_MIX: Final = (4, 6, 8, 16, 19, 4)
_FINAL: Final = (14, 11, 25, 16, 4, 14, 24)


def partition_of_hub(key: bytes, partitions: int) -> int:
    """Return the number of the partition for a key (UTF-8)."""
    return abs(hash_of_key(key)) % partitions


def hash_of_key(key: bytes) -> int:
    """Return the number for a key, from −32 768 to 32 767; 0 for the empty key."""
    if not key:
        return 0
    first, second = lookup3(key)
    number = (first ^ second) & 0xFFFF
    return number - 0x1_0000 if number >= 0x8000 else number


def lookup3(data: bytes) -> tuple[int, int]:
    """Return the two halves of lookup3's hash (``hashlittle2``), with seeds of 0."""
    a = b = c = (_SEED + len(data)) & _MASK
    at = 0
    while len(data) - at > _BLOCK:
        x, y, z = _WORDS.unpack_from(data, at)
        a, b, c = _mixed((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)
        at += _BLOCK
    rest = data[at:]
    if not rest:
        return c, b
    x, y, z = _WORDS.unpack(rest.ljust(_BLOCK, b"\0"))
    return _finished((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    """Mix three words with each other. Each step takes one from another, and adds it to the third;
    then all change places."""
    for bits in _MIX:
        a = ((a - c) & _MASK) ^ _rotated(c, bits)
        c = (c + b) & _MASK
        a, b, c = b, c, a
    return a, b, c


def _finished(a: int, b: int, c: int) -> tuple[int, int]:
    """Mix the last three words, and return two of them."""
    for bits in _FINAL:
        c = ((c ^ b) - _rotated(b, bits)) & _MASK
        a, b, c = b, c, a
    # Seven changes of places: the words are one step further than at the start.
    return b, a
