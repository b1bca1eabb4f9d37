"""Options of receivers for RabbitMQ's streams: where to begin, and which messages to get.

    receiver = await connection.receiver(
        rabbitmq.queue_address("clicks"), **rabbitmq.stream_options(offset="first")
    )

Each message has its offset in the message-annotation ``x-stream-offset``. A filter value is given
to a message in the annotation ``x-stream-filter-value`` when it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, TypedDict

from ferrymq.arguments import nearest
from ferrymq.durations import whole_seconds
from ferrymq.peers import RABBITMQ_POSITION
from ferrymq_codec.scalars import Described, Symbol, Timestamp

StreamOffset: TypeAlias = Literal["first", "last", "next"] | int | datetime | timedelta
"""A place in a stream."""

FILTER: Final = "rabbitmq:stream-filter"
MATCH_UNFILTERED: Final = "rabbitmq:stream-match-unfiltered"
_WORDS: Final = ("first", "last", "next")


class StreamOptions(TypedDict):
    """Arguments for `Connection.receiver`."""

    filters: dict[str, object]


def stream_options(
    *,
    offset: StreamOffset | None = None,
    filter_values: str | Sequence[str] | None = None,
    match_unfiltered: bool = False,
) -> StreamOptions:
    """Return the options of a receiver for a stream.

    `offset` is ``"first"``; ``"last"``, which is the beginning of the last chunk that RabbitMQ has
    written; ``"next"``, RabbitMQ's default; the offset of a message; an aware datetime; or a
    timedelta before now. RabbitMQ begins with the chunk that has the time, which may have earlier
    messages too.

    With `filter_values`, RabbitMQ leaves out chunks that have no message with one of these values,
    and with `match_unfiltered` it does not leave out those that have messages without a value. What
    it sends may have other values too: the program has to check each message.

    Raises ValueError for another word, a negative offset and a datetime without a time zone.
    """
    filters: dict[str, object] = {}
    if offset is not None:
        filters[RABBITMQ_POSITION] = Described(Symbol(RABBITMQ_POSITION), _position(offset))
    if filter_values is not None:
        values = filter_values if isinstance(filter_values, str) else list(filter_values)
        filters[FILTER] = Described(Symbol(FILTER), values)
        if match_unfiltered:
            filters[MATCH_UNFILTERED] = Described(Symbol(MATCH_UNFILTERED), True)
    elif match_unfiltered:
        raise ValueError("match_unfiltered has no meaning without filter_values")
    return {"filters": filters}


def _position(offset: StreamOffset) -> object:
    """Return the value of the filter for a place."""
    if isinstance(offset, str):
        if offset not in _WORDS:
            raise ValueError(
                f"offset {offset!r} is none of 'first', 'last', 'next', a number, a datetime and a "
                f"timedelta{nearest(offset, _WORDS)}"
            )
        return str(offset)
    if isinstance(offset, datetime):
        return Timestamp.from_datetime(offset)
    if isinstance(offset, timedelta):
        return f"{whole_seconds(offset, 'offset')}s"
    if offset < 0:
        raise ValueError(f"offset {offset} is negative")
    return int(offset)
