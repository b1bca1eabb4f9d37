"""A trace of frames for people who debug: ``logging.getLogger("ferrymq.frames")`` at DEBUG.

Of a SASL frame only its type is shown, and of a transfer's message only its size, so that neither
credentials nor content reach a log.
"""

from __future__ import annotations

import logging
from typing import Final

from ferrymq.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_types.unions import decode_frame, decode_sasl_frame

LOGGER: Final = logging.getLogger("ferrymq.frames")


class FrameTrace:
    """Logs the frames of one connection, both ways."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._incoming = b""

    @classmethod
    def if_enabled(cls, label: str) -> FrameTrace | None:
        """A trace, or None when nobody listens."""
        return cls(label) if LOGGER.isEnabledFor(logging.DEBUG) else None

    def received(self, data: bytes) -> None:
        """Bytes have arrived; frames may be split among calls."""
        data = self._incoming + data
        rest = self._log("<-", data)
        self._incoming = data[rest:]

    def sent(self, data: bytes) -> None:
        """Whole frames are being written."""
        self._log("->", data)

    def _log(self, arrow: str, data: bytes) -> int:
        pos = 0
        while len(data) - pos >= 8:
            if data[pos : pos + 4] == b"AMQP":
                LOGGER.debug(
                    "%s %s header %d %d.%d.%d", self._label, arrow, *data[pos + 4 : pos + 8]
                )
                pos += 8
                continue
            size = int.from_bytes(data[pos : pos + 4], "big")
            if size < 8 or len(data) - pos < size:
                # A size below 8 is the engine's to punish; the trace only must not go astray.
                return pos if size >= 8 else len(data)
            LOGGER.debug("%s %s %s", self._label, arrow, _describe(data[pos : pos + size]))
            pos += size
        return pos


def _describe(frame: bytes) -> str:
    channel = int.from_bytes(frame[6:8], "big")
    start = 4 * frame[4]
    if start >= len(frame):
        return f"[{channel}] empty"
    try:
        reader = Reader(frame, start, len(frame))
        if frame[5] == 1:
            return type(decode_sasl_frame(reader, "sasl-frame")).__name__
        performative = decode_frame(reader, "frame")
    except (DecodeError, ValueError) as error:
        return f"[{channel}] not a frame: {error}"
    payload = reader.remaining()
    return f"[{channel}] {performative}" + (f" + {payload} bytes" if payload else "")
