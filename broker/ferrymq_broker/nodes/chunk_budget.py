"""The budget of chunks of streams, for all links together: bytes in memory and work in one pass.

A chunk is large and is made for one link alone. Without a budget, any reader of a stream could make
the broker build thousands of chunks and never take one.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

# Above this many bytes of chunks (in the making or not yet taken by their links) no chunk grows
# further: each ends with what its reader gathers in one turn.
MOST: Final = 32 * 1024 * 1024
# The work of one pass, in bytes. A record and a question to a filter count as the number of bytes
# that takes the same time.
SHARE: Final = 1024 * 1024
RECORD: Final = 512
QUESTION: Final = 2048

# How many waiting readers continue in one pass, and how many sent chunks are checked in one pass.
_AT_ONCE: Final = 4


class ChunkMaker:
    """A maker of chunks for one link."""

    __slots__ = ()

    def is_behind(self) -> bool:
        """Return whether something that the link was sent has not gone out yet."""
        return False

    def chunk_gone(self) -> None:
        """Take notice that the chunk which was sent last has gone out."""

    def park(self) -> bool:
        """Stop making chunks until `resume`; return false if the maker has stopped already."""
        return True

    def resume(self) -> bool:
        """Make chunks again; return false if the link is gone."""
        return False


@final
class ChunkBudget:
    """The budget of all chunks. `held` is the size in bytes of all chunks that are in the making or
    on their way, `taken` is the work done in this pass. When the budget of a pass is spent, readers
    wait in a queue: the broker calls `go_on` in later passes as long as there are `waiting`
    readers."""

    __slots__ = ("held", "taken", "waiting", "_sent")

    def __init__(self) -> None:
        self.held: i64 = 0
        self.taken: i64 = 0
        self.waiting: deque[ChunkMaker] = deque()
        # Makers whose last chunk may not have gone out yet.
        self._sent: dict[ChunkMaker, None] = {}

    def is_full(self) -> bool:
        """Return whether chunks should end as soon as possible."""
        if self.held < MOST:
            return False
        sent = self._sent
        turns: i64 = _AT_ONCE
        while sent and turns > 0:
            turns -= 1
            maker = next(iter(sent))
            if maker.is_behind():
                # The next check begins with other makers.
                del sent[maker]
                sent[maker] = None
            else:
                maker.chunk_gone()
        return self.held >= MOST

    def count(self, maker: ChunkMaker, before: i64, size: i64) -> None:
        """Replace the `before` bytes that the maker had on their way by `size` bytes."""
        self.held += size - before
        if size > 0:
            self._sent[maker] = None
        elif before > 0:
            del self._sent[maker]

    def is_spent(self) -> bool:
        """Return whether the work of this pass is done."""
        return self.taken >= SHARE

    def wait(self, maker: ChunkMaker, first: bool) -> None:
        """Postpone the maker to another pass, as the first of the waiting makers (`first`) or the
        last."""
        if not maker.park():
            return
        if first:
            self.waiting.appendleft(maker)
        else:
            self.waiting.append(maker)

    def go_on(self) -> None:
        """Resume a few of the makers that wait."""
        waiting = self.waiting
        turns: i64 = _AT_ONCE
        while waiting and turns > 0:
            if waiting.popleft().resume():
                turns -= 1
