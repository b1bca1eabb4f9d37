"""The partitioner of a virtual host: the function that chooses the partition of a key.

Every stream of the virtual host uses it. A key must always have the same partition, also after a
restart, so another function does not suit streams that have records already.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

# The number of a partition, from the bytes of the key (UTF-8 of a text) and the number of
# partitions.
Partitioner = Callable[[bytes, int], int]


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the CRC-32 (that of zlib and gzip) of the key, modulo the number of partitions."""
    return crc32(key) % partitions
