"""Cuts the bytes of a transport into frames; a read may end inside a frame (AMQP 1.0 §2.3)."""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from ferrymq.engine.unfinished import is_wasteful
from ferrymq.errors import RemoteProtocolError
from ferrymq_codec.described_types import DescribedTypes
from ferrymq_codec.reader import Reader

# The number of deliveries that may be examined in one pass, besides those that arrive.
MAX_WORK: Final = 20_000
# A buffer that was read and is larger than this, in bytes, is not kept until more data arrives.
_WORTH_DROPPING: Final = 4096
# The rest of a read, after the end of a frame that began in an earlier one, is not joined with that
# frame if it has at least so many bytes.
_WORTH_CUTTING: Final = 16_384


@final
class FrameInput:
    """Bytes received and not yet read.

    After `next_frame` has returned true, `reader` stands at the body of the
    frame and ends with it, `data` is what the reader reads, and `channel` is the
    frame's. Pieces of a frame are joined once, when all of it is there.

    Some frames of a few bytes make us examine thousands of deliveries. The number of these
    deliveries is added to `work`. When `work` is more than `MAX_WORK`, reading pauses, so that
    other connections get their turn; `unread` is then true until `go_on` is called or more input
    arrives. `whole` becomes true with each complete header or frame, because a part of a frame does
    not reset the idle time-out (AMQP 1.0 §2.4.5). `types` are those of `Reader`.
    """

    __slots__ = ("data", "reader", "channel", "work", "unread", "whole", "_pos", "_chunks",
                 "_later", "_later_pos", "_buffered", "_needed", "_size")  # fmt: skip

    def __init__(self, types: DescribedTypes | None = None) -> None:
        self.data: bytes = b""
        # One object for all reads, because a read often has only one short frame.
        self.reader: Reader = Reader(b"", 0, 0)
        self.reader.types = types
        self.channel: i64 = 0
        self.work: i64 = 0
        self.unread: bool = False
        self.whole: bool = False
        self._pos: i64 = 0
        # Bytes after `data` that begin with a frame; those from `_later_pos` on are not read yet.
        self._later: bytes = b""
        self._later_pos: i64 = 0
        # The data after these, and how many bytes are needed before reading can continue.
        self._chunks: list[bytes] = []
        self._buffered: i64 = 0
        self._needed: i64 = 0
        # The size of the last frame that has begun.
        self._size: i64 = 0

    def feed(self, data: bytes) -> bool:
        """Add received bytes; return whether a complete header or frame may be there."""
        self.go_on()
        if self._pos < len(self.data) or len(self._later) > 0:
            if not self._chunks:
                self._chunks.append(self._unread_data())
                self._later = b""
                self._buffered = len(self._chunks[0])
            had = self._buffered
            self._chunks.append(data)
            self._buffered += len(data)
            if self._buffered < self._needed:
                if is_wasteful(len(self._chunks), self._buffered):
                    self._chunks = [b"".join(self._chunks)]
                return False
            cut = self._needed - had
            # The size of the frame is known if more than its header is needed.
            if self._needed > 8 and cut > 0 and len(data) - cut >= _WORTH_CUTTING:
                self._chunks[-1] = data[:cut]
                self._later = data
                self._later_pos = cut
            data = b"".join(self._chunks)
            self._chunks = []
        self._begin(data, 0)
        return True

    def _begin(self, data: bytes, pos: i64) -> None:
        self.data = data
        self._pos = pos
        self.reader.reset(data, 0, 0)

    def _begin_later(self) -> None:
        """Read on in the bytes after `data`."""
        data = self._later
        self._later = b""
        self._begin(data, self._later_pos)

    def _unread_data(self) -> bytes:
        """Return the bytes that are not in `_chunks`."""
        unread = self.data[self._pos :] if self._pos else self.data
        return unread + self._later[self._later_pos :] if self._later else unread

    def go_on(self) -> None:
        """Resume reading with a new share of work."""
        self.work = 0
        self.unread = False

    def held(self) -> int:
        """Return how many unread bytes are held."""
        if self._chunks:
            return self._buffered
        held = len(self.data) - self._pos
        return held + len(self._later) - self._later_pos if self._later else held

    def read_size(self, most: i64) -> i64:
        """Return how many bytes to read next, at most `most`, for a read that ends with a frame if
        the next frames are as long as the last one. So frames need not be joined from two reads.

        `most` if frames are short, because then it is not worth it.
        """
        size = self._size
        missing: i64 = 0
        held: i64 = self.held()
        if held > 0:
            # Before its header is complete, the size of a frame is unknown.
            missing = max(0, (self._needed if self._needed > 8 else size) - held)
        if size < _WORTH_CUTTING or missing + size > most:
            return most
        return missing + (most - missing) // size * size

    def hold(self) -> None:
        """Pause reading: join all later data, because the size of the next part is unknown."""
        self._needed = 0

    def take(self) -> bytes:
        """Return all unread data and forget it."""
        unread = b"".join(self._chunks) if self._chunks else self._unread_data()
        self.clear()
        return unread

    def clear(self) -> None:
        """Forget all unread data."""
        self.unread = False
        self.data = b""
        self.reader.reset(b"", 0, 0)
        self._pos = 0
        self._later = b""
        self._chunks = []

    def next_header(self) -> bytes | None:
        """Return the next 8 bytes; None until they have arrived."""
        if self._later and self._pos == len(self.data):
            self._begin_later()
        pos = self._pos
        if len(self.data) - pos < 8:
            self._needed = 8
            return None
        self._pos = pos + 8
        self.whole = True
        return self.data[pos : pos + 8]

    def next_frame(self, limit: i64, frame_type: i64) -> bool:
        """Move to the next frame; return false until all of it has arrived.

        Raises `RemoteProtocolError` (`amqp:connection:framing-error`) when the data is not a frame
        of at most `limit` bytes of the expected type. The position of later frames is then unknown,
        so all later data is dropped.
        """
        if len(self._later) > 0 and self._pos == len(self.data):
            self._begin_later()
        data = self.data
        pos = self._pos
        left = i64(len(data)) - pos
        if left < 8:
            self._needed = 8
            if left == 0 and pos >= _WORTH_DROPPING:
                # A peer that is silent from now on uses no memory.
                self.clear()
            return False
        if self.work > MAX_WORK:
            self.unread = True
            self._needed = 0
            return False
        size = i64(read_i32_be(data, pos)) & 0xFFFFFFFF
        body = 4 * i64(data[pos + 4])
        if size < 8 or size > limit or body < 8 or body > size or i64(data[pos + 5]) != frame_type:
            self.clear()
            raise RemoteProtocolError(
                "amqp:connection:framing-error",
                f"frame of {size} bytes, data offset {body} bytes, type {data[pos + 5]}; "
                f"8 to {limit} bytes of type {frame_type} are expected here",
            )
        self._size = size
        if left < size:
            self._needed = size
            return False
        self._pos = pos + size
        self.whole = True
        self.channel = (i64(data[pos + 6]) << 8) | i64(data[pos + 7])
        reader = self.reader
        reader.pos = pos + body
        reader.end = pos + size
        reader.depth = 0
        # Each element has at least one byte.
        reader.budget = size
        return True
