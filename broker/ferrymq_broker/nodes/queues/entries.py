"""The entries of one queue: their order, number and size, and how they enter and leave.

Entries lie in `priority_levels`, one for each level of priority in use. Objects that point to
entries (views of consumers, browsers) register as an `EntryPointer`. If more has to happen when an
entry leaves, an `EntryWatcher` is told; a plain queue needs no watcher.

An entry leaves in one of these ways: `drop` (available, wherever it lies), `remove` (a consumer
held it), `consume` (it was sent settled to a consumer), `drop_run` (all messages of a run on disk).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i32, i64

from ferrymq_broker.nodes.entry import (
    ACQUIRED,
    AVAILABLE,
    DAMAGED,
    DEFERRED,
    REMOVED,
    RUN,
    Entry,
)
from ferrymq_broker.nodes.paging.pager import pager_of
from ferrymq_broker.nodes.queues.deferred import DeferredMessages
from ferrymq_broker.nodes.queues.disk_runs import RowWatcher
from ferrymq_broker.nodes.queues.persistence import QueueRecords, drop_body
from ferrymq_broker.nodes.queues.priority_levels import (
    DEFAULT_LEVEL,
    LEVELS,
    EntryPointer,
    PriorityLevel,
)

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Agenda, Node
    from ferrymq_broker.nodes.paging.state import PagingState
    from ferrymq_broker.nodes.queues.groups import Groups
    from ferrymq_broker.nodes.queues.sessions import QueueSession, Sessions


class EntryWatcher:
    """The interface of a watcher that learns which entries have left the queue, if it wants to
    know."""

    __slots__ = ()

    def on_unlinked(self, entry: Entry) -> None:
        """Act upon an entry that has left the queue."""

    def on_run_dropped(self) -> None:
        """Act upon messages of a run that have left the queue."""


@final
class QueueEntries:
    """The entries of the queue `node`.

    `available` and `acquired` count entries by state; `bytes` is the size of their payloads.
    `published` is the sequence of the last message; messages up to `recovered` came before the
    broker was started. `priority_levels` are in order, the most urgent first; most messages are in
    `default_level`. `groups` has the message groups, None if the queue does not use groups, and
    `sessions` the sessions, None if it has none. `deferred` has the deferred messages, None if
    there never were any. `paging` is the paging state of the queue, None if there is none. `purges`
    counts purges in progress.
    """

    __slots__ = (
        "node",
        "agenda",
        "records",
        "available",
        "acquired",
        "bytes",
        "published",
        "recovered",
        "default_level",
        "priority_levels",
        "groups",
        "deferred",
        "sessions",
        "paging",
        "purges",
        "row_watcher",
        "_watcher",
        "_watched",
        "_told",
        "_aged",
        "_pointers",
        "_by_level",
        "_low",
        "_high",
        "_leaving",
    )

    def __init__(self, node: Node, persist: bool, watcher: EntryWatcher) -> None:
        self.node: Node = node
        self.agenda: Agenda = node.agenda
        self.records: QueueRecords = QueueRecords(node, persist)
        self.available: i64 = 0
        self.acquired: i64 = 0
        self.bytes: i64 = 0
        self.published: i64 = 0
        self.recovered: i64 = 0
        self.default_level: PriorityLevel = PriorityLevel(DEFAULT_LEVEL)
        self.priority_levels: list[PriorityLevel] = [self.default_level]
        self.groups: Groups | None = None
        self.deferred: DeferredMessages | None = None
        self.sessions: Sessions | None = None
        self.paging: PagingState | None = None
        self.purges: i64 = 0
        # The watcher of messages on disk that expire.
        self.row_watcher: RowWatcher = RowWatcher()
        self._watcher = watcher
        # Whether anything has to be told when an entry leaves; `_told` is the watcher's part of
        # that.
        self._watched = False
        self._told = False
        # Whether the oldest entry has been asked for: from then on levels remember it.
        self._aged = False
        self._pointers: dict[EntryPointer, None] = {}
        self._by_level: list[PriorityLevel] | None = None
        # Priorities below and above these levels count as these levels.
        self._low: i64 = 0
        self._high: i64 = 0
        # The entry that leaves as a dead letter: its record stays until the dead letter is
        # published.
        self._leaving: Entry | None = None

    def use_levels(self, count: i64) -> None:
        """Use `count` priority levels from now on (AMQP 1.0 §3.2.1)."""
        # With 10 levels the bounds are 0 and 9, with one level both are 4.
        self._low = 5 - (count + 1) // 2
        self._high = 4 + count // 2

    def tell_watcher(self, told: bool) -> None:
        """Tell the watcher of every entry that leaves, or only of those that expire."""
        self._told = told
        self.reconsider()

    def reconsider(self) -> None:
        """Find out which optional work is needed at present."""
        self._watched = (
            self._told
            or self._aged
            or len(self._pointers) > 1
            or self.groups is not None
            or self.deferred is not None
            or self.sessions is not None
            or self.paging is not None
            or self.purges > 0
        )

    def use_paging(self, paging: PagingState | None) -> None:
        """Set the paging state of the queue; None removes it."""
        self.paging = paging
        self.reconsider()

    def add_pointer(self, pointer: EntryPointer) -> None:
        """Register a pointer, which is told of new levels and of entries that leave."""
        self._pointers[pointer] = None
        self.reconsider()

    def drop_pointer(self, pointer: EntryPointer) -> None:
        """Remove a pointer, which points to no entry any more."""
        self._pointers.pop(pointer, None)
        self.reconsider()

    def begin_purge(self) -> None:
        """Count a purge that begins: its cursors must be told of entries that leave."""
        self.purges += 1
        self.reconsider()

    def end_purge(self) -> None:
        """Note the end of a purge."""
        self.purges -= 1
        self.reconsider()

    # -- entries in ----------------------------------------------------------------------------

    def append(self, message: BrokerMessage) -> Entry:
        """Append a message behind all others of its priority, and ask for a turn of the queue."""
        self.published += 1
        level = i64(message.priority)
        if level == DEFAULT_LEVEL:
            priority_level = self.default_level
        else:
            if level < self._low:
                level = self._low
            elif level > self._high:
                level = self._high
            priority_level = self.level_of(level)
        entry = Entry(message, self.published, level)
        priority_level.append(entry)
        self.available += 1
        size: i64 = len(message.payload)
        entry.size = i32(size)
        self.bytes += size
        holders = message.holders
        message.holders = holders + 1
        if holders == 0:
            self.agenda.held += size
        groups = self.groups
        if groups is not None:
            groups.join(entry)
        sessions = self.sessions
        if sessions is not None:
            sessions.join(entry)
        node = self.node
        if node.store_id != 0 and self.records.keeps(message):
            self.records.keep(entry)
        if not node.dirty:
            node.touch()
        return entry

    def restore(self, entry: Entry, size: i64) -> None:
        """Append a stored entry, with a payload of this size; the caller counts its message."""
        entry.size = i32(size)
        self.level_of(entry.level).append(entry)
        self.available += 1
        self.bytes += size
        self.count_from(entry.sequence)

    def count_from(self, sequence: i64) -> None:
        """Count from this sequence on: earlier messages came before the broker was started."""
        if sequence > self.published:
            self.published = sequence
            self.recovered = sequence

    def restore_run(self, count: i64, size: i64, last: i64) -> None:
        """Count the messages of a run that was restored, up to the sequence `last`."""
        self.available += count
        self.bytes += size
        self.count_from(last)

    def level_of(self, level: i64) -> PriorityLevel:
        """Return the entries of a level; create the level if necessary."""
        by_level = self._by_level
        if by_level is None:
            if level == DEFAULT_LEVEL:
                return self.default_level
            # A level that has not been used yet has the default level in its place.
            by_level = [self.default_level] * LEVELS
            self._by_level = by_level
        priority_level = by_level[level]
        if priority_level.level != level:
            priority_level = self._make_level(level)
            by_level[level] = priority_level
        return priority_level

    def _make_level(self, level: i64) -> PriorityLevel:
        priority_level = PriorityLevel(level)
        levels = self.priority_levels
        at: i64 = 0
        while at < len(levels) and levels[at].level > level:
            at += 1
        levels.insert(at, priority_level)
        for pointer in self._pointers:
            pointer.add_level(at, priority_level)
        return priority_level

    # -- states --------------------------------------------------------------------------------

    def acquire(self, entry: Entry) -> None:
        """Count an available entry as held by a consumer."""
        entry.state = ACQUIRED
        entry.attempts += 1
        self.available -= 1
        self.acquired += 1

    def acquire_restored(self, entry: Entry) -> None:
        """Count an entry as held that was held before the broker was started."""
        entry.state = ACQUIRED
        self.available -= 1
        self.acquired += 1

    def give_back(self, entry: Entry) -> None:
        """Make an entry that a consumer held available."""
        self.acquired -= 1
        entry.state = AVAILABLE
        self.available += 1
        if self._aged:
            self.level_of(entry.level).is_back(entry)

    def set_aside(self, entry: Entry) -> None:
        """Keep an available entry, whose message cannot be read, from all consumers: it counts as
        held."""
        entry.state = DAMAGED
        self.available -= 1
        self.acquired += 1

    def set_aside_held(self, entry: Entry) -> None:
        """Keep an entry that was held, whose message cannot be read, from all consumers."""
        entry.state = DAMAGED

    def take_back(self, entry: Entry) -> None:
        """Make an entry that was set aside available, so that it can be dropped."""
        entry.state = AVAILABLE
        self.available += 1
        self.acquired -= 1

    def use_deferral(self) -> DeferredMessages:
        """Return the deferred messages; from now on there may be some."""
        deferred = self.deferred
        if deferred is None:
            deferred = DeferredMessages()
            self.deferred = deferred
            # The cursors may not have passed a message that was deferred before a restart.
            self.reconsider()
        return deferred

    def defer(self, entry: Entry) -> None:
        """Set an entry aside that a consumer held."""
        self.acquired -= 1
        self._set_deferred(entry)

    def restore_deferred(self, entry: Entry) -> None:
        """Set an entry aside that has been restored and was deferred before the restart."""
        self.available -= 1
        self._set_deferred(entry)

    def _set_deferred(self, entry: Entry) -> None:
        entry.state = DEFERRED
        self.use_deferral().add(entry)
        if entry.session is not None and self.sessions is not None:
            self.sessions.set_aside(entry.session, entry)

    def acquire_deferred(self, entry: Entry) -> None:
        """Count a deferred entry as held by a receiver."""
        self.use_deferral().count -= 1
        entry.state = ACQUIRED
        entry.attempts += 1
        self.acquired += 1
        if entry.session is not None and self.sessions is not None:
            self.sessions.acquire(entry.session, entry)

    def undefer(self, entry: Entry) -> None:
        """Make a deferred entry available, so that it can be dropped."""
        self.use_deferral().count -= 1
        entry.state = AVAILABLE
        self.available += 1

    def amend(self, entry: Entry, message: BrokerMessage) -> None:
        """Give the entry another form of its message (AMQP 1.0 §3.4.5)."""
        for pointer in self._pointers:
            pointer.forget(entry)
        self.bytes -= i64(entry.size)
        self.release_message(entry)
        entry.message = message
        size: i64 = len(message.payload)
        entry.size = i32(size)
        self.bytes += size
        message.holders += 1
        if message.holders == 1:
            self.agenda.held += size
        if entry.stored and self.node.store_id != 0:
            paging = self.paging
            if paging is not None:
                paging.amended[int(entry.sequence)] = int(self.agenda.changes.number)
            self.records.put(entry)

    # -- entries out ---------------------------------------------------------------------------

    def drop(self, entry: Entry) -> None:
        """Remove an available entry, wherever it is in its list."""
        self.level_of(entry.level).forget(entry)
        self.available -= 1
        self._unlink(entry)

    def remove(self, entry: Entry) -> None:
        """Remove an entry that a consumer held."""
        self.acquired -= 1
        self._unlink(entry)

    def consume(self, entry: Entry) -> None:
        """Remove an available entry that all cursors have passed."""
        self.available -= 1
        self._unlink(entry)

    def drop_run(self, priority_level: PriorityLevel, place: Entry) -> i64:
        """Drop all messages of a run; return how many there were."""
        runs = priority_level.runs
        if runs is None:
            return 0
        run = runs.of(place)
        count = run.count()
        size = run.bytes
        runs.drop(place)
        self.available -= count
        self.bytes -= size
        self._watcher.on_run_dropped()
        return count

    def _unlink(self, entry: Entry) -> None:
        watched = self._watched
        if watched:
            self.detach(entry)
        if self._by_level is None:
            self.default_level.unlink(entry)
        else:
            self.level_of(entry.level).unlink(entry)
        entry.state = REMOVED
        self.bytes -= i64(entry.size)
        if entry is self._leaving:
            self._leaving = None
        else:
            self.release(entry)
        if entry.deferred and self.deferred is not None:
            self.deferred.forget(entry)
        if watched or entry.expires != 0:
            self._watcher.on_unlinked(entry)

    def keep_record(self, entry: Entry) -> None:
        """Keep the record and the message of the entry, which leaves the queue next, until
        `release`."""
        self._leaving = entry

    def release(self, entry: Entry) -> None:
        """Drop the record of an entry that has left the queue, and release its message."""
        if entry.stored:
            self.records.drop(entry)
        self.release_message(entry)

    def detach(self, entry: Entry) -> None:
        """Move cursors and pointers past the entry."""
        self.level_of(entry.level).forget(entry)
        # The view without a filter, which every queue has, points to no entry.
        if len(self._pointers) > 1:
            for pointer in self._pointers:
                pointer.forget(entry)

    # -- messages in memory and on disk ----------------------------------------------------------

    def page_in(self, entry: Entry) -> bool:
        """Read the message of an entry that is out into memory; return false if it cannot be
        read."""
        pager = pager_of(self.agenda)
        return pager is not None and pager.load(self, entry)

    def page_in_scheduled(self, message: BrokerMessage, size: i64) -> bool:
        """Read a message into memory that is scheduled here and has an entry in another queue; see
        `page_in`."""
        pager = pager_of(self.agenda)
        return pager is not None and pager.load_message(self, message, size)

    def read_message(self, entry: Entry) -> BrokerMessage | None:
        """Return the message of an entry to look at, from memory or disk; None if it cannot be
        read."""
        if not entry.is_out():
            return entry.message
        pager = pager_of(self.agenda)
        return None if pager is None else pager.peek(self, entry)

    def passes(self, filter: Filter, entry: Entry) -> bool:
        """Return whether the message of an entry passes a filter; an unreadable message does
        not."""
        message = self.read_message(entry)
        return message is not None and filter.matches(message)

    def release_message(self, entry: Entry) -> None:
        """Release the message of an entry."""
        message = entry.message
        size = i64(entry.size)
        if len(message.payload) != size:
            pager = pager_of(self.agenda)
            if pager is not None:
                pager.forget(self, entry)
            return
        holders = message.holders - 1
        message.holders = holders
        if holders == 0:
            agenda = self.agenda
            agenda.held -= size
            if message.shared:
                drop_body(agenda, message)

    def release_out(self, blank: BrokerMessage, sequence: i64, size: i64) -> None:
        """Release a message that is out and has a blank."""
        pager = pager_of(self.agenda)
        if pager is not None:
            pager.forget_out(self, blank, sequence, size)

    # -- information -----------------------------------------------------------------------------

    def first_available(self) -> Entry | None:
        """Return the oldest available entry of the lowest priority, which is dropped first to make
        room."""
        self._aged = True
        self._watched = True
        for priority_level in reversed(self.priority_levels):
            entry = priority_level.first_available()
            if entry is not None:
                return entry
        return None

    def first_entry(self) -> Entry | None:
        """Return the entry of the message that came first, or the place of its run; None without a
        message."""
        found: Entry | None = None
        for priority_level in self.priority_levels:
            entry = priority_level.first
            if entry is not None and (found is None or entry.sequence < found.sequence):
                found = entry
        return found

    def first_sequence(self) -> i64:
        """Return a sequence that is not above that of any entry."""
        entry = self.first_entry()
        return self.published + 1 if entry is None else entry.sequence

    def pointed(self, priority_level: PriorityLevel) -> set[Entry]:
        """Return the entries of a level to which cursors, browsers and other pointers point."""
        found: set[Entry] = set()
        _add_to(found, priority_level.oldest)
        _add_to(found, priority_level.plain.next)
        out = priority_level.out
        if out is not None:
            _add_to(found, out.next)
        others = priority_level.others
        if others is not None:
            for cursor in others:
                _add_to(found, cursor.next)
        for pointer in self._pointers:
            _add_to(found, pointer.pointed(priority_level))
        return found

    def peek(
        self, count: int, from_sequence: i64 = 0, session: QueueSession | None = None
    ) -> list[Entry]:
        """Return up to `count` entries in the order of delivery, including held ones.

        Entries with a sequence below `from_sequence`, and with a session those of others, are left
        out. Nothing changes.
        """
        found: list[Entry] = []
        for priority_level in self.priority_levels:
            entry = priority_level.first
            while entry is not None and len(found) < count:
                if entry.state == RUN and priority_level.runs is not None:
                    # A queue with sessions has no runs.
                    runs = priority_level.runs
                    run = runs.of(entry)
                    index = run.begin
                    while index < run.end and len(found) < count:
                        if run.sequence(index) >= from_sequence:
                            found.append(runs.stand_in(run, index))
                        index += 1
                elif entry.sequence >= from_sequence and (
                    session is None or entry.session is session
                ):
                    found.append(entry)
                entry = entry.next
        return found

    def select_available(self, count: int) -> list[Entry]:
        """Return up to `count` available and deferred entries in the order of delivery; messages of
        runs become entries."""
        found: list[Entry] = []
        for priority_level in self.priority_levels:
            entry = priority_level.first
            while entry is not None and len(found) < count:
                if entry.state == RUN:
                    entry = priority_level.enter(entry, count - len(found))
                if entry.state == AVAILABLE or entry.state == DEFERRED:
                    found.append(entry)
                entry = entry.next
        return found


def _add_to(found: set[Entry], entry: Entry | None) -> None:
    if entry is not None:
        found.add(entry)
