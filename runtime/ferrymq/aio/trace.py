"""A trace of frames for people who debug: ``logging.getLogger("ferrymq.frames")`` at DEBUG.

Credentials and tokens are taken out, and of messages only the sections are told, with their sizes,
so that neither secrets nor content reach a log.
"""

from __future__ import annotations

import logging
from typing import Final

from ferrymq.tracing.trace import Trace

LOGGER: Final = logging.getLogger("ferrymq.frames")


class FrameTrace:
    """Logs the frames of one connection, both ways."""

    def __init__(self, label: str) -> None:
        self._trace = Trace(label)

    @classmethod
    def if_enabled(cls, label: str) -> FrameTrace | None:
        """A trace, or None when nobody listens."""
        return cls(label) if LOGGER.isEnabledFor(logging.DEBUG) else None

    def received(self, data: bytes) -> None:
        """Bytes have arrived; frames may be split among calls."""
        for line in self._trace.feed("<-", data):
            LOGGER.debug("%s", line)

    def sent(self, data: bytes) -> None:
        """Whole frames are being written."""
        for line in self._trace.feed("->", data):
            LOGGER.debug("%s", line)
