"""The position of a query: an offset for each partition of each stream.

    {"v":1,"streams":{"orders":{"id":"<incarnation>","p":{"0":123,"1":99}}}}

Each number is the offset of the next record to read. Spark compares offsets as JSON text, so keys
always have the same order. The first offset of a new query has ``"pin":true`` before `streams`: the
start is decided, but not yet written to the checkpoint. The end of the first batch of a query that
began on Spark 4.0 or 4.1 has ``"begin":{…}`` before `streams`: the start, in the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

VERSION: Final = 1

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")

LATEST: Final = -1
"""Stands for the offset after the last record."""
EARLIEST: Final = -2
"""Stands for the offset of the first record."""


class OffsetError(ValueError):
    """The value is not an offset of a query. The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """The position of a query in one stream: its incarnation, and the next offset by partition."""

    incarnation: str
    partitions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of a query. `pin` marks a start that is not written to the checkpoint yet.
    `begin` is the start of the query, if this is the end of its first batch and has to tell it."""

    streams: Mapping[str, PartitionOffset] = field(default_factory=dict)
    pin: bool = False
    begin: Mapping[str, PartitionOffset] | None = None

    def to_json(self) -> dict[str, object]:
        """Return the form that Spark writes: streams by name, partitions by number."""
        found: dict[str, object] = {"v": VERSION}
        if self.pin:
            found["pin"] = True
        if self.begin is not None:
            found["begin"] = _json(self.begin)
        found["streams"] = _json(self.streams)
        return found

    @classmethod
    def from_json(cls, found: object) -> Offset:
        """Parse an offset. Raises `OffsetError`."""
        if not isinstance(found, dict):
            raise OffsetError(f"an offset is a JSON object, not {found!r}"[:200])
        version = found.get("v")
        if type(version) is not int or version != VERSION:
            raise OffsetError(
                f"an offset of version {version!r}, and this release knows version {VERSION} only"
            )
        unknown = found.keys() - {"v", "pin", "begin", "streams"}
        streams, begin = found.get("streams"), found.get("begin", {})
        if unknown or not isinstance(streams, dict) or type(found.get("pin", False)) is not bool:
            raise OffsetError(f"an offset has v, streams and perhaps pin, not {sorted(found)}")
        if not isinstance(begin, dict):
            raise OffsetError(f"the begin of an offset is {begin!r}"[:300])
        return cls(
            {name: _position(name, streams[name]) for name in streams},
            bool(found.get("pin")),
            {name: _position(name, begin[name]) for name in begin} if "begin" in found else None,
        )

    def pinned(self) -> Offset:
        """Return a copy marked as a start that is not written to the checkpoint yet."""
        return Offset(self.streams, pin=True)

    def unpinned(self) -> Offset:
        """Return a copy without that mark."""
        return Offset(self.streams)

    def of(self, name: str, partition: int) -> int | None:
        """Return the next offset of a partition; None if it is unknown."""
        position = self.streams.get(name)
        return None if position is None else position.partitions.get(partition)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Yield stream, partition and offset, in order."""
        for name in sorted(self.streams):
            for number, offset in sorted(self.streams[name].partitions.items()):
                yield name, number, offset


def _json(streams: Mapping[str, PartitionOffset]) -> dict[str, object]:
    return {
        name: {
            "id": position.incarnation,
            "p": {str(number): offset for number, offset in sorted(position.partitions.items())},
        }
        for name, position in sorted(streams.items())
    }


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
