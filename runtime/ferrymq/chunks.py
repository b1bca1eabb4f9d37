"""Chunks: many records of a stream in the payload of one transfer, laid out in columns.

A receiver on one partition asks for them with the properties `CHUNKS` and, to end before an
offset, `UNTIL` in its attach. Its deliveries then have the message-format `CHUNK_FORMAT` and this
payload. Numbers are little-endian.

| bytes | what |
|---|---|
| u8 | flags: `HAS_OFFSETS`, `HAS_FORMATS` |
| 3 | zero |
| i32 | `count`, of records |
| i64 × 3 | `first`, `next`: the offsets covered; `end`: the offset of the next record to come |
| i64 × count | times, in milliseconds since the epoch |
| i64 × count | offsets, with `HAS_OFFSETS`; without, they are `first`, `first` + 1, … |
| i32 × (count + 1) | where payloads begin in what follows, from 0, and where the last ends |
| i32 × count | message-formats, with `HAS_FORMATS`; without, all are 0 |
| | the payloads, one behind the other |

`ChunkBuilder` writes one, `Chunk` reads it.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i32_le,
    read_i64_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i32, i64

from ferrymq_codec.errors import DecodeError, EncodeError

# The message-format of a delivery that is a chunk.
CHUNK_FORMAT: Final = 0x464D4300

# Properties of an attach: a map of `BYTES` and `RECORDS`, and an offset.
CHUNKS: Final = "ferrymq:chunks"
UNTIL: Final = "ferrymq:until"
# Keys of the map.
BYTES: Final = "bytes"
RECORDS: Final = "records"

# The largest values that are granted: bytes of a chunk, and records.
MAX_CHUNK_BYTES: Final = 16 * 1024 * 1024
MAX_CHUNK_RECORDS: Final = 65_536

# Flags.
HAS_OFFSETS: Final = 1
HAS_FORMATS: Final = 2

# Bytes before the times, and bytes that each record adds at least.
HEAD_BYTES: Final = 32
RECORD_BYTES: Final = 12
_MOST_RECORD_BYTES: Final = 24

_ENDLESS: Final = 0x7FFF_FFFF_FFFF_FFFF
_LONGEST: Final = 0x7FFF_FFFF
_FORMATS: Final = 0x1_0000_0000


@final
class ChunkBuilder:
    """Builder of chunks, one after the other: `begin`, `add` for each record, `build`.

    `first` is the offset at which the chunk begins, `count` the number of its records.
    """

    __slots__ = (
        "first",
        "count",
        "_length",
        "_dense",
        "_plain",
        "_times",
        "_offsets",
        "_ends",
        "_formats",
        "_payloads",
    )

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, first: i64) -> None:
        """Begin a chunk of the records from the offset `first` on."""
        self.first: i64 = first
        self.count: i64 = 0
        self._length: i64 = 0
        # Whether the offsets are consecutive and all formats are 0.
        self._dense = True
        self._plain = True
        self._times = BytesWriter()
        self._offsets = BytesWriter()
        self._ends = BytesWriter()
        self._formats = BytesWriter()
        self._payloads: list[bytes] = []
        write_i32_le(self._ends, 0)

    @property
    def size(self) -> i64:
        """Return the size of a chunk of these records, in bytes."""
        size = HEAD_BYTES + 4 + RECORD_BYTES * self.count + self._length
        if not self._dense:
            size += 8 * self.count
        if not self._plain:
            size += 4 * self.count
        return size

    @property
    def payload_bytes(self) -> i64:
        """Return the size of the payloads, in bytes."""
        return self._length

    def fits(self, length: i64, limit: i64) -> bool:
        """Return whether the chunk would have at most `limit` bytes with another payload of this
        length, whatever its offset and format."""
        return (
            HEAD_BYTES + 4 + _MOST_RECORD_BYTES * (self.count + 1) + self._length + length <= limit
        )

    def add(self, payload: bytes, time: i64, offset: i64, format: i64) -> None:
        """Add a record; `time` is in milliseconds since the epoch.

        Offsets rise. Raises `EncodeError` if the payloads together are more than 2 GiB.
        """
        length = self._length + len(payload)
        if length > _LONGEST:
            raise EncodeError(
                "chunk.payloads", f"{length} bytes, more than the {_LONGEST} that fit"
            )
        count = self.count
        if self._dense and offset != self.first + count:
            self._dense = False
            for i in range(count):
                write_i64_le(self._offsets, self.first + i)
        if not self._dense:
            write_i64_le(self._offsets, offset)
        if self._plain and format != 0:
            self._plain = False
            for _ in range(count):
                write_i32_le(self._formats, 0)
        if not self._plain:
            write_i32_le(self._formats, i32(format - _FORMATS if format > _LONGEST else format))
        write_i64_le(self._times, time)
        write_i32_le(self._ends, i32(length))
        self._payloads.append(payload)
        self._length = length
        self.count = count + 1

    def build(self, next: i64, end: i64) -> bytes:
        """Return the chunk of the records before the offset `next`; `end` is that of the next
        record to come.

        The builder is empty then, and begins again at `next`.
        """
        first = self.first
        count = self.count
        if self._dense and next != first + count:
            self._dense = False
            for i in range(count):
                write_i64_le(self._offsets, first + i)
        head = BytesWriter()
        head.append((0 if self._dense else HAS_OFFSETS) | (0 if self._plain else HAS_FORMATS))
        head.write(b"\0\0\0")
        write_i32_le(head, i32(count))
        write_i64_le(head, first)
        write_i64_le(head, next)
        write_i64_le(head, end)
        parts = [
            head.getvalue(),
            self._times.getvalue(),
            self._offsets.getvalue(),
            self._ends.getvalue(),
            self._formats.getvalue(),
        ]
        parts.extend(self._payloads)
        self.begin(next)
        return b"".join(parts)


@final
class Chunk:
    """The records of one chunk, at their positions in its bytes. Raises `DecodeError` for invalid
    data.

    `count` is the number of records. They are all records with offsets from `first` to before
    `next`, except those that a filter has left out; `end` is the offset of the next record to come.
    `data` has the bytes, in which the columns begin at `times_at`, `offsets_at`, `ends_at`,
    `formats_at` and `payloads_at`; `offsets_at` and `formats_at` are -1 if there is no such column.
    """

    __slots__ = (
        "data",
        "flags",
        "count",
        "first",
        "next",
        "end",
        "times_at",
        "offsets_at",
        "ends_at",
        "formats_at",
        "payloads_at",
    )

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        length: i64 = len(data)
        if length < HEAD_BYTES:
            raise DecodeError(
                length, "chunk", f"{length} bytes, fewer than the {HEAD_BYTES} of a head"
            )
        flags = i64(read_i32_le(data, 0))
        if flags < 0 or flags > (HAS_OFFSETS | HAS_FORMATS):
            raise DecodeError(0, "chunk.flags", f"{data[:4].hex()} has bits that mean nothing")
        count = i64(read_i32_le(data, 4))
        if count < 0:
            raise DecodeError(4, "chunk.count", f"{count} records")
        self.flags: i64 = flags
        self.count: i64 = count
        self.first: i64 = read_i64_le(data, 8)
        self.next: i64 = read_i64_le(data, 16)
        self.end: i64 = read_i64_le(data, 24)
        self.times_at: i64 = HEAD_BYTES
        at: i64 = HEAD_BYTES + 8 * count
        self.offsets_at: i64 = -1
        if flags & HAS_OFFSETS:
            self.offsets_at = at
            at += 8 * count
        self.ends_at: i64 = at
        at += 4 * (count + 1)
        self.formats_at: i64 = -1
        if flags & HAS_FORMATS:
            self.formats_at = at
            at += 4 * count
        self.payloads_at: i64 = at
        if at > length:
            raise DecodeError(4, "chunk.count", f"{count} records, and there are {length} bytes")
        self._check_offsets()
        self._check_ends(length - at)

    def _check_offsets(self) -> None:
        first = self.first
        next = self.next
        if first < 0:
            raise DecodeError(8, "chunk.first", f"{first} is no offset")
        if next < first or next - first < self.count:
            raise DecodeError(16, "chunk.next", f"{next}, for {self.count} records from {first} on")
        if self.end < next:
            raise DecodeError(24, "chunk.end", f"{self.end} is before {next}")
        at = self.offsets_at
        if at < 0:
            if next - first != self.count:
                raise DecodeError(
                    16, "chunk.next", f"{next}, and without offsets it is {first} + {self.count}"
                )
            return
        data = self.data
        last = first - 1
        for _ in range(self.count):
            offset = read_i64_le(data, at)
            if offset <= last or offset >= next:
                raise DecodeError(at, "chunk.offsets", f"{offset} is not between {last} and {next}")
            last = offset
            at += 8

    def _check_ends(self, length: i64) -> None:
        data = self.data
        at = self.ends_at
        last: i64 = 0
        if read_i32_le(data, at) != 0:
            raise DecodeError(at, "chunk.ends", "the first is not 0")
        for _ in range(self.count):
            at += 4
            end = i64(read_i32_le(data, at))
            if end < last:
                raise DecodeError(at, "chunk.ends", f"{end} is less than the one before, {last}")
            last = end
        if last != length:
            raise DecodeError(at, "chunk.ends", f"the last is {last}, with {length} bytes there")

    def __len__(self) -> int:
        return int(self.count)

    def __repr__(self) -> str:
        return f"<chunk {self.first}..{self.next}, {self.count} records>"

    def payload(self, i: i64) -> bytes:
        """Return the message `i` as it was published. Raises `IndexError`."""
        at = self.ends_at + 4 * self._index(i)
        start = self.payloads_at + i64(read_i32_le(self.data, at))
        return self.data[start : self.payloads_at + i64(read_i32_le(self.data, at + 4))]

    def time(self, i: i64) -> int:
        """Return the time at which record `i` was appended, in ms since the epoch. Raises
        `IndexError`."""
        return int(read_i64_le(self.data, self.times_at + 8 * self._index(i)))

    def offset(self, i: i64) -> int:
        """Return the offset of record `i`. Raises `IndexError`."""
        index = self._index(i)
        if self.offsets_at < 0:
            return int(self.first + index)
        return int(read_i64_le(self.data, self.offsets_at + 8 * index))

    def format(self, i: i64) -> int:
        """Return the message-format of record `i`. Raises `IndexError`."""
        index = self._index(i)
        if self.formats_at < 0:
            return 0
        format = i64(read_i32_le(self.data, self.formats_at + 4 * index))
        return int(format if format >= 0 else format + _FORMATS)

    def _index(self, i: i64) -> i64:
        if i < 0 or i >= self.count:
            raise IndexError(f"record {i} of {self.count}")
        return i
