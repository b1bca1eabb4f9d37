"""Limit of the output of a connection: how much is encoded at a time.

A transfer is encoded when there is room for it, frame by frame. A large message, or a long queue of
messages, then needs one window of output for each connection, and no copy of the payload.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.outgoing import OutgoingHalf

# The longest transfer frame, in bytes, where output is limited. Larger frames save nothing.
FRAME: Final = 65_536
_ANY: Final = 0x7FFF_FFFF_FFFF_FFFF


@final
class OutputLimit:
    """The room of one connection. Transfers wait while there are `most` bytes or more of output.

    `frame` is the longest transfer frame in bytes, even if the peer takes longer ones: so the
    output exceeds `most` by at most one frame. `waiting` are the sessions with transfers that wait
    for room, in the order of their turns. A `most` of 0 is no limit.
    """

    __slots__ = ("most", "frame", "waiting")

    def __init__(self, most: i64) -> None:
        self.most: i64 = _ANY if most == 0 else most
        self.frame: i64 = _ANY if most == 0 else FRAME
        self.waiting: deque[OutgoingHalf] = deque()

    def wait(self, half: OutgoingHalf) -> None:
        """Queue the sending half of a session for a turn when there is room."""
        if not half.queued:
            half.queued = True
            self.waiting.append(half)

    def fill(self, connection: Connection) -> None:
        """Write transfers of the waiting sessions in turns, until there is no room or none can be
        written."""
        waiting = self.waiting
        while waiting and connection.output_size() < self.most:
            half = waiting.popleft()
            half.queued = False
            half.go_on()

    def clear(self) -> None:
        """Forget the waiting sessions: no more is sent."""
        for half in self.waiting:
            half.queued = False
        self.waiting.clear()
