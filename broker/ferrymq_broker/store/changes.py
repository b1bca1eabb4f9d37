"""What is to be on disk: changes, in the order they happened, one batch after another.

Whoever has something to keep writes it here as it changes, in the middle of a pass. Between passes
the store takes the batch that has come together and writes it to the journal while the next one
fills: whatever one pass has changed is on disk as a whole or not at all.

What must not be known outside before it is on disk waits for the number of its batch: a connection
keeps back its output (`ConnectionOutput.need`), a queue its new messages (`Stored.stabilise`).

The encoded changes of a batch, one after the other; numbers are big-endian:

    put         01 | table u8 | id i64 | number i64 | size u32 | crc u32 | value
    drop        02 | table u8 | id i64 | number i64
    drop range  03 | table u8 | id i64 | first i64 | last i64, included

`crc` is the CRC-32C of table, id, number and value in this form: a value that turns up in another
place is as wrong as one with another content. It is next to the value, as records keep the two.
"""

from __future__ import annotations

from typing import Any, Final, final

import google_crc32c
from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

PUT: Final = 1
DROP: Final = 2
DROP_RANGE: Final = 3

# The highest number there is: the end of a range that has none.
LAST: Final = 0x7FFF_FFFF_FFFF_FFFF

# A value of so many bytes is not copied into the batch, which refers to it.
_LARGE: Final = 262_144
# Parts of a batch, at most: a system call takes no more than 1024.
_PARTS: Final = 512

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend


class Stored:
    """Something that has records. `store_id` is their id, 0 if it is not stored."""

    __slots__ = ("store_id",)

    def __init__(self) -> None:
        self.store_id: i64 = 0

    def seal(self) -> None:
        """The batch is full that this one asked to `Changes.watch`."""

    def stabilise(self, number: i64) -> None:
        """The batch of this number, which was sealed last, is on disk."""


@final
class Changes:
    """The batch that is being filled has the `number`; those up to `stable` are on disk.

    `enabled` is whether there is a store: without one nothing is written here. `total` counts
    changes of all batches, `size` is how many bytes there are in this one. `claims` counts the
    times that a client is told of what others may have changed, in batches that are not on disk.
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
        self.enabled = False
        self.number: i64 = 1
        self.stable: i64 = 0
        self.total: i64 = 0
        self.claims: i64 = 0
        # Changes in this batch.
        self.count: i64 = 0
        self._writer = BytesWriter()
        # What comes before that in the batch, and how many bytes it has.
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
        """The store is gone: what changes from now on is nobody's concern but memory's."""
        self.enabled = False

    # -- ids ---------------------------------------------------------------------------------

    def new_id(self) -> i64:
        """An id that nothing has, for something that is to have records."""
        self._last_id += 1
        return self._last_id

    def has_id(self, id: i64) -> None:
        """Something that was recovered has this id."""
        if id > self._last_id:
            self._last_id = id

    # -- changes -----------------------------------------------------------------------------

    def put(self, table: i64, id: i64, number: i64, value: bytes) -> None:
        """Set the value of a record."""
        self.put_parts(table, id, number, value, b"")

    def put_parts(self, table: i64, id: i64, number: i64, head: bytes, rest: bytes) -> None:
        """Set the value of a record to `head` and `rest`."""
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
        # The upper half of what 32 bits have is negative to the writer.
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
        """End a part of the batch; another part follows."""
        part = self._writer.getvalue()
        self._writer = BytesWriter()
        self._parts.append(part)
        self._parts_bytes += len(part)

    def drop(self, table: i64, id: i64, number: i64) -> None:
        """Remove a record."""
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
        """Remove the records of this id with numbers from `first` to `last`, both included."""
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
        """Hold the output of this pass until all changes so far are on disk: its answers build on
        them."""
        self.claims += 1

    # -- batches -----------------------------------------------------------------------------

    def latest(self) -> i64:
        """The last batch with changes: when that is on disk, all that there is is."""
        if not self.enabled:
            return 0
        return self.number if self.count > 0 else self.number - 1

    def watch(self, stored: Stored) -> None:
        """Tell `stored` when this batch is full, and when it is on disk. To be called once for each
        batch."""
        self._watchers.append(stored)

    def close(self) -> list[bytes]:
        """Take the batch, in parts that follow each other, and begin the next one. To be called
        when no other is under way."""
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
        """The batch that was taken is on disk."""
        number = self.number - 1
        self.stable = number
        sealed = self._sealed
        self._sealed = []
        for stored in sealed:
            stored.stabilise(number)


def checksum(table: int, id: int, number: int, value: bytes) -> int:
    """The CRC-32C of a record."""
    prefix = BytesWriter()
    prefix.append(u8(table))
    write_i64_be(prefix, id)
    write_i64_be(prefix, number)
    crc: int = _extend_crc(_crc(prefix.getvalue()), value)
    return crc
