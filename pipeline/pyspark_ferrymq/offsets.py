"""The position of a query: an offset for each partition of each stream.

    {"v":1,"streams":{"orders":{"id":"<incarnation>","p":{"0":123,"1":99}}}}

Each number is the offset of the next record to read. Spark compares offsets as JSON text, so keys
always have the same order. The first offset of a new query has ``"pin":true`` before `streams`: the
start is decided, but not yet written to the checkpoint. The end of the first batch of a query has
``"begin":{…}`` before `streams`: the start, in the same form.

A query over several brokers has a position for each broker that has the stream, by the broker's id:

    {"v":2,"streams":{"orders":{"<broker>":{"id":"<incarnation>","p":{"0":123}}}}}

In Python, the key of a stream is its name, or a `BrokerStream` if there are several brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

VERSION: Final = 1
SEVERAL_BROKERS: Final = 2
"""The version of an offset that names brokers."""

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")

LATEST: Final = -1
"""Stands for the offset after the last record."""
EARLIEST: Final = -2
"""Stands for the offset of the first record."""


class OffsetError(ValueError):
    """The value is not an offset of a query. The message says what is wrong."""


class BrokerStream(str):
    """The key of a stream at one of several brokers. As a text it is both names, in this order, so
    keys are sorted by stream and then by broker."""

    name: str
    broker: str

    def __new__(cls, name: str, broker: str) -> BrokerStream:
        """Return the key of the stream `name` at the broker with the id `broker`."""
        key = super().__new__(cls, f"{name}\n{broker}")
        key.name, key.broker = name, broker
        return key

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """Return the arguments that make a copy."""
        return self.name, self.broker


def stream_key(name: str, broker: str) -> str:
    """Return the key of a stream at a broker; "" is the only broker."""
    return BrokerStream(name, broker) if broker else name


def name_of(key: str) -> str:
    """Return the name of the stream with this key."""
    return key.name if isinstance(key, BrokerStream) else key


def broker_of(key: str) -> str:
    """Return the id of the broker in this key of a stream, "" if it names none."""
    return key.broker if isinstance(key, BrokerStream) else ""


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """The position of a query in one stream: its incarnation, and the next offset by partition."""

    incarnation: str
    partitions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of a query, by the keys of streams. `pin` marks a start that is not written to
    the checkpoint yet. `begin` is the start of the query, if this is the end of its first
    batch."""

    streams: Mapping[str, PartitionOffset] = field(default_factory=dict)
    pin: bool = False
    begin: Mapping[str, PartitionOffset] | None = None

    @property
    def brokers(self) -> set[str]:
        """The ids of the brokers that the offset names; empty for version 1."""
        return {broker for key in self.streams if (broker := broker_of(key))}

    def to_json(self) -> dict[str, object]:
        """Return the form that Spark writes: streams by name, with several brokers then by broker,
        and partitions by number."""
        several = bool(self.brokers)
        found: dict[str, object] = {"v": SEVERAL_BROKERS if several else VERSION}
        if self.pin:
            found["pin"] = True
        if self.begin is not None:
            found["begin"] = _json(self.begin, several)
        found["streams"] = _json(self.streams, several)
        return found

    @classmethod
    def from_json(cls, found: object) -> Offset:
        """Parse an offset. Raises `OffsetError`."""
        if not isinstance(found, dict):
            raise OffsetError(f"an offset is a JSON object, not {found!r}"[:200])
        version = found.get("v")
        if type(version) is not int or version not in (VERSION, SEVERAL_BROKERS):
            raise OffsetError(
                f"an offset of version {version!r}, and this release knows the versions {VERSION}"
                f" and {SEVERAL_BROKERS} only"
            )
        unknown = found.keys() - {"v", "pin", "begin", "streams"}
        streams, begin = found.get("streams"), found.get("begin", {})
        if unknown or not isinstance(streams, dict) or type(found.get("pin", False)) is not bool:
            raise OffsetError(f"an offset has v, streams and perhaps pin, not {sorted(found)}")
        if not isinstance(begin, dict):
            raise OffsetError(f"the begin of an offset is {begin!r}"[:300])
        several = version == SEVERAL_BROKERS
        return cls(
            _positions(streams, several),
            bool(found.get("pin")),
            _positions(begin, several) if "begin" in found else None,
        )

    def pinned(self) -> Offset:
        """Return a copy marked as a start that is not written to the checkpoint yet."""
        return Offset(self.streams, pin=True)

    def unpinned(self) -> Offset:
        """Return a copy without that mark."""
        return Offset(self.streams)

    def of(self, key: str, partition: int) -> int | None:
        """Return the next offset of a partition; None if it is unknown."""
        position = self.streams.get(key)
        return None if position is None else position.partitions.get(partition)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Yield stream, as its key, partition and offset, in order."""
        for key in sorted(self.streams):
            for number, offset in sorted(self.streams[key].partitions.items()):
                yield key, number, offset


def _json(positions: Mapping[str, PartitionOffset], several: bool) -> dict[str, object]:
    """Return positions by the names of streams; if `several`, then by the ids of brokers."""
    found: dict[str, object] = {}
    for key, position in sorted(positions.items()):
        written = {
            "id": position.incarnation,
            "p": {str(number): offset for number, offset in sorted(position.partitions.items())},
        }
        if several:
            brokers = found.setdefault(name_of(key), {})
            assert isinstance(brokers, dict)
            brokers[broker_of(key)] = written
        else:
            found[key] = written
    return found


def _positions(found: Mapping[str, object], several: bool) -> dict[str, PartitionOffset]:
    """Parse what `_json` returns. Raises `OffsetError`."""
    if not several:
        return {name: _position(name, found[name]) for name in found}
    positions: dict[str, PartitionOffset] = {}
    for name, brokers in found.items():
        if not isinstance(brokers, dict):
            raise OffsetError(f"the offset of stream {name!r} has no brokers: {brokers!r}"[:300])
        for broker, position in brokers.items():
            positions[stream_key(name, broker)] = _position(name, position)
    return positions


def _position(name: str, found: object) -> PartitionOffset:
    if not isinstance(found, dict) or found.keys() != {"id", "p"}:
        raise OffsetError(f"the offset of stream {name!r} has not id and p, but {found!r}"[:300])
    incarnation, partitions = found["id"], found["p"]
    if not isinstance(incarnation, str) or not isinstance(partitions, dict):
        raise OffsetError(f"the offset of stream {name!r} is {found!r}"[:300])
    offsets: dict[int, int] = {}
    for number, offset in partitions.items():
        if not isinstance(number, str) or not _NUMBER.fullmatch(number):
            raise OffsetError(f"stream {name!r} has no partition {number!r}"[:300])
        if type(offset) is not int or not 0 <= offset < 1 << 63:
            raise OffsetError(
                f"{offset!r} is not an offset, in partition {number} of stream {name!r}"
            )
        offsets[int(number)] = offset
    return PartitionOffset(incarnation, offsets)
