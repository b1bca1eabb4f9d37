"""Scanner for headers and frames in the bytes of one direction, which may be damaged.

The scanner never raises for the content, and holds at most `MOST_HELD` bytes. Of a larger frame
only the beginning is shown. Where no frame can begin, the scanner reports that and continues at the
next place that looks like the beginning of a frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ferrymq_codec import codes
from ferrymq_codec.composite import Composite
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_types import descriptors
from ferrymq_types.unions import decode_frame, decode_sasl_frame

MOST_HELD: Final = 1 << 20
"""Bytes of a frame that are decoded, at most."""

# No real peer sends larger frames; a greater number is no size.
_LARGEST: Final = 256 << 20

# The beginning of a header or of a frame: size, data offset 2, a known type, a channel, and the
# constructor of a performative's descriptor.
_PERFORMATIVES: Final = b"[%c-%c%c-%c]" % (
    *(descriptors.OPEN, descriptors.CLOSE),
    *(descriptors.SASL_MECHANISMS, descriptors.SASL_OUTCOME),
)
_BEGINNING: Final = re.compile(
    rb"AMQP[\x00-\x03]\x01\x00\x00|[\x00-\x0f]...\x02[\x00\x01].."
    + b"%c(?:%c" % (codes.DESCRIBED, codes.SMALL_ULONG)
    + _PERFORMATIVES
    + b"|%c\0{4}|%c.amqp:)" % (codes.ULONG, codes.SYMBOL8),
    re.DOTALL,
)
# The type of a TLS record that begins a handshake (RFC 8446 §5.1).
_HANDSHAKE: Final = 22
_LONGEST_BEGINNING: Final = 16
# Why the beginning of a stream is not read.
_JOINED: Final = "the trace began here"


@dataclass(frozen=True, slots=True)
class TracedHeader:
    """A protocol header (AMQP 1.0 §2.2). `offset` counts bytes from the beginning of a stream."""

    offset: int
    protocol: int
    version: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TracedFrame:
    """A frame (§2.3). `body` is None for an empty frame, and for an unreadable one, whose `error`
    is the reason.

    `payload` is the part after the performative, as far as it was held; `payload_size` is the size
    of all of it.
    """

    offset: int
    size: int
    channel: int
    sasl: bool
    body: Composite | None
    payload: bytes
    payload_size: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """Bytes that are neither header nor frame: `skipped` of them, from `offset` on, for this
    `reason`."""

    offset: int
    skipped: int
    reason: str


Item = TracedHeader | TracedFrame | Broken


class FrameScanner:
    """Scanner of the bytes of one direction of a connection, in pieces of any size. With `joined`
    they may begin inside a frame, of which nothing is reported."""

    def __init__(self, joined: bool = False) -> None:
        self._held = bytearray()
        self._offset = 0
        # Bytes of a large frame that are still to come and will be skipped.
        self._passing = 0
        # Offset and reason of unreadable data; None while the data is readable.
        self._lost: tuple[int, str] | None = (0, _JOINED) if joined else None
        self._tls = False
        self._encrypted = False

    def feed(self, data: bytes) -> Iterator[Item]:
        """Yield the headers and frames that these bytes complete. Exhaust the iterator before the
        next call."""
        view = memoryview(data)
        while len(view):
            room = MOST_HELD - len(self._held)
            if self._passing:
                passed = min(self._passing, len(view))
                self._passing -= passed
                self._offset += passed
                view = view[passed:]
                continue
            self._held += view[:room]
            view = view[room:]
            yield from self._read()

    def finish(self) -> Iterator[Item]:
        """Yield the remaining items at the end of the stream."""
        if self._lost is not None:
            yield self._found_again(self._offset + len(self._held))
        elif self._passing:
            yield Broken(self._offset, 0, f"the stream ends {self._passing} bytes too early")
        elif self._held and not self._encrypted:
            yield Broken(
                self._offset, len(self._held), "the stream ends in the middle of a frame or header"
            )
        self._held.clear()

    def _read(self) -> Iterator[Item]:
        held = self._held
        while True:
            if self._encrypted:
                self._drop(len(held))
                return
            if self._lost is not None:
                found = _BEGINNING.search(held)
                if found is None:
                    # The last bytes may be part of a beginning.
                    self._drop(max(0, len(held) - _LONGEST_BEGINNING))
                    return
                self._drop(found.start())
                broken = self._found_again(self._offset)
                if broken.reason != _JOINED:
                    yield broken
            if len(held) < 8:
                return
            if held.startswith(b"AMQP"):
                self._tls = held[4] == 2
                header = TracedHeader(self._offset, held[4], (held[5], held[6], held[7]))
                self._drop(8)
                yield header
                continue
            if self._tls and held[0] == _HANDSHAKE:
                self._encrypted = True
                yield Broken(self._offset, 0, "TLS begins here; what is inside cannot be read")
                continue
            size = int.from_bytes(held[:4], "big")
            if reason := _fault(size, held[4], held[5]):
                self._lost = (self._offset, reason)
                # Continue after it, or it would be found again.
                self._drop(1)
                continue
            if len(held) < min(size, MOST_HELD):
                return
            frame = _frame(bytes(held[:size]), self._offset, size)
            self._passing = max(0, size - len(held))
            self._drop(min(size, len(held)))
            yield frame

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._offset += count

    def _found_again(self, offset: int) -> Broken:
        assert self._lost is not None
        start, reason = self._lost
        self._lost = None
        return Broken(start, offset - start, reason)


def _fault(size: int, doff: int, kind: int) -> str:
    if size < 8 or size > _LARGEST:
        return f"no frame has {size} bytes"
    if doff < 2 or 4 * doff > size:
        return f"data offset {doff} in a frame of {size} bytes"
    if kind > 1:
        return f"frame type {kind} is unknown"
    return ""


def _frame(data: bytes, offset: int, size: int) -> TracedFrame:
    """Return a frame of `size` bytes; `data` is the beginning of it or all."""
    channel = int.from_bytes(data[6:8], "big")
    sasl = data[5] == 1
    start = 4 * data[4]
    if start >= size:
        return TracedFrame(offset, size, channel, sasl, None, b"", 0)
    reader = Reader(data, start, len(data))
    try:
        body: Composite
        if sasl:
            body = decode_sasl_frame(reader, "sasl-frame")
        else:
            body = decode_frame(reader, "frame")
    except DecodeError as error:
        where = f"{error.field}: {error.reason}, at byte {offset + error.offset}"
        return TracedFrame(offset, size, channel, sasl, None, b"", size - start, where)
    return TracedFrame(
        offset, size, channel, sasl, body, data[reader.pos :], size - int(reader.pos)
    )
