"""Auto-delete: an unused queue deletes itself after the time `auto_delete`.

A queue is in use while it has links, and when a message is published to it. A queue with messages
is not deleted; it is deleted as soon as it is empty. If the policy says ``unconsumed``, only
consumers use the queue, and it is deleted with its messages. A queue that the configuration
declares by name stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node


@final
class AutoDelete(Timer):
    """The timer that deletes a queue which has been unused for `idle_limit` milliseconds.
    `by_consumers` is whether only consumers use it."""

    __slots__ = ("idle_limit", "by_consumers", "_node", "_used", "_had_consumers")

    def __init__(self, node: Node, idle_limit: i64, by_consumers: bool) -> None:
        super().__init__()
        self.idle_limit: i64 = idle_limit
        self.by_consumers: bool = by_consumers
        self._node = node
        # The moment of the last use; 0 if the queue was created before the clock was known.
        self._used: i64 = node.agenda.now
        # Whether the last consumer has gone once.
        self._had_consumers = False
        # With a limit of 0, the queue is deleted with its last link, message or consumer, but not
        # before its first.
        if idle_limit > 0:
            self.reconsider()

    def used(self, now: i64) -> None:
        """Note that the queue is used: a link has gone, or a message has come."""
        if not self.by_consumers:
            self._used = now
            self.reconsider()

    def unconsumed(self, now: i64) -> None:
        """Note that the last consumer has gone."""
        if self.by_consumers:
            self._used = now
            self._had_consumers = True
            self.reconsider()

    def _in_use(self) -> bool:
        node = self._node
        return node.consumer_count() > 0 if self.by_consumers else node.links > 0

    def reconsider(self) -> None:
        """Set the timer again: the queue may have to be deleted now, or later."""
        node = self._node
        if node.deleted or self._in_use():
            return
        if self.by_consumers and self.idle_limit == 0 and not self._had_consumers:
            return
        now = node.agenda.now
        due = self._used + self.idle_limit
        if due < now:
            due = now
        # A timer that fires too early sets itself again; so it need not be moved for every message.
        if self.due == 0 or self.due > due:
            node.space.timers.set(self, due if due > 0 else 1)

    def on_time(self, now: i64) -> None:
        """Delete the queue if it has been unused for long enough."""
        node = self._node
        if node.deleted or self._in_use():
            return
        if self._used == 0:
            self._used = now
        due = self._used + self.idle_limit
        if due > now:
            node.space.timers.set(self, due)
        elif self.by_consumers or node.message_count() == 0:
            node.end_unused()

    def close(self) -> None:
        """Cancel the timer, because the queue is deleted."""
        self._node.space.timers.cancel(self)
