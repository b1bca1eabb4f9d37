"""Durations and moments of the public API, and the numbers that stand for them on the wire.

A duration is a number of seconds or a `datetime.timedelta`, in every call and option of the
clients. The wire has milliseconds (`Header.ttl`) or whole seconds (the timeout of a terminus).
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final, TypeAlias, overload

from ferrymq_codec.scalars import Timestamp

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""

Moment: TypeAlias = int | datetime
"""Milliseconds since the Unix epoch, or a datetime with a time zone."""

_MAX_UINT: Final = 0xFFFFFFFF
# Far below that in milliseconds.
_MAX_SECONDS: Final = 4_000_000


@overload
def seconds(duration: Duration) -> float: ...
@overload
def seconds(duration: Duration | None) -> float | None: ...
def seconds(duration: Duration | None) -> float | None:
    """Return a duration in seconds; None for None."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def check_duration(duration: Duration, name: str, instead: str = "") -> float:
    """Return a duration in seconds. `instead` says what else may be given.

    Raises TypeError if it is no duration, ValueError if it is negative or not a number.
    """
    if not isinstance(duration, int | float | timedelta):
        raise TypeError(f"{name} takes seconds or a timedelta, not {type(duration).__name__}")
    length = seconds(duration)
    if not length >= 0:
        raise ValueError(f"{name} {duration!r} is no time: give seconds from 0 on{instead}")
    return length


def milliseconds(duration: Duration, name: str) -> int:
    """Return a duration in milliseconds, as a uint: at most 49 days. A duration above 0 has at
    least one.

    Raises TypeError and ValueError.
    """
    # The usual case, without the cost of the checks: each message with a ttl comes here.
    if isinstance(duration, float | int) and 0 < duration < _MAX_SECONDS:
        return round(duration * 1000) or 1
    length = check_duration(duration, name) * 1000
    if length > _MAX_UINT:
        raise ValueError(f"{name} {duration!r} is above 4294967.295 seconds, which are 49 days")
    return round(length) or (1 if length else 0)


def whole_seconds(duration: Duration, name: str) -> int:
    """Return a duration in whole seconds, rounded up, as a uint. Raises TypeError and
    ValueError."""
    length = check_duration(duration, name)
    if length > _MAX_UINT:
        raise ValueError(f"{name} {duration!r} is above 4294967295 seconds")
    return math.ceil(length)


def timestamp(moment: Moment) -> int:
    """Return a moment in milliseconds since the Unix epoch. Raises ValueError for a datetime
    without a time zone."""
    return Timestamp.from_datetime(moment) if isinstance(moment, datetime) else moment
