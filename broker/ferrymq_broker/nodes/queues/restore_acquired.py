"""Entries of a queue that was restored, and that somebody has had since before.

    held = withhold(queue, sequences)      # once, before anybody consumes
    for entry in held.values(): consumer.hold(entry)

A cursor never points to an entry that somebody holds and may remove. So where some are held, the
cursor begins behind the last of them, and what is available before counts as returned. Of a queue
that is paged it stays where it is, as there is somebody then who moves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import ACQUIRED, AVAILABLE, RUN
from ferrymq_broker.nodes.queues.disk_runs import MOST
from ferrymq_broker.nodes.queues.filter_views import push

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel
    from ferrymq_broker.nodes.queues.queue import Queue


def restore_acquired(queue: Queue, sequences: set[int]) -> dict[int, Entry]:
    """Acquire the entries of these sequences; those that there are and nobody has."""
    held: dict[int, Entry] = {}
    if sequences:
        last: i64 = max(sequences)
        for priority_level in queue.priority_levels:
            _restore_in_level(queue, priority_level, sequences, last, held)
    return held


def _restore_in_level(
    queue: Queue,
    priority_level: PriorityLevel,
    sequences: set[int],
    last: i64,
    held: dict[int, Entry],
) -> None:
    passed: list[Entry] = []
    entry = priority_level.first
    # Up to here the cursor has passed them all.
    behind: Entry | None = None
    count = 0
    while entry is not None and entry.sequence <= last:
        if entry.state == RUN and priority_level.runs is not None:
            if not priority_level.runs.has_any(entry, sequences):
                entry = entry.next
                continue
            entry = priority_level.enter(entry, MOST)
        if entry.state == AVAILABLE:
            if entry.sequence in sequences:
                entry.state = ACQUIRED
                queue.available -= 1
                queue.acquired += 1
                if entry.group is not None:
                    entry.group.leave_behind(entry)
                held[int(entry.sequence)] = entry
                behind = entry
                count = len(passed)
            else:
                passed.append(entry)
        entry = entry.next
    if behind is None:
        return
    if queue.paging is not None:
        queue.paging.withheld = True
    else:
        priority_level.plain.next = behind.next
        for entry in passed[:count]:
            push(queue.plain.returned, entry, queue.available)
