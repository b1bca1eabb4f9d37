"""The records of a stream in the store, and how a stream is restored.

| table | id | number | value |
|---|---|---|---|
| `NODE` | the stream | 0 | the fields of every node, and those of `Stream.describe_stored` |
| `PARTITION` | the partition | 0 | a map: `encode_partition` |
| `RECORD` | the partition | offset | the head of a record, then the message as it came |

The head of a record: when it was appended, in milliseconds since the epoch, the number of the
connection that brought it, which is valid in this process only, and the message-format.

    time i64 | origin i64 | format u32

A `PARTITION` says which stream and which number it is, where its records begin (`first`), an offset
that the next record has reached (`next`), and when the last record was appended (`time`). It is
written when the partition is created and whenever records are dropped. The next offset is `next` or
the offset after the last stored record, whichever is higher. So offsets never go back, even if no
record is left.

To create a stored stream, the caller writes its `NODE` and calls `Stream.keep_stored` with its id,
before clients can see the stream; the partitions then store themselves. To recover a stream:

    stream = Stream(address, space, policy)
    stream.restore(id, fields)                        # what describe_stored gave
    for id, _, value in scan(PARTITION):
        fields = decode_partition(value)              # fields.stream: the id of its stream
        partition = stream.restore_partition(id, fields)
    for id, offset, value in scan(RECORD):            # in order
        partition.restore_record(offset, value)       # b"" for one that cannot be read
    stream.restored()                                 # changes are taken, the time is known

Payloads are not kept in memory meanwhile. A record that is missing or cannot be read ends only the
links that reach it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import decode_map, encode_map

# The length in bytes of the head of a record.
HEAD: Final = 20

_FORMATS: Final = 0x1_0000_0000
_SIGNED: Final = 0x7FFF_FFFF


class PartitionFields(NamedTuple):
    """The fields of a `PARTITION`."""

    stream: int
    number: int
    first: int
    next: int
    time: int


def encode_partition(fields: PartitionFields) -> bytes:
    """Return the value of a `PARTITION`."""
    return encode_map(fields._asdict())


def decode_partition(value: bytes) -> PartitionFields:
    """Return the fields in the value of a `PARTITION`. Raises `StoreDamaged`."""
    fields = decode_map(value)
    numbers: list[int] = []
    for name in PartitionFields._fields:
        number = fields.get(name)
        if isinstance(number, bool) or not isinstance(number, int):
            raise StoreDamaged(
                f"the field {name!r} of a stored partition has the invalid value {number!r}"
            )
        numbers.append(number)
    return PartitionFields(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])


def encode_head(time: i64, origin: i64, format: i64) -> bytes:
    """Return the head of a record."""
    w = BytesWriter()
    write_i64_be(w, time)
    write_i64_be(w, origin)
    # The writer takes a signed number, in which the upper half of 32 bits is negative.
    write_i32_be(w, i32(format - _FORMATS if format > _SIGNED else format))
    return w.getvalue()


def time_of(data: bytes, head: i64 = 0) -> i64:
    """Return when the record was appended whose head is at this place of the data."""
    return read_i64_be(data, head)


def origin_of(data: bytes, head: i64 = 0) -> i64:
    """Return the number of the connection that brought the record."""
    return read_i64_be(data, head + 8)


def format_of(data: bytes, head: i64 = 0) -> i64:
    """Return the message-format of the record."""
    format = i64(read_i32_be(data, head + 16))
    return format if format >= 0 else format + _FORMATS
