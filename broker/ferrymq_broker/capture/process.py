"""The process that writes files, as the event loop sees it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from ferrymq_broker.capture.options import CaptureOptions

# Bytes on their way to the process, at most: it takes them in as fast as it writes files.
WINDOW: Final = 8 * 1024 * 1024
# Bytes of a line it says: of a stream with as many partitions as there may be, and more.
_LINE: Final = 4 * 1024 * 1024
# Seconds until one that was told to end is ended.
_PATIENCE: Final = 5.0


class WriterProcess:
    """A process that has been started. `unanswered` is how many bytes of chunks it has and has not
    dealt with."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.unanswered = 0

    @classmethod
    async def start(cls, options: CaptureOptions) -> WriterProcess:
        """Start it. Raises `OSError`."""
        paths = os.pathsep.join(path for path in sys.path if path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ferrymq_broker.capture.writer_main",
            options.to_json(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE,
            # Of where the broker runs nothing is imported.
            env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def room(self) -> bool:
        """Whether it may have more."""
        return self.unanswered < WINDOW

    def send(self, data: bytes) -> None:
        """Hand it a frame."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(data)

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        """What it says, until it ends."""
        stdout = self._process.stdout
        assert stdout is not None
        while True:
            try:
                text = await stdout.readline()
            except ValueError:
                return
            if not text.endswith(b"\n"):
                return
            yield json.loads(text)

    async def end(self) -> int:
        """Let it end, or end it; its status."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._process.wait()
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def kill(self) -> None:
        """End it at once. What it has not closed is not there."""
        try:
            self._process.kill()
        except ProcessLookupError:
            pass
