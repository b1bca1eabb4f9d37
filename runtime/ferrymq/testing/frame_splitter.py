"""Splits a stream of bytes into AMQP's frames (AMQP 1.0 §2.3)."""

from __future__ import annotations

from typing import Final, final

from ferrymq_codec.codes import DESCRIBED, SMALL_ULONG, ULONG
from ferrymq_types import descriptors

_HEADER: Final = b"AMQP"
# Bytes of a protocol header, and of the smallest frame.
_LEAST: Final = 8
# The major number of AMQP 1.0 in a protocol header (AMQP 1.0 §2.2).
_MAJOR: Final = 1
_SASL: Final = 1
# The codes of the performatives (AMQP 1.0 §2.7).
PERFORMATIVES: Final[dict[int, str]] = {
    descriptors.OPEN: "open",
    descriptors.BEGIN: "begin",
    descriptors.ATTACH: "attach",
    descriptors.FLOW: "flow",
    descriptors.TRANSFER: "transfer",
    descriptors.DISPOSITION: "disposition",
    descriptors.DETACH: "detach",
    descriptors.END: "end",
    descriptors.CLOSE: "close",
}
# How the descriptor of a performative begins: with its short form, and with its long one.
_SHORT: Final = bytes((DESCRIBED, SMALL_ULONG))
_LONG: Final = bytes((DESCRIBED, ULONG))


def performative_of(frame: bytes) -> str:
    """Return the name of a frame's performative; "" for protocol headers, SASL's frames, empty
    frames and what is no frame."""
    if frame[:4] == _HEADER or len(frame) <= _LEAST or frame[5] == _SASL:
        return ""
    body = frame[4] * 4
    if frame[body : body + 2] == _SHORT:
        return PERFORMATIVES.get(frame[body + 2], "") if len(frame) > body + 2 else ""
    if frame[body : body + 2] == _LONG:
        return PERFORMATIVES.get(int.from_bytes(frame[body + 2 : body + 10], "big"), "")
    return ""


@final
class FrameSplitter:
    """The bytes of one direction of a connection that have not made a whole frame yet."""

    def __init__(self) -> None:
        self._rest = b""
        # Whether the bytes are none of AMQP 1.0: they are passed on as they come.
        self.foreign = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes, and return the whole frames and protocol headers."""
        if self.foreign:
            return [data]
        data = self._rest + data
        frames: list[bytes] = []
        start = 0
        while len(data) - start >= _LEAST:
            if data[start : start + 4] == _HEADER:
                size = _LEAST
                if data[start + 5] != _MAJOR:
                    self.foreign = True
                    frames.append(data[start:])
                    self._rest = b""
                    return frames
            else:
                size = int.from_bytes(data[start : start + 4], "big")
                if size < _LEAST:
                    self.foreign = True
                    frames.append(data[start:])
                    self._rest = b""
                    return frames
            if len(data) - start < size:
                break
            frames.append(data[start : start + size])
            start += size
        self._rest = data[start:]
        return frames
