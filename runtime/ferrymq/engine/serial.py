"""32-bit serial numbers (RFC 1982), which AMQP uses for delivery-ids, transfer-ids and counts.

`sequence-no` is one of these (AMQP 1.0 §2.8.10): it wraps from 2^32−1 to 0, and
"before" means "at most 2^31−1 behind".
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

MASK: Final = 0xFFFFFFFF


def serial_add(a: i64, n: i64) -> i64:
    """Return `a` plus `n` (which may be negative), wrapped to 32 bits."""
    return (a + n) & 0xFFFFFFFF


def serial_diff(a: i64, b: i64) -> i64:
    """Return how far `a` is ahead of `b`: −2^31 … 2^31−1."""
    d = (a - b) & 0xFFFFFFFF
    if d >= 0x80000000:
        return d - 0x100000000
    return d
