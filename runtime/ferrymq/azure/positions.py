"""Positions at which a receiver begins in a partition of a hub of Event Hubs."""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypedDict

from ferrymq_codec.scalars import Timestamp

_WORDS: Final = {"first": "-1", "next": "@latest"}


class StartingPosition(TypedDict):
    """Arguments for `Connection.receiver`."""

    selector: str


def starting_position(
    position: str | int | datetime, *, inclusive: bool = False
) -> StartingPosition:
    """Return the options of a receiver that begins behind a position, or with `inclusive` at it.

        receiver = await connection.receiver(
            azure.consumer_address("telemetry", 0), **azure.starting_position("first")
        )

    A str is the offset of an event, its message-annotation ``x-opt-offset``; ``"first"`` is the
    beginning of the partition, and ``"next"`` what is sent from now on. An int is the sequence
    number of an event (``x-opt-sequence-number``). An aware datetime is the time at which events
    were enqueued. Raises ValueError for a negative number, an offset with a quote, and a datetime
    without a time zone.
    """
    sign = ">=" if inclusive else ">"
    if isinstance(position, datetime):
        return enqueued_after(int(Timestamp.from_datetime(position)), sign)
    if isinstance(position, int):
        if position < 0:
            raise ValueError(f"the sequence number {position} is negative")
        return _selector("x-opt-sequence-number", sign, str(int(position)))
    if "'" in position or not position:
        raise ValueError(f"{position!r} is no offset")
    return _selector("x-opt-offset", sign, _WORDS.get(position, position))


def enqueued_after(moment: int, sign: str = ">") -> StartingPosition:
    """Return the options of a receiver that begins behind a time, in milliseconds since 1970."""
    return _selector("x-opt-enqueued-time", sign, str(moment))


def _selector(name: str, sign: str, value: str) -> StartingPosition:
    return {"selector": f"amqp.annotation.{name} {sign} '{value}'"}
