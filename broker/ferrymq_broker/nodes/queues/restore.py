"""Restoring the entries of a queue from the records that `QueueRecords` has written. Nothing is
written meanwhile.

    queue.restore(id, fields)              # what `Queue.describe_stored` gave
    restore = queue.restorer()
    for each entry, in order: restore.entry(...)      # or restore.run, for those of a run
    for each message that is to come: restore.scheduled(...)
    for each identity, in order: restore.identity(...)
    restore.finish()
    held = restore.acquire(sequences)      # once, before anybody consumes
    for entry in held.values(): consumer.hold(entry)

Entries that consumers held are available again and count as delivered before.

A cursor must not point to an entry that a consumer holds and may remove. So if consumers hold
entries, the cursor begins behind the last of them, and available entries before it count as
returned. If the queue is paged, the cursor stays where it is: the runs of the pager move it.
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
    """The object that restores the entries of one queue. `plain` is the queue's view without a
    filter."""

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
        """Append an entry; the entries of lower sequences come first.

        `time` is the arrival of the message or, with `expires`, its expiry. `size` is the size of
        its payload, which may be out of memory again since another entry had it. `state` is the
        value of its `STATE` record, empty if it has none.
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
        sessions = entries.sessions
        if (watched or groups is not None or sessions is not None) and entry.is_out():
            # The lines below may read the message.
            entries.page_in(entry)
        if groups is not None:
            groups.join(entry)
        if sessions is not None:
            sessions.join(entry)
        if watched:
            lifecycle.restore_entry(entry, time, expires)
        pager = pager_of(agenda)
        if pager is not None:
            pager.leave_restored(entries, entry)
        if entry.deferred:
            entries.restore_deferred(entry)

    def is_indifferent(self) -> bool:
        """Return whether plain messages can become entries without the lifecycle of the queue."""
        policy = self._lifecycle.policy
        return (
            self._entries.groups is None
            and self._entries.sessions is None
            and self._lifecycle.policy_history is None
            and policy.message_ttl == 0
            and not policy.last_value_key
        )

    def can_rest(self) -> bool:
        """Return whether entries can be restored without reading their messages."""
        agenda = self._entries.agenda
        pager = pager_of(agenda)
        return pager is not None and agenda.pageable() > pager.low and self.is_indifferent()

    def unread(self, sequence: i64, level: i64, size: i64, state: bytes, origin: i64) -> None:
        """Append an entry as `entry` does, for a queue that `can_rest`. Its message is plain, has a
        payload of this size and stays on disk."""
        pager = pager_of(self._entries.agenda)
        assert pager is not None
        entry = _make(pager.blank_of(origin), sequence, level, state)
        self._entries.restore(entry, size)
        pager.leave_unread(self._entries, entry)
        if entry.deferred:
            self._entries.restore_deferred(entry)

    def run(self, level: i64, run: DiskRun) -> None:
        """Append a run of messages that stay on disk, for a queue that `is_indifferent`; lower
        sequences of the level come first."""
        entries = self._entries
        pager = pager_of(entries.agenda)
        assert pager is not None
        pager.leave_run(entries, entries.level_of(level), run)
        entries.restore_run(run.count(), run.bytes, run.sequence(run.end - 1))

    def scheduled(self, sequence: i64, due: i64, message: BrokerMessage, size: i64) -> None:
        """Restore a message scheduled for `due`, with a payload of this size."""
        self._lifecycle.restore_scheduled(sequence, due, message, size)

    def identity(self, number: i64, time: i64, identity: object) -> bool:
        """Restore the identity of a message that came at `time`; return false if the queue does not
        detect duplicates any more."""
        return self._lifecycle.restore_identity(number, time, identity)

    def session(self, number: i64, id: str, state: bytes, changed: i64) -> bool:
        """Restore the state of a session; the one that changed last comes first. Return false if
        the queue has no sessions any more."""
        sessions = self._entries.sessions
        if sessions is None:
            return False
        sessions.restore_state(number, id, state, changed)
        return True

    def finish(self) -> None:
        """End the restore: drop entries that were replaced while a consumer held them, and write
        changes to the store from now on."""
        entries = self._entries
        paging = entries.paging
        if paging is not None:
            # Messages of several levels have come in one order.
            paging.note_restored(entries.recovered)
        self._lifecycle.drop_replaced()
        entries.node.touch()

    # -- entries that consumers held before the restart ----------------------------------------

    def acquire(self, sequences: set[int]) -> dict[int, Entry]:
        """Acquire the entries with these sequences; return those that exist and that no consumer
        holds."""
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
        # The cursor has passed all entries up to here.
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
    # A consumer may have had the message.
    entry.attempts = 1
    take_state(entry, state)
    return entry
