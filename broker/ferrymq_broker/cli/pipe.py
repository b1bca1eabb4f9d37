"""Output pipes, and whether their readers have read everything."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import struct
import sys
from typing import Final, TextIO

if sys.platform != "win32":
    import fcntl
    import termios

# The number of checks without a pause, and the seconds between later checks.
_AT_ONCE: Final = 20
_PAUSE: Final = 0.001


class Pipe:
    """The writing end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        # Without flags `poll` still reports that the reader has ended.
        self._poll.register(descriptor, 0)

    @classmethod
    def of(cls, stream: TextIO) -> Pipe | None:
        """Return the pipe that a stream writes to; None if it is anything else."""
        if sys.platform == "win32":
            return None
        try:
            descriptor = stream.fileno()
            is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        except (OSError, ValueError):
            return None
        return cls(descriptor) if is_pipe else None

    async def drain(self) -> None:
        """Wait until the reader has read everything. Raises `BrokenPipeError` if it ends before
        that."""
        looks = 0
        while True:
            gone = bool(self._poll.poll(0))
            if self.is_empty():
                return
            if gone:
                raise BrokenPipeError
            looks += 1
            await asyncio.sleep(0 if looks < _AT_ONCE else _PAUSE)

    def is_empty(self) -> bool:
        """Return whether the reader has read everything. True if the system cannot tell."""
        if sys.platform == "win32":
            return True
        try:
            answer = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))
        except OSError:
            return True
        return bool(struct.unpack("i", answer)[0] == 0)
