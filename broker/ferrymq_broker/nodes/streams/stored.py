"""The records of a stream, and how it comes back.

| table | id | number | value |
|---|---|---|---|
| `NODE` | the stream | 0 | what every node has; of a stream's own `Stream.describe_stored` |
| `PARTITION` | the partition | 0 | a map: `encode_partition` |
| `RECORD` | the partition | offset | the head of a record, then the message as it came |

The head of a record: when it was appended, in milliseconds since the epoch, the number of the
connection that brought it, which means something to this process alone, and the message-format.

    time i64 | origin i64 | format u32

A `PARTITION` says which stream and which number it is, where its records begin (`first`), an offset
that has been reached by the next record (`next`), and when the last one was appended (`time`). It
is written when the partition is made and whenever records are dropped. Later records speak for
themselves: the next offset is `next` or that behind the last record, whichever is higher. So it
never goes back, though no record be left.

Whoever makes a stream that is to be stored, and writes its `NODE`, calls `Stream.keep_stored` with
its id, before anybody can see it; the partitions then take care of themselves. To recover one:

    stream = Stream(address, space, policy)
    stream.restore(id, fields)                        # what describe_stored gave
    for id, _, value in scan(PARTITION):
        fields = decode_partition(value)              # fields.stream: the id of its stream
        partition = stream.restore_partition(id, fields)
    for id, offset, value in scan(RECORD):            # in order
        partition.restore_record(offset, value)       # b"" for one that cannot be read
    stream.restored()                                 # changes are taken, the time is known

Payloads are not kept on the way. A record that is missing or cannot be read costs those who come to
it their links, and nobody else anything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import decode_map, encode_map

# The length of the head of a record.
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
    """Return what a `PARTITION` says. Raises `StoreDamaged`."""
    fields = decode_map(value)
    numbers: list[int] = []
    for name in PartitionFields._fields:
        number = fields.get(name)
        if isinstance(number, bool) or not isinstance(number, int):
            raise StoreDamaged(f"the {name!r} of a partition is {number!r}")
        numbers.append(number)
    return PartitionFields(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])


def encode_head(time: i64, origin: i64, format: i64) -> bytes:
    """Return the head of a record."""
    w = BytesWriter()
    write_i64_be(w, time)
    write_i64_be(w, origin)
    # The upper half of what 32 bits have is negative to the writer.
    write_i32_be(w, i32(format - _FORMATS if format > _SIGNED else format))
    return w.getvalue()


def time_of(value: bytes) -> i64:
    """Return when the record of this value was appended."""
    return read_i64_be(value, 0)


def origin_of(value: bytes) -> i64:
    """Return the number of the connection that brought the record."""
    return read_i64_be(value, 8)


def format_of(value: bytes) -> i64:
    """Return the message-format of the record."""
    format = i64(read_i32_be(value, 16))
    return format if format >= 0 else format + _FORMATS
