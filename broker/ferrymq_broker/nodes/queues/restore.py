"""A queue as it was, from what its `QueueRecords` have written; nothing is written on the way.

    queue.restore(id, fields)              # what `Queue.describe_stored` gave
    restore = queue.restorer()
    for each entry, in order: restore.entry(...)      # or restore.run, for those of a run
    for each message that is to come: restore.scheduled(...)
    for each identity, in order: restore.identity(...)
    restore.finish()
    held = restore.acquire(sequences)      # once, before anybody consumes
    for entry in held.values(): consumer.hold(entry)

Entries that consumers held are available again, and count as delivered before.

A cursor never points to an entry that somebody holds and may remove. So where some are held, the
cursor begins behind the last of them, and what is available before counts as returned. Where the
queue is paged the cursor stays where it is: the pager's runs see to it that it is moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, RUN, Entry
from ferrymq_broker.nodes.paging.pager import pager_of
from ferrymq_broker.nodes.queues.disk_runs import MOST
from ferrymq_broker.nodes.queues.filter_views import push
from ferrymq_broker.nodes.queues.persistence import take_state

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.disk_runs import DiskRun
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.filter_views import FilterView
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel


@final
class QueueRestore:
    """The restore of the entries of one queue. `plain` is its view without a filter."""

    __slots__ = ("_entries", "_lifecycle", "_plain")

    def __init__(
        self, entries: QueueEntries, lifecycle: MessageLifecycle, plain: FilterView
    ) -> None:
        self._entries = entries
        self._lifecycle = lifecycle
        self._plain = plain

    def entry(
        self,
        sequence: i64,
        level: i64,
        time: i64,
        expires: bool,
        message: BrokerMessage,
        size: i64,
        state: bytes,
    ) -> None:
        """Append an entry, after all those of lower sequences.

        `time` is when the message came or, if so, `expires`. `size` is that of its payload, which
        may have left memory again since another entry had it. `state` is the value of its `STATE`,
        empty if it has none.
        """
        entries = self._entries
        lifecycle = self._lifecycle
        agenda = entries.agenda
        entry = _make(message, sequence, level, state)
        entries.restore(entry, size)
        message.holders += 1
        if message.holders == 1:
            agenda.held += size
        groups = entries.groups
        watched = (
            lifecycle.guarded or message.special or expires or lifecycle.policy_history is not None
        )
        if (watched or groups is not None) and entry.is_out():
            # What follows may read the message.
            entries.page_in(entry)
        if groups is not None:
            groups.join(entry)
        if watched:
            lifecycle.restore_entry(entry, time, expires)
        pager = pager_of(agenda)
        if pager is not None:
            pager.leave_restored(entries, entry)

    def is_indifferent(self) -> bool:
        """Return whether the queue need not see plain messages to have them as entries."""
        policy = self._lifecycle.policy
        return (
            self._entries.groups is None
            and self._lifecycle.policy_history is None
            and policy.message_ttl == 0
            and not policy.last_value_key
        )

    def can_rest(self) -> bool:
        """Return whether entries can be restored without their messages."""
        agenda = self._entries.agenda
        pager = pager_of(agenda)
        return pager is not None and agenda.held > pager.low and self.is_indifferent()

    def unread(self, sequence: i64, level: i64, size: i64, state: bytes, origin: i64) -> None:
        """Append an entry as `entry` does, of a queue that `can_rest`; its message, with a payload
        of this size, is plain and stays on disk."""
        pager = pager_of(self._entries.agenda)
        assert pager is not None
        entry = _make(pager.blank_of(origin), sequence, level, state)
        self._entries.restore(entry, size)
        pager.leave_unread(self._entries, entry)

    def run(self, level: i64, run: DiskRun) -> None:
        """Append messages that stay on disk, of a queue that `is_indifferent`, after all those of
        the level with lower sequences."""
        entries = self._entries
        pager = pager_of(entries.agenda)
        assert pager is not None
        pager.leave_run(entries, entries.level_of(level), run)
        entries.restore_run(run.count(), run.bytes, run.sequence(run.end - 1))

    def scheduled(self, sequence: i64, due: i64, message: BrokerMessage, size: i64) -> None:
        """Keep a message that is to come at `due`, with a payload of this size."""
        self._lifecycle.restore_scheduled(sequence, due, message, size)

    def identity(self, number: i64, time: i64, identity: object) -> bool:
        """Remember that a message with this identity came at `time`; return false if the queue
        does not look for duplicates any more."""
        return self._lifecycle.restore_identity(number, time, identity)

    def finish(self) -> None:
        """Drop what was replaced while a consumer held it: all is there. From now on changes are
        written again."""
        entries = self._entries
        paging = entries.paging
        if paging is not None:
            # Levels have come side by side.
            paging.note_restored(entries.recovered)
        self._lifecycle.drop_replaced()
        entries.node.touch()

    # -- entries that consumers have held since before ---------------------------------------

    def acquire(self, sequences: set[int]) -> dict[int, Entry]:
        """Acquire the entries of these sequences; return those that there are and nobody has."""
        held: dict[int, Entry] = {}
        if sequences:
            last: i64 = max(sequences)
            for priority_level in self._entries.priority_levels:
                self._acquire_in_level(priority_level, sequences, last, held)
        return held

    def _acquire_in_level(
        self,
        priority_level: PriorityLevel,
        sequences: set[int],
        last: i64,
        held: dict[int, Entry],
    ) -> None:
        entries = self._entries
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
                    entries.acquire_restored(entry)
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
        if entries.paging is not None:
            entries.paging.withheld = True
        else:
            priority_level.plain.next = behind.next
            for entry in passed[:count]:
                push(self._plain.returned, entry, entries.available)


def _make(message: BrokerMessage, sequence: i64, level: i64, state: bytes) -> Entry:
    entry = Entry(message, sequence, level)
    entry.stored = True
    # Perhaps somebody has had it.
    entry.attempts = 1
    take_state(entry, state)
    return entry
