"""The partitioner of a virtual host: the function that chooses the partition of a key.

Every stream of the virtual host uses it, `ferrymq.partitioning.partition_of_key` by default. A key
must always have the same partition, also after a restart, so another function does not suit streams
that have records already.
"""

from __future__ import annotations

from collections.abc import Callable

# The number of a partition, from the bytes of the key (UTF-8 of a text) and the number of
# partitions.
Partitioner = Callable[[bytes, int], int]
