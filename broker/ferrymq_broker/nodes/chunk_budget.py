"""The budget of all links together for chunks of streams: how much in one pass, how much at a
time.

A chunk is large, and made for its link alone. Without bounds whoever may read a stream could have
the broker make thousands of them, and never take one.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

# Bytes in chunks that are being made, or that nobody has taken yet, above which none grows further:
# each ends with what its reader gathers in one turn.
MOST: Final = 32 * 1024 * 1024
# What is gathered in one pass: bytes, and for each record and each question of a filter as much as
# takes the same time.
SHARE: Final = 1024 * 1024
RECORD: Final = 512
QUESTION: Final = 2048

# How many readers that wait go on in one pass, and how many that have sent are looked at.
_AT_ONCE: Final = 4


class ChunkMaker:
    """A maker of chunks for one link."""

    __slots__ = ()

    def is_behind(self) -> bool:
        """Return whether something the link was sent has not gone out yet."""
        return False

    def chunk_gone(self) -> None:
        """Take notice that the chunk which was sent last has gone out."""

    def park(self) -> bool:
        """Make no chunks until `resume`; return false if that is so already."""
        return True

    def resume(self) -> bool:
        """Go on; return false if the link is gone."""
        return False


@final
class ChunkBudget:
    """`held` is how many bytes of chunks there are, half made or on their way; `taken` what has
    been gathered in this pass. Readers that find it spent wait, each in its turn: the broker lets
    some `go_on` in passes of their own, as long as there are `waiting`."""

    __slots__ = ("held", "taken", "waiting", "_sent")

    def __init__(self) -> None:
        self.held: i64 = 0
        self.taken: i64 = 0
        self.waiting: deque[ChunkMaker] = deque()
        # Those that have sent a chunk of which nobody knows whether it is gone.
        self._sent: dict[ChunkMaker, None] = {}

    def is_full(self) -> bool:
        """Return whether chunks are to end as soon as they may."""
        if self.held < MOST:
            return False
        sent = self._sent
        turns: i64 = _AT_ONCE
        while sent and turns > 0:
            turns -= 1
            maker = next(iter(sent))
            if maker.is_behind():
                # Others are looked at first next time.
                del sent[maker]
                sent[maker] = None
            else:
                maker.chunk_gone()
        return self.held >= MOST

    def count(self, maker: ChunkMaker, before: i64, size: i64) -> None:
        """Count `size` bytes that the maker has sent and that may be on their way, in place of the
        `before` bytes that were."""
        self.held += size - before
        if size > 0:
            self._sent[maker] = None
        elif before > 0:
            del self._sent[maker]

    def is_spent(self) -> bool:
        """Return whether nothing more is gathered in this pass."""
        return self.taken >= SHARE

    def wait(self, maker: ChunkMaker, first: bool) -> None:
        """Postpone the maker to another pass, as the `first` of those that wait, or the last."""
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
