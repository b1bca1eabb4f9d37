"""When the output of a connection is written: at once, or at the next turn of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ferrymq.engine.connection import Connection

# Output beyond this size, in bytes, is written at once, so that the transport can report when it is
# full.
_WRITE_SIZE: Final = 65_536


@final
class OutputTurn:
    """The next write of one transport. `flush` writes the output of the engine at once; `process`
    is called at the next turn of the loop.

    `paused` says that the transport's buffer is full: the application must wait.
    """

    __slots__ = ("paused", "wanted", "resuming", "_engine", "_call_soon", "_flush", "_process")

    def __init__(
        self,
        engine: Connection,
        loop: AbstractEventLoop,
        flush: Callable[[], None],
        process: Callable[[], None],
    ) -> None:
        self.paused: bool = False
        # Whether a write at the next turn is scheduled.
        self.wanted: bool = False
        # Whether calls go on because output that waited was written: they begin no other write.
        self.resuming: bool = False
        self._engine: Connection = engine
        self._call_soon: Callable[..., Any] = loop.call_soon
        self._flush: Callable[[], None] = flush
        self._process: Callable[[], None] = process

    def soon(self) -> None:
        """Schedule a write of the application's output at the next turn of the loop."""
        if not self.wanted:
            self.wanted = True
            self._call_soon(self._process)

    def write_soon(self, alone: bool) -> None:
        """Write the application's output: now if it is much, or if it is sent `alone` and nothing
        else waits to be written; else at the next turn of the loop."""
        now = (alone and not self.wanted) or self._engine.output_size() >= _WRITE_SIZE
        if now and not self.resuming:
            self._flush()
        else:
            self.soon()
