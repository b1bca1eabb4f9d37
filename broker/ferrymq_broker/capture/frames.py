"""What goes between the broker and the process that writes files.

To the process, through its standard input: frames, in little-endian

    size u32 | kind u8 | body

| kind | body |
|---|---|
| `OPEN` | JSON: `id`, `stream`, `incarnation`, `directory` |
| `CHUNK` | id u32, partition u32, epoch u32, a chunk (`ferrymq.chunks`) |
| `DROP` | JSON: `id`; the stream is no more, close its files |
| `FLUSH` | close all files |

`id` is a number for the stream while the process lives. The epoch of a partition rises whenever the
broker goes back in it, so that chunks that were on their way are told from those that follow.

From the process, through its standard output: a JSON object in each line, with its `kind`:

| kind | what | |
|---|---|---|
| `found` | `id`, `next`: offsets by partition | the folder is as it is to be; go on from there |
| `refused` | `id`, `reason` | it is not |
| `taken` | `bytes` | bodies of chunks, dealt with |
| `closed` | `id`, `partition`, `epoch`, `next`, `records`, `bytes`, `file` | a file is there |
| `failed` | `id`, `partition`, `epoch`, `next`, `reason` | a file is not; go on from there, later |
| `waiting` | | another process writes in the directory |
| `ended` | `reason` | this one cannot go on |
| `flushed` | | all files are closed, or have failed |
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

OPEN: Final = 1
CHUNK: Final = 2
DROP: Final = 3
FLUSH: Final = 4

_HEAD: Final = struct.Struct("<IB")
# What is before the body of a frame.
HEAD_BYTES: Final = _HEAD.size
_PLACE: Final = struct.Struct("<III")


def frame(kind: int, fields: dict[str, object] | None = None) -> bytes:
    """A frame with these fields."""
    body = b"" if fields is None else json.dumps(fields).encode()
    return _HEAD.pack(len(body), kind) + body


def chunk_frame(id: int, partition: int, epoch: int, chunk: bytes) -> bytes:
    """A frame with a chunk."""
    head = _HEAD.pack(_PLACE.size + len(chunk), CHUNK)
    return head + _PLACE.pack(id, partition, epoch) + chunk


def split_chunk(body: bytes) -> tuple[int, int, int, bytes]:
    """Id, partition, epoch and chunk of a frame."""
    id, partition, epoch = _PLACE.unpack_from(body)
    return id, partition, epoch, body[_PLACE.size :]


class CaptureFrames:
    """Frames out of what has been read."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and body of all frames that are complete now."""
        self._data += data
        at = 0
        while len(self._data) - at >= _HEAD.size:
            size, kind = _HEAD.unpack_from(self._data, at)
            end = at + _HEAD.size + size
            if end > len(self._data):
                break
            yield kind, bytes(self._data[at + _HEAD.size : end])
            at = end
        del self._data[:at]


def line(kind: str, **fields: Any) -> bytes:
    """What the process says."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"
