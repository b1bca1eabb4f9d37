"""The sweep: it decides which messages leave memory, and when.

When there are more bytes of messages in memory than `Pager.high`, the sweep goes through the queues
that have most, each level from its beginning to its end, until there are no more than `Pager.low`.
Messages that consumers hold leave memory if that costs nothing, those that will be delivered next
stay, and those behind them leave. A cursor remembers the position, so that a growing queue is
looked at once and not again and again. The sweep stops there at a message that could not be read
back yet.

All work is done in slices, at the end of passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import ACQUIRED, AVAILABLE, DEFERRED
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Agenda, Node
    from ferrymq_broker.nodes.paging.pager import Pager
    from ferrymq_broker.nodes.paging.state import PagingState
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel
    from ferrymq_broker.store.changes import Changes

# The work at the end of one pass: looking at an entry costs 1, taking it out of memory costs
# `_LEAVING`.
_SLICE: Final = 16_384
_LEAVING: Final = 8
# The most bytes of each queue that stay in memory at its cursor.
_KEPT: Final = 262_144
# Queues with less than one part in so many of the largest queue are skipped.
_RELEVANT: Final = 64
# Milliseconds between two looks at all nodes, and between two walks through the same queue.
_LOOK: Final = 100
_AGAIN: Final = 5_000


@final
class Sweep:
    """The sweep of one broker, over the queues among `nodes` and the queues of their subscriptions.
    It looks at all nodes every `period` milliseconds; it goes through the same queue again after
    `again` milliseconds at the earliest."""

    __slots__ = (
        "pager",
        "period",
        "again",
        "_agenda",
        "_changes",
        "_nodes",
        "_queues",
        "_kept",
        "_look_at",
        "_stuck_at",
    )

    def __init__(self, pager: Pager, nodes: Callable[[], list[Node]]) -> None:
        agenda: Agenda = pager.agenda
        changes: Changes = agenda.changes
        self.pager: Pager = pager
        self.period: i64 = _LOOK
        self.again: i64 = _AGAIN
        self._agenda = agenda
        self._changes = changes
        self._nodes = nodes
        # The queues to go through now, the largest last.
        self._queues: list[Queue] = []
        self._kept: i64 = _KEPT
        # The time of the next look at all nodes.
        self._look_at: i64 = 0
        # The last applied batch at the time when nothing could be done.
        self._stuck_at: i64 = -1

    def turn(self) -> bool:
        """Take messages out of memory, where there are too many. Return whether there is more to do
        now."""
        agenda = self._agenda
        pager = self.pager
        low = pager.low
        applied: i64 = pager.store.applied
        if not self._queues and agenda.now < self._look_at and applied == self._stuck_at:
            return False
        budget: i64 = _SLICE
        looked = False
        while budget > 0 and agenda.pageable() > low:
            if not self._queues:
                if looked or agenda.now < self._look_at:
                    break
                looked = True
                self._look()
                if not self._queues:
                    break
            paging = pager.paging_of(self._queues[-1].entries)
            paging.note(self._changes.number, applied)
            left = self._go_through(paging, budget)
            if left > 0:
                # No more of this queue can leave memory now.
                self._queues.pop()
            budget = left
        pager.flush()
        self._stuck_at = applied
        return budget <= 0 and agenda.pageable() > low

    def tidy(self) -> None:
        """Drop the paging state of queues that have no messages out; called from time to time."""
        for queue in self.queues():
            entries = queue.entries
            paging = entries.paging
            if paging is None or (paging.withheld and entries.acquired > 0):
                continue
            if paging.count == 0 and entries.bytes <= self._kept:
                paging.close()
                entries.use_paging(None)
        self._look_at = 0
        self.pager.tidy()

    def queues(self) -> list[Queue]:
        """Return all queues, those of subscriptions too."""
        queues: list[Queue] = []
        for node in self._nodes():
            if isinstance(node, Queue):
                queues.append(node)
            elif isinstance(node, Topic):
                for subscription in node.subscriptions():
                    queues.append(subscription.queue)
        return queues

    def _look(self) -> None:
        """Find the queues that have most bytes in memory."""
        now = self._agenda.now
        self._look_at = now + self.period
        sized: list[tuple[int, int, Queue]] = []
        most: i64 = 0
        loaded = self.pager.loaded
        self.pager.loaded = 0
        for queue in self.queues():
            entries = queue.entries
            paging = entries.paging
            if loaded > 0 and paging is not None:
                paging.loaded += loaded
            size = entries.bytes if paging is None else paging.resident()
            if size > 0 and not queue.deleted:
                sized.append((int(size), len(sized), queue))
                if size > most:
                    most = size
        sized = [one for one in sized if one[0] * _RELEVANT >= most]
        sized.sort(key=_size_of)
        self._queues = [one[2] for one in sized]
        share = self.pager.low // (2 * (len(sized) + 1))
        self._kept = share if share < _KEPT else _KEPT
        for queue in self._queues:
            paging = queue.entries.paging
            if paging is not None and paging.loaded > self._kept and now >= paging.again:
                paging.again = now + self.again
                paging.begin_again()

    def _go_through(self, paging: PagingState, budget: i64) -> i64:
        """Take messages of a queue out of memory; return what is left of the budget, 0 if there may
        be more."""
        for priority_level in reversed(paging.entries.priority_levels):
            budget = self._go_along(paging, priority_level, budget)
            if budget <= 0:
                return 0
        return budget

    def _go_along(self, paging: PagingState, priority_level: PriorityLevel, budget: i64) -> i64:
        agenda = self._agenda
        pager = self.pager
        low = pager.low
        cursor = paging.cursor(priority_level)
        # The next deliveries begin at this entry.
        near = priority_level.plain.next
        begin = cursor.next
        entry = begin
        while entry is not None:
            if budget <= 0 or agenda.pageable() - pager.pending <= low:
                cursor.next = entry
                pager.flush()
                if begin is not None:
                    paging.fold(priority_level, begin, entry)
                return 0
            if entry is near:
                near = None
                kept: i64 = 0
                while entry is not None and kept < self._kept:
                    kept += priority_level.bytes_of(entry)
                    entry = entry.next
                    budget -= 1
                continue
            budget -= 1
            state = entry.state
            if state in (AVAILABLE, ACQUIRED, DEFERRED) and not entry.is_out() and entry.size > 0:
                if not pager.can_leave(paging, entry):
                    # Stop at a message that may leave soon; pass those that a consumer may settle.
                    if entry.stored and entry.sequence > paging.safe:
                        break
                    if not entry.stored and state != ACQUIRED:
                        break
                    paging.loaded += i64(entry.size)
                else:
                    pager.put_out(paging, entry)
                    budget -= _LEAVING
            entry = entry.next
        cursor.next = entry
        pager.flush()
        if begin is not None:
            paging.fold(priority_level, begin, entry)
        return budget


def _size_of(sized: tuple[int, int, Queue]) -> tuple[int, int]:
    return sized[0], sized[1]
