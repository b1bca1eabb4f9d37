"""Room in the output of a connection: how much of what is sent is encoded at a time.

A transfer is encoded when there is room for it, frame by frame. A large message, or a long queue
of messages, thus takes a window of output for each connection that it goes to, and no copy.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.outgoing import OutgoingHalf

# The longest transfer frame, in bytes, where output is limited. Larger ones save nothing.
FRAME: Final = 65_536
_ANY: Final = 0x7FFF_FFFF_FFFF_FFFF


@final
class OutputLimit:
    """The room of one connection. Transfers wait while there are `most` bytes or more of output.

    `frame` is the longest transfer frame in bytes, whatever the peer takes: what is above `most`
    is one frame at the most. `waiting` are the sessions with transfers that wait for room, in the
    order of their turns. A `most` of 0 is no limit.
    """

    __slots__ = ("most", "frame", "waiting")

    def __init__(self, most: i64) -> None:
        self.most: i64 = _ANY if most == 0 else most
        self.frame: i64 = _ANY if most == 0 else FRAME
        self.waiting: deque[OutgoingHalf] = deque()

    def wait(self, half: OutgoingHalf) -> None:
        """Give the sending half of a session a turn when there is room."""
        if not half.queued:
            half.queued = True
            self.waiting.append(half)

    def fill(self, output: BytesWriter) -> None:
        """Make sessions write, in turns, until there is no room or nothing to write."""
        waiting = self.waiting
        while waiting and len(output) < self.most:
            half = waiting.popleft()
            half.queued = False
            half.go_on()

    def clear(self) -> None:
        """Forget those that wait: nothing more is sent."""
        for half in self.waiting:
            half.queued = False
        self.waiting.clear()
