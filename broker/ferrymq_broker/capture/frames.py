"""The protocol between the broker and the process that writes files.

The broker sends frames to the standard input of the process, in little-endian:

    size u32 | kind u8 | body

| kind | body |
|---|---|
| `OPEN` | JSON: `id`, `stream`, `incarnation`, `directory` |
| `CHUNK` | id u32, partition u32, epoch u32, a chunk (`ferrymq.chunks`) |
| `DROP` | JSON: `id`; the stream is not captured any more, close its files |
| `FLUSH` | close all files |

`id` is a number for the stream while the process runs. The epoch of a partition rises whenever the
broker goes back in the partition, so that chunks sent before can be told from chunks sent after.

The process writes a JSON object in each line of its standard output, with a `kind`:

| kind | fields | meaning |
|---|---|---|
| `found` | `id`, `next`: offsets by partition | the folder is ready; go on at these offsets |
| `refused` | `id`, `reason` | the folder cannot be used |
| `taken` | `bytes` | bytes of `CHUNK` bodies that have been handled |
| `closed` | `id`, `partition`, `epoch`, `next`, `records`, `bytes`, `file` | a file is on disk |
| `failed` | `id`, `partition`, `epoch`, `next`, `reason` | a file failed; go on at `next`, later |
| `waiting` | | another process writes to the directory |
| `ended` | `reason` | the process cannot go on |
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
# The size of a frame's head.
HEAD_BYTES: Final = _HEAD.size
_PLACE: Final = struct.Struct("<III")


def frame(kind: int, fields: dict[str, object] | None = None) -> bytes:
    """Return a frame with these fields."""
    body = b"" if fields is None else json.dumps(fields).encode()
    return _HEAD.pack(len(body), kind) + body


def chunk_frame(id: int, partition: int, epoch: int, chunk: bytes) -> bytes:
    """Return a frame with a chunk."""
    head = _HEAD.pack(_PLACE.size + len(chunk), CHUNK)
    return head + _PLACE.pack(id, partition, epoch) + chunk


def split_chunk(body: bytes) -> tuple[int, int, int, bytes]:
    """Return id, partition, epoch and chunk of the body of a frame."""
    id, partition, epoch = _PLACE.unpack_from(body)
    return id, partition, epoch, body[_PLACE.size :]


class CaptureFrames:
    """A parser of frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add data, and yield kind and body of each frame that is complete now."""
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
    """Return a line from the process to the broker."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"
