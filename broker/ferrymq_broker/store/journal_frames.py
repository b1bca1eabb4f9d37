"""The encoding of batches in a segment of the journal.

    magic u32 | segment u64 | number i64 | length u32 | changes u32 | crc u32 | the batch | zeros

Numbers are big-endian. `segment` is the number of the first batch of the segment, which is also in
the name of the file: a frame from an earlier use of the file is not accepted. `crc` is the CRC-32C
of the store's secret, of the header before it, and of the batch: a message that looks like a frame,
or a frame of another store, is not accepted either.

A frame begins at a block and is padded to whole blocks: acknowledged data is never overwritten to
add what follows it, and no write has to read first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import google_crc32c

BLOCK: Final = 4096

_MAGIC: Final = 0x464D5142
MAGIC: Final = _MAGIC.to_bytes(4, "big")
_HEAD: Final = struct.Struct(">IQqII")
_CRC: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEAD.size + _CRC.size

# The length of the longest possible batch.
MAX_BATCH_BYTES: Final = 0xFFFF_FFFF

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend
_ZEROS: Final = bytes(BLOCK)
# Bytes per call of the checksum, which holds the interpreter's lock meanwhile.
_AT_ONCE: Final = 1 << 18


class FrameHeader(NamedTuple):
    """The header in front of a batch."""

    segment: int
    number: int
    length: int
    changes: int
    crc: int

    @property
    def size(self) -> int:
        """Bytes from the beginning of the frame to that of the next one."""
        return frame_bytes(self.length)


def frame_bytes(length: int) -> int:
    """Return the bytes that the frame of a batch takes."""
    return (HEADER_BYTES + length + BLOCK - 1) // BLOCK * BLOCK


def encode(
    secret: bytes, segment: int, number: int, count: int, batch: Sequence[bytes]
) -> list[bytes]:
    """Return the parts of a frame, one after the other; those of the batch are not copied.

    Call it in a thread: the checksum of a large batch takes long, but releases the interpreter.
    """
    length = sum(map(len, batch))
    head = _HEAD.pack(_MAGIC, segment, number, length, count)
    crc: int = _crc(secret + head)
    for part in batch:
        if len(part) <= _AT_ONCE:
            crc = _extend_crc(crc, part)
            continue
        for at in range(0, len(part), _AT_ONCE):
            crc = _extend_crc(crc, part[at : at + _AT_ONCE])
    padding = -(HEADER_BYTES + length) % BLOCK
    return [head + _CRC.pack(crc), *batch, _ZEROS[:padding]]


def decode_header(data: bytes) -> FrameHeader | None:
    """Return the header at the beginning of `data`, None if it cannot be one."""
    if len(data) < HEADER_BYTES:
        return None
    magic, segment, number, length, count = _HEAD.unpack_from(data)
    if magic != _MAGIC or number < 1:
        return None
    return FrameHeader(segment, number, length, count, _CRC.unpack_from(data, _HEAD.size)[0])


def is_intact(secret: bytes, header: FrameHeader, batch: bytes) -> bool:
    """Return whether a batch is the one that the header belongs to."""
    if len(batch) != header.length:
        return False
    head = _HEAD.pack(_MAGIC, header.segment, header.number, header.length, header.changes)
    crc: int = _extend_crc(_crc(secret + head), batch)
    return crc == header.crc
