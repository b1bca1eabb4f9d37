"""The assignment of the positions in an offset to the brokers that are there.

A position belongs to the broker with the id that the offset names. An offset of version 1 names no
broker, and a single broker that becomes a cluster gets another id; then the position belongs to the
broker at which the stream has the same incarnation. Incarnations are UUIDs, so a position is never
applied to another broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from pyspark_ferrymq.data_loss import Loss
from pyspark_ferrymq.offsets import (
    BrokerStream,
    Offset,
    PartitionOffset,
    broker_of,
    name_of,
    stream_key,
)
from pyspark_ferrymq.stream_metadata import StreamRanges

LOST: Final = (
    "no URL leads to this broker any more. If its URL was taken out of the option 'url', add it"
    " again; if the broker has lost its store, its records are gone"
)
UNPLACED: Final = (
    "no broker has this stream as it was: it was deleted or made again, or no URL leads to its"
    " broker any more (option 'url')"
)


def place(offset: Offset, found: Mapping[str, StreamRanges], ids: Mapping[str, str]) -> Offset:
    """Return the offset with the keys that streams have now.

    `found` has the ranges of streams, and `ids` is that of `StreamService.broker_ids`. A position
    whose broker is not there keeps its key.
    """
    if not offset.brokers and not any(ids.values()):
        return offset
    there = {(name_of(key), ranges.incarnation): key for key, ranges in found.items()}
    placed: dict[str, PartitionOffset] = {}
    # Positions whose broker is named come last: they are certain.
    for key in sorted(offset.streams, key=lambda key: broker_of(key) in ids):
        position = offset.streams[key]
        name, broker = name_of(key), broker_of(key)
        if broker in ids:
            placed[stream_key(name, ids[broker])] = position
        else:
            placed[there.get((name, position.incarnation), key)] = position
    return Offset(placed, offset.pin)


def unplaced(offset: Offset, ids: Mapping[str, str]) -> list[str]:
    """Return the keys in a placed offset whose brokers are not there."""
    if not offset.brokers and not any(ids.values()):
        return []
    known = set(ids.values()) or {""}
    return [key for key in sorted(offset.streams) if broker_of(key) not in known]


def with_lost_brokers(losses: Iterable[Loss], lost: Iterable[str]) -> list[Loss]:
    """Return the losses with the right reason for the streams of brokers that are not there."""
    keys = set(lost)
    return [
        (
            replace(loss, reason=LOST if broker_of(loss.stream) else UNPLACED)
            if loss.stream in keys
            else loss
        )
        for loss in losses
    ]


def first_positions(start: Offset, found: Mapping[str, StreamRanges]) -> dict[str, PartitionOffset]:
    """Return the first positions in the streams of brokers that the query does not know yet.

    They become the end of a batch in which nothing is read from these brokers, so that the next
    batch begins there, however often it is repeated.
    """
    known = start.brokers
    return {
        key: PartitionOffset(
            ranges.incarnation, {number: one.first for number, one in ranges.partitions.items()}
        )
        for key, ranges in found.items()
        if isinstance(key, BrokerStream) and key.broker not in known
    }
