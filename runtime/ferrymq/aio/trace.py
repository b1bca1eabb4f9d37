"""Frame trace for debugging: ``logging.getLogger("ferrymq.frames")`` at DEBUG.

Credentials and tokens are removed, and of messages only the sections with their sizes are shown, so
that neither secrets nor content reach a log.
"""

from __future__ import annotations

import logging
from typing import Final

LOGGER: Final = logging.getLogger("ferrymq.frames")


class FrameTrace:
    """Logger of the frames of one connection, in both directions."""

    def __init__(self, label: str) -> None:
        # Few programs trace, and importing this takes time.
        from ferrymq.tracing.trace import Trace

        self._trace = Trace(label)

    @classmethod
    def if_enabled(cls, label: str) -> FrameTrace | None:
        """Return a trace, or None when the logger is not enabled."""
        return cls(label) if LOGGER.isEnabledFor(logging.DEBUG) else None

    def received(self, data: bytes) -> None:
        """Log received bytes; frames may be split among calls."""
        for line in self._trace.feed("<-", data):
            LOGGER.debug("%s", line)

    def sent(self, data: bytes) -> None:
        """Log whole frames that are being written."""
        for line in self._trace.feed("->", data):
            LOGGER.debug("%s", line)
