"""The changes to write to disk, in order, in numbered batches.

Code that changes stored state records the change here at once, in the middle of a pass of the event
loop. Between passes the store takes the batch collected so far and writes it to the journal, while
the next batch fills. So all changes of one pass are on disk, or none.

Whatever must not become visible before it is on disk waits for the number of its batch: a
connection keeps back its output (`ConnectionOutput.need`), a queue its new messages
(`Stored.stabilise`).

A batch is the sequence of its encoded changes. Numbers are big-endian:

    put         01 | table u8 | id i64 | number i64 | size u32 | crc u32 | value
    drop        02 | table u8 | id i64 | number i64
    drop range  03 | table u8 | id i64 | first i64 | last i64, included

`crc` is the CRC-32C of table, id, number and value in this form, so a value stored under another
key is detected like a damaged one. It is next to the value because records keep the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import google_crc32c
from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

PUT: Final = 1
DROP: Final = 2
DROP_RANGE: Final = 3

# The highest number there is: the end of a range without an upper limit.
LAST: Final = 0x7FFF_FFFF_FFFF_FFFF

# A value of at least this many bytes is referred to by the batch instead of copied into it.
_LARGE: Final = 262_144
# The most parts of a batch: a system call accepts no more than 1024.
_PARTS: Final = 512

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend


class Stored:
    """The interface of an object that has records. `store_id` is their id, 0 if the object is not
    stored."""

    __slots__ = ("store_id",)

    def __init__(self) -> None:
        self.store_id: i64 = 0

    def seal(self) -> None:
        """Handle that the batch is complete for which this object called `Changes.watch`."""

    def stabilise(self, number: i64) -> None:
        """Handle that the batch of this number, the one last sealed, is on disk."""


@final
class StableCall(Stored):
    """A function to call when a batch is on disk."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call

    def stabilise(self, number: i64) -> None:
        """Handle that the batch is on disk."""
        self._call()


@final
class Changes:
    """The batch being filled, which has the `number`; batches up to `stable` are on disk.

    `enabled` says whether there is a store: without one, changes are ignored. `total` counts the
    changes of all batches, `size` the bytes in this batch. `claims` counts how often a client is
    told about state that other clients may have changed in batches that are not on disk yet.
    """

    __slots__ = (
        "enabled",
        "number",
        "stable",
        "total",
        "claims",
        "count",
        "_writer",
        "_parts",
        "_parts_bytes",
        "_watchers",
        "_sealed",
        "_last_id",
    )

    def __init__(self) -> None:
        self.enabled: bool = False
        self.number: i64 = 1
        self.stable: i64 = 0
        self.total: i64 = 0
        self.claims: i64 = 0
        # Changes in this batch.
        self.count: i64 = 0
        self._writer = BytesWriter()
        # The parts of the batch that come before `_writer`, and their bytes.
        self._parts: list[bytes] = []
        self._parts_bytes: i64 = 0
        self._watchers: list[Stored] = []
        self._sealed: list[Stored] = []
        self._last_id: i64 = 0

    @property
    def size(self) -> i64:
        """Bytes in the batch that is being filled."""
        return self._parts_bytes + len(self._writer)

    def stop(self) -> None:
        """Ignore all further changes, because the store is closed or has failed."""
        self.enabled = False

    # -- ids ---------------------------------------------------------------------------------

    def new_id(self) -> i64:
        """Return an unused id for an object that will have records."""
        self._last_id += 1
        return self._last_id

    def has_id(self, id: i64) -> None:
        """Register the id of a recovered object, so that `new_id` does not return it."""
        if id > self._last_id:
            self._last_id = id

    # -- changes -----------------------------------------------------------------------------

    def put(self, table: i64, id: i64, number: i64, value: bytes) -> None:
        """Set the value of a record."""
        self.put_parts(table, id, number, value, b"")

    def put_parts(self, table: i64, id: i64, number: i64, head: bytes, rest: bytes) -> None:
        """Set the value of a record to `head` followed by `rest`."""
        if not self.enabled:
            return
        w = self._writer
        w.append(u8(PUT))
        prefix = BytesWriter()
        prefix.append(u8(table))
        write_i64_be(prefix, id)
        write_i64_be(prefix, number)
        key = prefix.getvalue()
        w.write(key)
        crc: int = _crc(key + head)
        if rest:
            crc = _extend_crc(crc, rest)
        size: i64 = len(head) + len(rest)
        write_i32_be(w, i32(size))
        # `write_i32_be` takes a signed number: the upper half of the 32-bit range is negative.
        write_i32_be(w, i32(crc - 0x1_0000_0000 if crc > 0x7FFF_FFFF else crc))
        w.write(head)
        if len(rest) >= _LARGE:
            self._end_part()
            self._parts.append(rest)
            self._parts_bytes += len(rest)
        elif rest:
            w.write(rest)
        self.count += 1
        self.total += 1

    def _end_part(self) -> None:
        """Append the bytes written so far to the parts of the batch, and start another part."""
        part = self._writer.getvalue()
        self._writer = BytesWriter()
        self._parts.append(part)
        self._parts_bytes += len(part)

    def drop(self, table: i64, id: i64, number: i64) -> None:
        """Delete a record."""
        if not self.enabled:
            return
        w = self._writer
        w.append(u8(DROP))
        w.append(u8(table))
        write_i64_be(w, id)
        write_i64_be(w, number)
        self.count += 1
        self.total += 1

    def drop_range(self, table: i64, id: i64, first: i64, last: i64) -> None:
        """Delete the records of this id with numbers from `first` to `last`, both included."""
        if not self.enabled:
            return
        w = self._writer
        w.append(u8(DROP_RANGE))
        w.append(u8(table))
        write_i64_be(w, id)
        write_i64_be(w, first)
        write_i64_be(w, last)
        self.count += 1
        self.total += 1

    def claim(self) -> None:
        """Note that this pass tells its client of earlier changes, which must be on disk first."""
        self.claims += 1

    # -- batches -----------------------------------------------------------------------------

    def latest(self) -> i64:
        """Return the last batch with changes, 0 without a store: once it is on disk, all changes
        are."""
        if not self.enabled:
            return 0
        return self.number if self.count > 0 else self.number - 1

    def watch(self, stored: Stored) -> None:
        """Tell `stored` when this batch is complete and when it is on disk. Call it once for each
        batch."""
        self._watchers.append(stored)

    def close(self) -> list[bytes]:
        """Return the batch, in parts that follow each other, and begin the next one. Call it when
        no other batch is being written."""
        for stored in self._watchers:
            stored.seal()
        self._sealed = self._watchers
        self._watchers = []
        self._end_part()
        parts = self._parts
        self._parts = []
        self._parts_bytes = 0
        self.number += 1
        self.count = 0
        return parts if len(parts) <= _PARTS else [b"".join(parts)]

    def settle(self) -> None:
        """Record that the batch taken by `close` is on disk, and tell its watchers."""
        number = self.number - 1
        self.stable = number
        sealed = self._sealed
        self._sealed = []
        for stored in sealed:
            stored.stabilise(number)
