"""Timestamps of AMQP 0-9-1: seconds since the Unix epoch, unsigned 64 bits (AMQP 0-9-1 §4.2.5.4).

`EpochSeconds` derives from int, so this module is interpreted even in a compiled build.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Self

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
# The first second that a datetime cannot hold: that of the year 10 000.
_END: Final = 253_402_300_800


class EpochSeconds(int):
    """A timestamp after the year 9999, which a datetime cannot hold: seconds since the Unix epoch.

    Some clients write milliseconds where the specification wants seconds, so such values occur.
    Raises ValueError for a number that is negative or has more than 64 bits.
    """

    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        """Check the range."""
        if not 0 <= value < 1 << 64:
            raise ValueError(f"{value} is out of range for a timestamp: 0 to 2**64 - 1")
        return int.__new__(cls, value)

    def __repr__(self) -> str:
        return f"EpochSeconds({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


def from_seconds(seconds: int) -> datetime | EpochSeconds:
    """Return a timestamp as an aware datetime in UTC, or as `EpochSeconds` after the year 9999."""
    if seconds < _END:
        return datetime.fromtimestamp(seconds, UTC)
    return EpochSeconds(seconds)


def to_seconds(value: datetime) -> int:
    """Return an aware datetime in seconds, rounded down; raises ValueError for a naive one."""
    if value.utcoffset() is None:
        raise ValueError("a datetime needs a time zone to become a timestamp")
    return (value - _EPOCH) // _SECOND
