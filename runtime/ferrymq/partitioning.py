"""The partition of a stream for a key: the broker and the clients have this function."""

from __future__ import annotations

from zlib import crc32


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the CRC-32 (that of zlib and gzip) of the key, modulo the number of partitions."""
    return crc32(key) % partitions
