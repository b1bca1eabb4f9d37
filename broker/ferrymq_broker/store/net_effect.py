"""The combined effect of many batches: each record is written once, with its last value.

Later changes win. A record that is created and deleted within the batches, and did not exist
before, is never written. It is known not to exist if its number is above the highest one in the
records, which is how entries and deliveries are numbered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_broker.store.changes import DROP, DROP_RANGE, PUT
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.records import Records

# A key is a table (1), an id (8) and a number (8).
_PREFIX_BYTES: Final = 9
_KEY_BYTES: Final = 17

_PUT_HEAD: Final = 1 + _KEY_BYTES + 8
_DROP_BYTES: Final = 1 + _KEY_BYTES
_RANGE_BYTES: Final = 1 + _KEY_BYTES + 8

# How many changes are sorted per change written; and how many records make a run.
_GATHERED: Final = 10
_RUN: Final = 4


@final
class DroppedRanges:
    """Deleted ranges of numbers, disjoint and in order; each has the time of its last deletion."""

    __slots__ = ("firsts", "lasts", "times")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.times: list[int] = []

    def add(self, first: int, last: int, time: int) -> None:
        """Add a range that is deleted later than all others so far."""
        firsts = self.firsts
        lasts = self.lasts
        times = self.times
        # The ranges from `begin` to `end` overlap the new one.
        begin = bisect_left(lasts, first)
        end = begin
        while end < len(firsts) and firsts[end] <= last:
            end += 1
        new_firsts = [first]
        new_lasts = [last]
        new_times = [time]
        if begin < end:
            if firsts[begin] < first:
                new_firsts.insert(0, firsts[begin])
                new_lasts.insert(0, first - 1)
                new_times.insert(0, times[begin])
            if lasts[end - 1] > last:
                new_firsts.append(last + 1)
                new_lasts.append(lasts[end - 1])
                new_times.append(times[end - 1])
        firsts[begin:end] = new_firsts
        lasts[begin:end] = new_lasts
        times[begin:end] = new_times

    def time_of(self, number: int) -> int:
        """Return when a number was last in a deleted range; -1 if never."""
        index = bisect_left(self.lasts, number)
        if index < len(self.firsts) and self.firsts[index] <= number:
            return self.times[index]
        return -1


@final
class _Group:
    """The changes of one prefix: `keys`, of which those before `next` are done. `puts` counts the
    keys that get a value; these values have `bytes` bytes together. `begun` says whether the first
    change was made."""

    __slots__ = ("prefix", "keys", "next", "puts", "bytes", "begun")

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.keys: list[bytes] = []
        self.next: i64 = 0
        self.puts: i64 = 0
        self.bytes: i64 = 0
        self.begun = False


@final
class NetEffect:
    """A reader of batches (`begin`, `read`) and a writer of their effect (`rewind`, `write`).

    Both work in slices, so that an event loop can do other work in between.
    """

    __slots__ = (
        "changes",
        "longest",
        "_batches",
        "_batch",
        "_position",
        "_places",
        "_ranges",
        "_drops",
        "_next_drop",
        "_items",
        "_groups",
        "_waiting",
        "_group",
        "_gathered",
        "_highest",
    )

    def __init__(self) -> None:
        # The number of changes read.
        self.changes: i64 = 0
        # The bytes of the longest batch.
        self.longest: i64 = 0
        self._batches: list[bytes] = []
        self._batch = b""
        self._position: i64 = 0
        # Key -> the place of its last change: index of the batch, then position of checksum and
        # value. Places are in the order of the changes. The place of a deletion is complemented.
        self._places: dict[bytes, int] = {}
        self._ranges: dict[bytes, DroppedRanges] = {}
        self._drops: list[tuple[bytes, bytes]] = []
        self._next_drop: i64 = 0
        self._items: Iterator[tuple[bytes, int]] = iter(())
        # The changes by prefix, so that consecutive records are written together, and the group
        # being written.
        self._groups: dict[bytes, _Group] = {}
        self._waiting: Iterator[_Group] = iter(())
        self._group: _Group | None = None
        self._gathered = False
        # Prefix -> the highest number that the records have for it, -1 for none.
        self._highest: dict[bytes, int] = {}

    # -- reading -----------------------------------------------------------------------------

    def begin(self, batch: bytes) -> None:
        """Start to `read` this batch."""
        self._batches.append(batch)
        if len(batch) > self.longest:
            self.longest = len(batch)
        self._batch = batch
        self._position = 0

    def read(self, limit: int) -> bool:
        """Read up to `limit` changes of the batch. Return whether all of it is read. Raises
        `StoreDamaged` for bytes that are not a change."""
        batch = self._batch
        end: i64 = len(batch)
        position = self._position
        time: i64 = (i64(len(self._batches)) - 1) << 32
        left: i64 = limit
        places = self._places
        while position < end:
            if left == 0:
                self._position = position
                return False
            left -= 1
            kind: i64 = batch[position]
            if kind == PUT:
                if position + _PUT_HEAD > end:
                    raise _damaged(position)
                size = i64(read_i32_be(batch, position + 1 + _KEY_BYTES)) & 0xFFFF_FFFF
                if position + _PUT_HEAD + size > end:
                    raise _damaged(position)
                key = batch[position + 1 : position + 1 + _KEY_BYTES]
                places[key] = time | (position + _PUT_HEAD - 4)
                position += _PUT_HEAD + size
            elif kind == DROP:
                if position + _DROP_BYTES > end:
                    raise _damaged(position)
                places[batch[position + 1 : position + 1 + _KEY_BYTES]] = ~(time | position)
                position += _DROP_BYTES
            elif kind == DROP_RANGE:
                if position + _RANGE_BYTES > end:
                    raise _damaged(position)
                prefix = batch[position + 1 : position + 1 + _PREFIX_BYTES]
                ranges = self._ranges.get(prefix)
                if ranges is None:
                    ranges = self._ranges[prefix] = DroppedRanges()
                first = read_i64_be(batch, position + 1 + _PREFIX_BYTES)
                last = read_i64_be(batch, position + 1 + _KEY_BYTES)
                if first < 0:
                    raise _damaged(position)
                if first <= last:
                    ranges.add(first, last, time | position)
                position += _RANGE_BYTES
            else:
                raise _damaged(position)
            self.changes += 1
        self._position = position
        return True

    # -- writing -----------------------------------------------------------------------------

    def rewind(self) -> None:
        """Start to write, or start again."""
        self._highest = {}
        self._next_drop = 0
        self._drops = [
            (prefix + first.to_bytes(8, "big"), prefix + last.to_bytes(8, "big"))
            for prefix, ranges in self._ranges.items()
            for first, last in zip(ranges.firsts, ranges.lasts, strict=True)
        ]
        self._items = iter(self._places.items())
        self._groups = {}
        self._gathered = False

    def write(self, records: Records, limit: int) -> bool:
        """Make up to `limit` changes of records. Return whether all are made.

        Each 8 KiB of a value count as a further change.
        """
        while self._next_drop < len(self._drops):
            first, last = self._drops[self._next_drop]
            if not records.drop_range(first, last, limit):
                return False
            self._next_drop += 1
            limit -= 1
            if limit <= 0:
                return False
        if not self._gathered:
            self._gathered = self._gather(_GATHERED * limit)
            return False
        left: i64 = limit
        group = self._group
        while group is not None:
            if not group.begun:
                group.begun = True
                if group.puts >= _RUN:
                    records.extend(group.prefix, group.bytes // group.puts)
            left = self._write_group(group, records, left)
            if left <= 0:
                return False
            self._next_group()
            group = self._group
        return True

    def _gather(self, limit: i64) -> bool:
        """Sort up to `limit` changes by their prefixes. Return whether all are sorted."""
        groups = self._groups
        batches = self._batches
        for key, place in self._items:
            prefix = key[:_PREFIX_BYTES]
            group = groups.get(prefix)
            if group is None:
                group = groups[prefix] = _Group(prefix)
            group.keys.append(key)
            if place >= 0:
                group.puts += 1
                at: i64 = place & 0xFFFF_FFFF
                group.bytes += i64(read_i32_be(batches[place >> 32], at - 4)) & 0xFFFF_FFFF
            limit -= 1
            if limit <= 0:
                return False
        self._waiting = iter(groups.values())
        self._next_group()
        return True

    def _next_group(self) -> None:
        self._group = next(self._waiting, None)

    def _write_group(self, group: _Group, records: Records, left: i64) -> i64:
        """Make up to `left` changes of a group. Return how many are left, 0 if the group is not
        done."""
        has_ranges = len(self._ranges) > 0
        batches = self._batches
        places = self._places
        keys = group.keys
        while group.next < len(keys):
            key = keys[group.next]
            group.next += 1
            place: i64 = places[key]
            if has_ranges:
                ranges = self._ranges.get(key[:_PREFIX_BYTES])
                if ranges is not None:
                    time = place if place >= 0 else ~place
                    if ranges.time_of(read_i64_be(key, _PREFIX_BYTES)) > time:
                        continue
            if place < 0:
                prefix = key[:_PREFIX_BYTES]
                highest = self._highest.get(prefix)
                if highest is None:
                    highest = records.highest(prefix)
                    self._highest[prefix] = highest
                if read_i64_be(key, _PREFIX_BYTES) <= highest:
                    records.drop(key)
            else:
                batch = batches[place >> 32]
                at: i64 = place & 0xFFFF_FFFF
                size = i64(read_i32_be(batch, at - 4)) & 0xFFFF_FFFF
                records.put(key, memoryview(batch)[at : at + 4 + size])
                left -= size >> 13
            left -= 1
            if left <= 0:
                return 0
        return left


def _damaged(position: i64) -> StoreDamaged:
    return StoreDamaged(f"an invalid change is at byte {position} of a batch")
