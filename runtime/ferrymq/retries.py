"""Retries of a worker: what a handler raises, when a message is tried again, how often it was.

The number of failures is kept in the message, in the annotation ``x-opt-retries``: a map with the
`count` of failures, and the delivery-count (`deliveries`) and the number of times it was dead
lettered (`deaths`) when that was written. Deliveries that have failed since then without a word of
the worker, because it was killed, count too. A dead letter that was moved back starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ferrymq.durations import Duration, check_duration
from ferrymq.message import Message
from ferrymq_codec.scalars import UInt

RETRIES: Final = "x-opt-retries"
_DEATHS: Final = "x-opt-deadletter-count"

_FIRST: Final = 1.0
_LONGEST: Final = 300.0

RetryDelay: TypeAlias = Duration | Callable[[int], Duration]
"""How long to wait before a message is tried again; a function gets the number of its failures."""


class Retry(Exception):
    """Raised by the handler of a worker: the message is to be tried again, after `delay` or as the
    worker does. It counts as a failure."""

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.delay: float | None = None if delay is None else check_duration(delay, "delay")


class Reject(Exception):
    """Raised by the handler of a worker: the message cannot be handled, now or later. It is
    rejected with the reason, so that its queue sends it to its dead letters."""

    def __init__(self, reason: str = "", *, condition: str = "ferrymq:rejected") -> None:
        super().__init__(reason or "the handler rejected the message")
        self.condition = condition


def backoff(failures: int) -> float:
    """Return a second before the second attempt and twice as long before each later one, at most
    five minutes; a random part of it, at least half."""
    longest = min(_LONGEST, _FIRST * 2.0 ** min(failures - 1, 30))
    # Importing it takes longer than this module.
    import random

    return longest * (1 + random.random()) / 2


def delay_of(delay: RetryDelay, failures: int) -> float:
    """Return the seconds to wait after so many failures."""
    return check_duration(delay(failures) if callable(delay) else delay, "retry_delay")


def failures_of(message: Message) -> int:
    """Return how many attempts to handle the message have failed."""
    annotations = message.message_annotations
    noted = annotations.get(RETRIES)
    count = message.delivery_count
    deaths = _number(annotations.get(_DEATHS))
    if not isinstance(noted, dict):
        # Its deliveries before it was a dead letter count no more.
        return 0 if deaths else count
    if _number(noted.get("deaths")) != deaths:
        return 0
    return _number(noted.get("count")) + max(0, count - _number(noted.get("deliveries")))


def note_of(message: Message, failures: int, deliveries: int) -> dict[str, object]:
    """Return the annotation for a message that has failed so often, and whose header counts so many
    deliveries."""
    deaths = _number(message.message_annotations.get(_DEATHS))
    return {"count": UInt(failures), "deliveries": UInt(deliveries), "deaths": UInt(deaths)}


def _number(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
