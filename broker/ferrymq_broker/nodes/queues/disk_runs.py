"""Runs: a level keeps one run for many messages that are on disk, instead of an entry for each.

Entries of messages that are out differ in a few numbers only: the sequence, the size, the deadline.
A run keeps these for up to `MOST` messages, as rows of bytes, and has one *place* in the level: an
entry in the state `RUN`, with the sequence of the first message. Code that walks a level finds
places among entries. Rows become entries again when one is needed: `take` (those at the front),
`cut` (one in the middle), `release_due` (those that expire). `stand_in` makes a temporary entry to
look at.

A place is passed as a whole: a cursor that points to it has passed none of its messages; a
browser's position that points to it has passed all of them. Code that stops in the middle divides
the run (`divide`).

Only entries that nothing points to become rows (`fold`). Such an entry is available, no consumer
has had it or is excluded from it, and it has no group, no failed delivery and no last value.

A row: sequence (less `DiskRun.base`) i32 | size i32 | index of its kind i32. Deadlines (`Agenda`)
are i64 each: `Entry.expires` and, where a message has both, `Entry.expires_too`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from ferrymq_broker.nodes.entry import AVAILABLE, REMOVED, RUN, Entry
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.queues.priority_levels import AHEAD_BYTES

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel

# The most messages in a run.
MOST: Final = 1024
# The most kinds of messages in a run; a message of another kind begins another run.
_KINDS: Final = 64
# Bytes in a row.
ROW: Final = 12
_DEADLINE: Final = 8
# The largest difference between the sequences of a run.
_SPAN: Final = 0x7FFF_FFFF
_NOTHING: Final = BrokerMessage(b"", 0, 0)


class RowWatcher:
    """The interface of a watcher that learns which messages on disk expire, and says which must
    stay entries. The lifecycle of the queue implements it."""

    __slots__ = ()

    def has_key(self, entry: Entry) -> bool:
        """Return whether a newer message may replace that of the entry."""
        return False

    def watch_expiry(self, entry: Entry) -> None:
        """Watch the expiry of an entry that was a row."""

    def forget_expiry(self, entry: Entry) -> None:
        """Stop watching the expiry of an entry, which becomes a row."""

    def watch_run(self, place: Entry, moment: i64, date: i64) -> None:
        """Watch the expiry of a run: the first message expires at a moment by `Agenda.now`, or
        on a date; 0 is never."""

    def forget_run(self, place: Entry) -> None:
        """Stop watching a run that no longer exists."""


@final
class Kind:
    """The properties that several messages of a run share: the `message` that stands for them (a
    blank), whether they are `stored`, and their number of `attempts`."""

    __slots__ = ("message", "stored", "attempts")

    def __init__(self, message: BrokerMessage, stored: bool, attempts: i64) -> None:
        self.message: BrokerMessage = message
        self.stored: bool = stored
        self.attempts: i64 = attempts


@final
class DiskRun:
    """A run: the rows from `begin` to before `end`, of messages with `bytes` bytes. `deadlines` is
    empty if none of them expires, `others` if none has two deadlines."""

    __slots__ = ("base", "begin", "end", "bytes", "rows", "deadlines", "others", "kinds")

    def __init__(self, base: i64) -> None:
        self.base: i64 = base
        self.begin: i64 = 0
        self.end: i64 = 0
        self.bytes: i64 = 0
        self.rows: bytes = b""
        self.deadlines: bytes = b""
        self.others: bytes = b""
        self.kinds: list[Kind] = []

    def count(self) -> i64:
        """Return how many messages there are."""
        return self.end - self.begin

    def sequence(self, index: i64) -> i64:
        """Return the sequence of a row."""
        return self.base + i64(read_i32_be(self.rows, ROW * index))

    def size(self, index: i64) -> i64:
        """Return the size of the payload of a row."""
        return i64(read_i32_be(self.rows, ROW * index + 4))

    def kind(self, index: i64) -> Kind:
        """Return the kind of a row."""
        return self.kinds[i64(read_i32_be(self.rows, ROW * index + 8))]

    def deadline(self, index: i64) -> i64:
        """Return the deadline of a row that comes first; 0 for never."""
        return read_i64_be(self.deadlines, _DEADLINE * index) if self.deadlines else 0

    def deadline_too(self, index: i64) -> i64:
        """Return the second deadline of a row, by the other clock; 0 if it has none."""
        return read_i64_be(self.others, _DEADLINE * index) if self.others else 0

    def earliest(self, dates: bool) -> i64:
        """Return the earliest expiry of the messages by one of the clocks: a date, or a moment; 0
        if none expires."""
        earliest: i64 = 0
        for deadlines in (self.deadlines, self.others):
            if not deadlines:
                continue
            index = self.begin
            while index < self.end:
                time = read_i64_be(deadlines, _DEADLINE * index)
                if dates:
                    time = -time
                if time > 0 and (earliest == 0 or time < earliest):
                    earliest = time
                index += 1
        return earliest

    def kind_of(self, message: BrokerMessage, stored: bool, attempts: i64) -> i64:
        """Return the index of a kind, -1 if there is no room for another kind."""
        index: i64 = 0
        for kind in self.kinds:
            if kind.message is message and kind.stored == stored and kind.attempts == attempts:
                return index
            index += 1
        if index == _KINDS:
            return -1
        self.kinds.append(Kind(message, stored, attempts))
        return index

    def append(self, entries: list[Entry], first: i64) -> i64:
        """Append entries from the index `first` on, which are later than all rows; return the index
        of the first entry that does not fit."""
        rows = BytesWriter()
        deadlines = BytesWriter()
        others = BytesWriter()
        expires = bool(self.deadlines)
        twice = bool(self.others)
        count = self.count()
        index = first
        while index < len(entries) and count < MOST:
            entry = entries[index]
            offset = entry.sequence - self.base
            kind = self.kind_of(entry.message, entry.stored, i64(entry.attempts))
            if kind < 0 or offset > _SPAN:
                break
            write_i32_be(rows, i32(offset))
            write_i32_be(rows, entry.size)
            write_i32_be(rows, i32(kind))
            write_i64_be(deadlines, entry.expires)
            write_i64_be(others, entry.expires_too)
            if entry.expires != 0:
                expires = True
            if entry.expires_too != 0:
                twice = True
            self.bytes += i64(entry.size)
            count += 1
            index += 1
        begin = self.begin
        if expires:
            before = self.deadlines[_DEADLINE * begin :] or bytes(_DEADLINE * self.count())
            self.deadlines = before + deadlines.getvalue()
        if twice:
            before = self.others[_DEADLINE * begin :] or bytes(_DEADLINE * self.count())
            self.others = before + others.getvalue()
        self.rows = self.rows[ROW * begin :] + rows.getvalue()
        self.begin = 0
        self.end = count
        return index

    def weigh(self) -> None:
        """Count the bytes of rows that were not appended one by one, and the messages of each
        kind."""
        index = self.begin
        while index < self.end:
            self.bytes += self.size(index)
            self.kind(index).message.holders += 1
            index += 1

    def part(self, first: i64, end: i64) -> DiskRun:
        """Return a run of the rows from `first` to before `end`."""
        other = DiskRun(self.base)
        other.end = end - first
        other.rows = self.rows[ROW * first : ROW * end]
        if self.deadlines:
            other.deadlines = self.deadlines[_DEADLINE * first : _DEADLINE * end]
        if self.others:
            other.others = self.others[_DEADLINE * first : _DEADLINE * end]
        other.kinds = list(self.kinds)
        index: i64 = 0
        while index < other.end:
            other.bytes += other.size(index)
            index += 1
        return other


@final
class DiskRuns:
    """The runs of one `priority_level` of a queue. A run has at least `least` messages; fewer
    remain entries."""

    __slots__ = ("entries", "priority_level", "least", "_runs")

    def __init__(self, entries: QueueEntries, priority_level: PriorityLevel, least: i64) -> None:
        self.entries: QueueEntries = entries
        self.priority_level: PriorityLevel = priority_level
        self.least: i64 = least
        self._runs: dict[Entry, DiskRun] = {}

    def of(self, place: Entry) -> DiskRun:
        """Return the run of this place."""
        return self._runs[place]

    def has_any(self, place: Entry, sequences: set[int]) -> bool:
        """Return whether the run has a message with one of these sequences."""
        run = self._runs[place]
        index = run.begin
        while index < run.end:
            if int(run.sequence(index)) in sequences:
                return True
            index += 1
        return False

    def append(self, run: DiskRun) -> None:
        """Append a run at the end of the level."""
        self.priority_level.append(self._add(run))

    # -- entries out of rows -------------------------------------------------------------------

    def stand_in(self, run: DiskRun, index: i64) -> Entry:
        """Return a temporary entry with the content of a row; it is in no list."""
        kind = run.kind(index)
        entry = Entry(kind.message, run.sequence(index), self.priority_level.level)
        entry.size = i32(run.size(index))
        entry.stored = kind.stored
        entry.attempts = i32(kind.attempts)
        entry.expires = run.deadline(index)
        entry.expires_too = run.deadline_too(index)
        return entry

    def all(self, place: Entry) -> list[Entry]:
        """Return temporary entries of all rows."""
        run = self._runs[place]
        entries: list[Entry] = []
        index = run.begin
        while index < run.end:
            entries.append(self.stand_in(run, index))
            index += 1
        return entries

    def take(self, place: Entry, most: i64) -> Entry:
        """Make entries of up to `most` rows at the front; return the first one. Pointers to the
        place, which have passed none of its messages, now point to that entry."""
        run = self._runs[place]
        end = run.begin + most
        if end > run.end:
            end = run.end
        first: Entry | None = None
        while run.begin < end:
            entry = self._enter(place, run, run.begin)
            run.begin += 1
            if first is None:
                first = entry
        assert first is not None, "a run must not be empty"
        self.priority_level.redirect(place, first)
        self._shrink(place, run)
        return first

    def take_ahead(self, place: Entry, most: i64) -> Entry:
        """Make entries of up to `most` rows at the front, as many as are read from disk together;
        see `take`."""
        run = self._runs[place]
        size: i64 = 0
        index = run.begin
        while index < run.end and index - run.begin < most and size < AHEAD_BYTES:
            size += run.size(index)
            index += 1
        return self.take(place, index - run.begin)

    def cut(self, place: Entry, index: i64) -> Entry:
        """Make an entry of the row; the rows before it get a place of their own."""
        self.divide(place, index)
        return self.take(place, 1)

    def divide(self, place: Entry, index: i64) -> None:
        """Split off the rows before `index`: they become entries, or get a place of their own,
        before the place. Pointers that have passed none of the messages point there."""
        run = self._runs[place]
        if index <= run.begin:
            return
        if index - run.begin < self.least:
            self.take(place, index - run.begin)
            return
        before = self._add(run.part(run.begin, index))
        self.priority_level.insert(before, place)
        self.priority_level.redirect(place, before)
        run.bytes -= self._runs[before].bytes
        run.begin = index
        self._watch(before)
        self._shrink(place, run)

    def release_due(self, place: Entry) -> None:
        """Make entries of the rows that have expired; the entries lie before the place."""
        agenda = self.entries.agenda
        run = self._runs[place]
        due: list[int] = []
        index = run.begin
        while index < run.end:
            time = run.deadline(index)
            other = run.deadline_too(index)
            if (time != 0 and agenda.left(time) <= 0) or (other != 0 and agenda.left(other) <= 0):
                due.append(int(index))
            index += 1
        if not due:
            self._watch(place)
            return
        rest: list[Entry] = []
        at = 0
        index = run.begin
        while index < run.end:
            if at < len(due) and i64(due[at]) == index:
                at += 1
                self._enter(place, run, index)
            else:
                rest.append(self.stand_in(run, index))
            index += 1
        run.begin = run.end = 0
        run.rows = run.deadlines = run.others = b""
        run.bytes = 0
        run.append(rest, 0)
        self._shrink(place, run)
        if rest:
            self._watch(place)

    def _enter(self, place: Entry, run: DiskRun, index: i64) -> Entry:
        """Make an entry of the row, before the place; the caller still has to remove the row from
        the run."""
        entry = self.stand_in(run, index)
        run.bytes -= i64(entry.size)
        self.priority_level.insert(entry, place)
        if entry.expires != 0:
            self.entries.row_watcher.watch_expiry(entry)
        return entry

    def _shrink(self, place: Entry, run: DiskRun) -> None:
        """Note that rows at the front have been removed."""
        if run.begin == run.end:
            self._remove(place)
        else:
            place.renumber(run.sequence(run.begin))

    # -- rows out of entries -------------------------------------------------------------------

    def fold(self, begin: Entry, end: Entry | None, restored: i64) -> None:
        """Make rows of the entries from `begin` to before `end` where possible. No consumer has had
        the entries up to the sequence `restored` since they were restored."""
        held = self.entries.pointed(self.priority_level)
        place: Entry | None = None
        before = begin.prev
        back: i64 = 0
        # Entries that were too few for a run the last time.
        while before is not None and back < self.least and self._fits(before, restored):
            begin = before
            before = begin.prev
            back += 1
        if before is not None and before.state == RUN and before not in held:
            place = before
        batch: list[Entry] = []
        node: Entry | None = begin
        while node is not None and node is not end:
            after = node.next
            if node.state == RUN:
                place = self._fold(batch, place)
                batch = []
                if node in held or place is None or not self._merge(place, node):
                    place = node if node not in held else None
            elif node not in held and self._fits(node, restored):
                batch.append(node)
            else:
                self._fold(batch, place)
                batch = []
                place = None
            node = after
        self._fold(batch, place)

    def _fits(self, entry: Entry, restored: i64) -> bool:
        """Return whether the entry can be a row."""
        attempts = i64(entry.attempts)
        return (
            entry.state == AVAILABLE
            and entry.message.header_end < 0
            and entry.excluded is None
            and entry.group is None
            and entry.session is None
            and entry.failures == 0
            and not entry.deferred
            and (attempts == 0 or (attempts == 1 and entry.sequence <= restored))
            and not self.entries.row_watcher.has_key(entry)
        )

    def _fold(self, entries: list[Entry], place: Entry | None) -> Entry | None:
        """Make rows of these consecutive entries, in the run just before them or in new runs;
        return the last place, or None if an entry is last."""
        index: i64 = 0
        while index < len(entries):
            begin = index
            if place is not None:
                index = self._runs[place].append(entries, begin)
            if index == begin:
                if len(entries) - begin < self.least:
                    return None
                place = self._add(DiskRun(entries[begin].sequence))
                index = self._runs[place].append(entries, begin)
                self.priority_level.insert(place, entries[begin])
                place.renumber(entries[begin].sequence)
            assert place is not None and index > begin
            while begin < index:
                self._leave(entries[begin])
                begin += 1
            self._watch(place)
        return place

    def _leave(self, entry: Entry) -> None:
        self.priority_level.unlink(entry)
        # For code that still has the entry: it is no longer in the queue.
        entry.state = REMOVED
        if entry.expires != 0:
            self.entries.row_watcher.forget_expiry(entry)

    def _merge(self, place: Entry, other: Entry) -> bool:
        """Append the run of the other place to that of `place` if it fits; return whether it
        does."""
        run = self._runs[place]
        more = self._runs[other]
        if run.count() + more.count() > MOST or len(run.kinds) + len(more.kinds) > _KINDS:
            return False
        if more.sequence(more.end - 1) - run.base > _SPAN:
            return False
        run.append(self.all(other), 0)
        self._remove(other)
        self._watch(place)
        return True

    def _add(self, run: DiskRun) -> Entry:
        """Return a place for a run; the caller has to put it into the level."""
        place = Entry(_NOTHING, run.sequence(0) if run.end else run.base, self.priority_level.level)
        place.state = RUN
        self._runs[place] = run
        return place

    def _watch(self, place: Entry) -> None:
        """Watch the expiry of the messages of the run."""
        run = self._runs[place]
        moment = run.earliest(False)
        date = run.earliest(True)
        if moment != 0 or date != 0:
            self.entries.row_watcher.watch_run(place, moment, date)

    # -- the end of a run ----------------------------------------------------------------------

    def drop(self, place: Entry) -> None:
        """Drop all messages of the run, from memory and from the store."""
        entries = self.entries
        records = entries.records
        run = self._runs[place]
        first: i64 = 0
        last: i64 = -2
        index = run.begin
        while index < run.end:
            sequence = run.sequence(index)
            kind = run.kind(index)
            entries.release_out(kind.message, sequence, run.size(index))
            if kind.stored:
                if sequence != last + 1:
                    records.drop_range(first, last)
                    first = sequence
                last = sequence
            index += 1
        records.drop_range(first, last)
        self._remove(place)

    def _remove(self, place: Entry) -> None:
        del self._runs[place]
        self.entries.detach(place)
        self.priority_level.unlink(place)
        place.state = REMOVED
        if place.expires != 0:
            self.entries.row_watcher.forget_run(place)
