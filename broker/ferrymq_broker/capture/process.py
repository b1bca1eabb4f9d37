"""The process that writes files, as an asyncio subprocess."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from ferrymq_broker.capture.options import CaptureOptions

# The most bytes of chunks that the process has not yet handled.
WINDOW: Final = 8 * 1024 * 1024
# The most bytes of a line from the process. A stream with the most partitions needs less.
_LINE: Final = 4 * 1024 * 1024
# Seconds until a process that was asked to end is killed.
_PATIENCE: Final = 5.0


class WriterProcess:
    """A process that has been started. `unanswered` is the number of bytes of chunks that it has
    not yet handled."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.unanswered = 0

    @classmethod
    async def start(cls, options: CaptureOptions) -> WriterProcess:
        """Start a process. Raises `OSError`."""
        paths = os.pathsep.join(path for path in sys.path if path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ferrymq_broker.capture.writer_main",
            options.to_json(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE,
            # The process must not import modules from the broker's current directory.
            env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def room(self) -> bool:
        """Whether the process may get more chunks."""
        return self.unanswered < WINDOW

    def send(self, data: bytes) -> None:
        """Send a frame to the process."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(data)

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects that the process sends, until it ends."""
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
        """Ask the process to end, kill it if it does not, and return its status."""
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
        """Kill the process. Files that it has not closed are lost."""
        try:
            self._process.kill()
        except ProcessLookupError:
            pass
