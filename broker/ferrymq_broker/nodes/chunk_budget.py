"""What all links together gather for chunks of streams: how much in one pass, how much at a time.

A chunk is large, and made for its link alone. Without bounds whoever may read a stream could have
the broker make thousands of them, and never take one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.nodes.streams.chunk_reader import ChunkStreamReader

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


@final
class ChunkBudget:
    """`held` is how many bytes of chunks there are, half made or on their way; `taken` what has
    been gathered in this pass. Readers that find it spent wait, each in its turn: the broker lets
    some `go_on` in passes of their own, as long as there are `waiting`."""

    __slots__ = ("held", "taken", "waiting", "_sent")

    def __init__(self) -> None:
        self.held: i64 = 0
        self.taken: i64 = 0
        self.waiting: deque[ChunkStreamReader] = deque()
        # Those that have sent a chunk of which nobody knows whether it is gone.
        self._sent: dict[ChunkStreamReader, None] = {}

    def is_full(self) -> bool:
        """Whether chunks are to end as soon as they may."""
        if self.held < MOST:
            return False
        sent = self._sent
        turns: i64 = _AT_ONCE
        while sent and turns > 0:
            turns -= 1
            reader = next(iter(sent))
            consumer = reader.consumer
            if consumer is not None and consumer.is_behind():
                # Others are looked at first next time.
                del sent[reader]
                sent[reader] = None
            else:
                reader.count_sent(0)
        return self.held >= MOST

    def count(self, reader: ChunkStreamReader, before: i64, size: i64) -> None:
        """Of what the reader has sent, so many bytes may be on their way, where there were others
        before."""
        self.held += size - before
        if size > 0:
            self._sent[reader] = None
        elif before > 0:
            del self._sent[reader]

    def is_spent(self) -> bool:
        """Whether nothing more is gathered in this pass."""
        return self.taken >= SHARE

    def wait(self, reader: ChunkStreamReader, first: bool) -> None:
        """The reader goes on in another pass: as the `first` of those that wait, or the last."""
        if reader.parked:
            return
        reader.parked = True
        if first:
            self.waiting.appendleft(reader)
        else:
            self.waiting.append(reader)

    def go_on(self) -> None:
        """It is the turn of a few of them."""
        waiting = self.waiting
        turns: i64 = _AT_ONCE
        while waiting and turns > 0:
            reader = waiting.popleft()
            reader.parked = False
            # The link may be gone.
            if reader.consumer is not None:
                turns -= 1
                reader.touch()
