"""A queue that nobody uses goes by itself: `auto_delete`.

Used is a queue with links, and one that messages are published to. One with messages in it stays,
however long; it goes as soon as it is empty. One that the configuration declares by name stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node


@final
class AutoDelete(Timer):
    """The timer that ends a queue which has not been used for `idle_limit` milliseconds."""

    __slots__ = ("idle_limit", "_node", "_used")

    def __init__(self, node: Node, idle_limit: i64) -> None:
        super().__init__()
        self.idle_limit: i64 = idle_limit
        self._node = node
        # When it was used last; 0 if it was made before there was a time of day.
        self._used: i64 = node.agenda.now
        # Without any patience it goes with its last link or message, not before there was one.
        if idle_limit > 0:
            self.reconsider()

    def used(self, now: i64) -> None:
        """Note a use: a link has gone, or a message come."""
        self._used = now
        self.reconsider()

    def reconsider(self) -> None:
        """Set the timer: perhaps the queue goes, or goes later."""
        node = self._node
        if node.links > 0 or node.deleted:
            return
        now = node.agenda.now
        due = self._used + self.idle_limit
        if due < now:
            due = now
        # A timer that is set too early sets itself anew: this need not be exact for every message.
        if self.due == 0 or self.due > due:
            node.space.timers.set(self, due if due > 0 else 1)

    def on_time(self, now: i64) -> None:
        """Go, if it is so."""
        node = self._node
        if node.links > 0 or node.deleted:
            return
        if self._used == 0:
            self._used = now
        due = self._used + self.idle_limit
        if due > now:
            node.space.timers.set(self, due)
        elif node.message_count() == 0:
            node.end_unused()

    def close(self) -> None:
        """Cancel the timer: the queue is gone already."""
        self._node.space.timers.cancel(self)
