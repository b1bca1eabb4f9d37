"""Partitions of streams: which one a key has, and which broker has it. The broker and the clients
use this module.

The placement of a stream is a list of texts, each with partitions and the URLs of their broker:
``4-7 amqp://b.example``, or ``8 amqp://b1.example,amqp://b2.example`` for the members of a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit
from zlib import crc32

from ferrymq_types.transport import PORT, SECURE_PORT

MOST_PARTITIONS: Final = 1024
"""The most partitions that a placement may have."""

PARTITION: Final = "x-opt-partition"
PARTITION_KEY: Final = "x-opt-partition-key"
"""Message annotations that choose the partition: by number, and by key."""

PARTITIONS_ON: Final = "ferrymq:partitions-on"
"""In the info of the error for a link to a whole stream on several brokers: its placement."""

URLS: Final = "ferrymq:urls"
"""In the info of a redirect of a link: all URLs of the broker."""

_FORM: Final = "an entry is written NUMBER-NUMBER URL, or NUMBER URL"
_PORTS: Final = {"amqp": PORT, "amqps": SECURE_PORT}


def parse_placement(entries: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the URLs of the broker of each partition, by number; empty without any entry.

    Raises ValueError if an entry has another form, and if a number is missing or repeated.
    """
    found: dict[int, tuple[str, ...]] = {}
    for entry in entries:
        numbers, _, text = entry.strip().partition(" ")
        urls = tuple(url.strip() for url in text.split(","))
        for url in urls:
            endpoint_of(url)
        first, dash, last = numbers.partition("-")
        low = _number(first, entry)
        high = _number(last, entry) if dash else low
        if high < low:
            raise ValueError(f"{entry!r}: {_FORM}, the lower number first")
        for number in range(low, high + 1):
            if number in found:
                raise ValueError(f"{entry!r}: partition {number} has an entry already")
            found[number] = urls
    for number in range(len(found)):
        if number not in found:
            raise ValueError(f"partition {number} has no entry")
    return [found[number] for number in range(len(found))]


def _number(text: str, entry: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{entry!r}: {_FORM}")
    number = int(text) if len(text) <= 9 else MOST_PARTITIONS
    if number >= MOST_PARTITIONS:
        raise ValueError(f"{entry!r}: the highest possible partition is {MOST_PARTITIONS - 1}")
    return number


def endpoint_of(url: str) -> tuple[str, int]:
    """Return the host, in lower case, and the port of a URL that clients connect to. Raises
    ValueError."""
    parts = urlsplit(url)
    default = _PORTS.get(parts.scheme)
    if default is None or not parts.hostname or "@" in url or parts.path or parts.query:
        raise ValueError(
            f"{url if '@' not in url else parts.hostname!r}: the URL of a broker is written "
            "amqp://HOST:PORT or amqps://HOST:PORT"
        )
    return parts.hostname, parts.port or default


def is_at(urls: Sequence[str], advertised: str) -> bool:
    """Return whether one of the URLs is that of the broker that advertises this URL; empty: of a
    broker without one."""
    if not advertised:
        return False
    own = endpoint_of(advertised)
    return any(endpoint_of(url) == own for url in urls)


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the CRC-32 (that of zlib and gzip) of the key, modulo the number of partitions."""
    return crc32(key) % partitions
