"""The pager: it moves messages out of memory and back.

A message that is *out* has no payload in memory. If the message is on disk already (in the record
of an entry, or as a body that several entries share), the pager only drops the payload. It writes
other messages to `store/page_store.py` first.

A message with one entry is replaced by a *blank*. A connection has one blank for all its messages
with records, and one for all its messages with pages; so only the entry takes memory. A message
with several entries stays as an object and loses its payload. In both cases `Entry.is_out` is true,
and `Entry.size` is unchanged.

    load(entries, entry)       read the message into memory, with those behind it
    peek(entries, entry)       read the message once; it stays on disk
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i32, i64

from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.entry import ACQUIRED, AVAILABLE, Entry
from ferrymq_broker.nodes.message import BrokerMessage, derive
from ferrymq_broker.nodes.node import Agenda, MessagePager
from ferrymq_broker.nodes.paging.state import PagingState
from ferrymq_broker.nodes.queues.persistence import (
    HEAD,
    drop_body,
    encode_head,
    headed_message,
    read_message,
)
from ferrymq_broker.nodes.queues.priority_levels import AHEAD, AHEAD_BYTES
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.record_run import VALUE, RecordRun
from ferrymq_broker.store.tables import BODY, ENTRY
from ferrymq_codec.errors import DecodeError

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.disk_runs import DiskRun
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel
    from ferrymq_broker.store.page_store import PageStore
    from ferrymq_broker.store.store import Store

# Page-out ends when one part in so many of the allowed memory is free.
_MARGIN: Final = 8
# A run has at least so many messages that follow each other.
_LEAST: Final = 8
# The number of pages that are written, or dropped, together.
_TOGETHER: Final = 256
_TOGETHER_BYTES: Final = 1_048_576
# After reading so many bytes, the pager has the mapped files unmapped.
_UNMAP_BYTES: Final = 33_554_432
# The marks of blanks: of messages with records, and of messages with pages.
_RECORDED: Final = -1
_PAGED: Final = -2


@final
class Pager(MessagePager):
    """The pager of one broker. Above `high` bytes of messages in memory it pages out until there
    are `low` bytes. `messages` with `bytes` bytes are out.

    A run has at least `least` messages (`queues/disk_runs.py`).

    Counted since the start: messages that were `paged_out` and `paged_in`, and messages that could
    not be read (`damaged`). After many bytes have been read the pager calls `unmap`, which releases
    the mapped parts of the files.
    """

    __slots__ = (
        "agenda",
        "store",
        "high",
        "low",
        "least",
        "messages",
        "bytes",
        "paged_out",
        "paged_in",
        "damaged",
        "full",
        "pending",
        "loaded",
        "unmap",
        "_read_bytes",
        "_pages",
        "_recorded",
        "_paged",
        "_together",
        "_pairs",
        "_leaving",
        "_stale",
        "_last_id",
        "_reported",
    )

    def __init__(self, agenda: Agenda, store: Store, pages: PageStore, high: i64) -> None:
        self.agenda: Agenda = agenda
        self.store: Store = store
        self.high: i64 = high
        self.low: i64 = high - high // _MARGIN
        self.least: i64 = _LEAST
        self.messages: i64 = 0
        self.bytes: i64 = 0
        self.paged_out: i64 = 0
        self.paged_in: i64 = 0
        self.damaged: i64 = 0
        # Whether the disk refused pages when it was asked last.
        self.full: bool = False
        # Bytes that the next `flush` takes out of memory.
        self.pending: i64 = 0
        # Bytes of messages that are in memory again and that several queues may have. The `Sweep`
        # adds them to each queue, because it may have passed any of these queues already.
        self.loaded: i64 = 0
        self.unmap: Callable[[], object] | None = None
        self._read_bytes: i64 = 0
        self._pages = pages
        # Blanks by the connection that brought the messages.
        self._recorded: dict[int, BrokerMessage] = {}
        self._paged: dict[int, BrokerMessage] = {}
        # The keys of pages that several entries share.
        self._together: dict[BrokerMessage, bytes] = {}
        # Pages that will be written next, and the entries that are out after that.
        self._pairs: list[tuple[bytes, bytes]] = []
        self._leaving: list[tuple[PagingState, Entry]] = []
        # Keys of pages that are no longer needed.
        self._stale: list[bytes] = []
        self._last_id: i64 = 0
        self._reported: set[tuple[str, int]] = set()

    # -- out ---------------------------------------------------------------------------------

    def paging_of(self, entries: QueueEntries) -> PagingState:
        """Return the paging state of a queue; create it if necessary."""
        paging = entries.paging
        if paging is None:
            self._last_id += 1
            paging = PagingState(entries, self._last_id, self.least)
            entries.use_paging(paging)
        return paging

    def is_recorded(self, paging: PagingState, entry: Entry) -> bool:
        """Return whether the message is in a record that can be read now."""
        if not entry.stored or entry.sequence > paging.safe:
            return False
        return not paging.amended or int(entry.sequence) not in paging.amended

    def can_leave(self, paging: PagingState, entry: Entry) -> bool:
        """Return whether the message may leave memory now. While there is time, a message that will
        soon have a record waits for it, and no page is written of a message that a consumer holds,
        and will probably settle."""
        if self.is_recorded(paging, entry):
            return True
        if self.full:
            return False
        if not entry.stored and entry.state != ACQUIRED:
            return True
        return self.agenda.pageable() - self.pending > self.high + self.high // 2

    def put_out(self, paging: PagingState, entry: Entry) -> None:
        """Take the message of an entry, which `can_leave`, out of memory; some messages leave with
        the next `flush`."""
        message = entry.message
        alone = message.holders == 1
        recorded = self.is_recorded(paging, entry)
        shared = message.shared and message in self.agenda.bodies
        if recorded and shared:
            self._empty(message, entry)
        elif recorded and alone:
            self._blank_out(paging, entry, self._recorded, _RECORDED)
        else:
            # The object of a shared message must stay: its body is found by it.
            alone = alone and not shared
            key = _key(paging.id, entry.sequence)
            if not alone:
                if message in self._together:
                    # The page is being written for another entry already.
                    return
                self._last_id += 1
                key = _key(0, self._last_id)
                self._together[message] = key
            head = encode_head(0, entry.level, message, 0)
            self._pairs.append((key, head + message.payload))
            self._leaving.append((paging, entry))
            self.pending += i64(entry.size)
            if len(self._pairs) >= _TOGETHER or self.pending >= _TOGETHER_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write the collected pages."""
        if self._stale:
            stale = self._stale
            self._stale = []
            self._pages.drop(stale)
        leaving = self._leaving
        if not leaving:
            return
        pairs = self._pairs
        self._leaving = []
        self._pairs = []
        self.pending = 0
        try:
            self._pages.put(pairs)
        except OSError as error:
            self.full = True
            log.warning("messages stay in memory: no pages can be written", reason=str(error))
            for paging, entry in leaving:
                self._together.pop(entry.message, None)
                # The pager has passed this entry and must look at it again.
                paging.loaded += i64(entry.size)
            return
        for paging, entry in leaving:
            if entry.message.holders == 1 and entry.message not in self._together:
                self._blank_out(paging, entry, self._paged, _PAGED)
            else:
                self._empty(entry.message, entry)

    def leave_restored(self, entries: QueueEntries, entry: Entry) -> None:
        """Leave the message of a restored entry in memory if there is enough; entries come in
        order."""
        if self.agenda.pageable() > self.low:
            paging = self.paging_of(entries)
            paging.note_restored(entry.sequence)
            message = entry.message
            if entry.is_out() or entry.size == 0:
                return
            if message.shared:
                self._empty(message, entry)
            elif message.holders == 1:
                self._blank_out(paging, entry, self._recorded, _RECORDED)
                paging.fold_restored()

    def blank_of(self, origin: i64) -> BrokerMessage:
        """Return the blank for messages with records, of an origin."""
        return _blank(self._recorded, origin, _RECORDED)

    def leave_unread(self, entries: QueueEntries, entry: Entry) -> None:
        """Count the message of a restored entry, which has a blank, among those that are out;
        entries come in order."""
        size = i64(entry.size)
        paging = self.paging_of(entries)
        paging.note_restored(entry.sequence)
        paging.count += 1
        paging.bytes += size
        entry.message.holders += 1
        self.messages += 1
        self.bytes += size
        self.paged_out += 1
        paging.fold_restored()

    def leave_run(self, entries: QueueEntries, priority_level: PriorityLevel, run: DiskRun) -> None:
        """Append a run, whose messages are out, behind all others of the level."""
        paging = self.paging_of(entries)
        run.weigh()
        paging.runs_of(priority_level).append(run)
        paging.count += run.count()
        paging.bytes += run.bytes
        self.messages += run.count()
        self.bytes += run.bytes
        self.paged_out += run.count()

    def _blank_out(
        self, paging: PagingState, entry: Entry, blanks: dict[int, BrokerMessage], mark: i64
    ) -> None:
        """Replace the message of an entry by a blank."""
        message = entry.message
        size = i64(entry.size)
        blank = _blank(blanks, message.origin, mark)
        blank.holders += 1
        message.holders = 0
        entry.message = blank
        paging.count += 1
        paging.bytes += size
        self._left(size)

    def _empty(self, message: BrokerMessage, entry: Entry) -> None:
        """Remove the payload from the message."""
        message.payload = b""
        message.view = None
        self.agenda.emptied += 1
        self._left(i64(entry.size))

    def _left(self, size: i64) -> None:
        self.agenda.held -= size
        self.messages += 1
        self.bytes += size
        self.paged_out += 1

    # -- back --------------------------------------------------------------------------------

    def load(self, entries: QueueEntries, entry: Entry) -> bool:
        """Read the message of the entry, which is out, and the messages behind it, which will
        probably be needed next.

        Return false if it cannot be read: then the entry is set aside, unless a consumer holds it.
        """
        wanted = [entry]
        count: i64 = 1
        size = i64(entry.size)
        after = entry.next
        while (
            after is not None
            and count < AHEAD
            and size < AHEAD_BYTES
            and after.state == AVAILABLE
            and after.is_out()
        ):
            wanted.append(after)
            count += 1
            size += i64(after.size)
            after = after.next
        pages = self._take_pages(entries, wanted)
        index: i64 = 0
        while index < count:
            one = wanted[index]
            if one.message.header_end == _RECORDED:
                index = self._load_recorded(entries, wanted, index)
                continue
            # An entry before it may have the same message.
            if one.is_out():
                page = None if pages is None else pages[index]
                self._take(entries, one, self._read(entries, one, page))
            index += 1
        self._has_read(size)
        return not entry.is_out()

    def _load_recorded(self, entries: QueueEntries, wanted: list[Entry], index: i64) -> i64:
        """Read the messages of the entries with records that have consecutive sequences, from
        `index` on; return the index behind them."""
        first = wanted[index].sequence
        end = index
        size: i64 = 0
        while end < len(wanted):
            entry = wanted[end]
            if entry.message.header_end != _RECORDED or entry.sequence != first + end - index:
                break
            size += i64(entry.size) + HEAD
            end += 1
        run = self.store.run(ENTRY, entries.node.store_id, first, first + end - index, size)
        at: i64 = 0
        while index < end:
            entry = wanted[index]
            message = self._cut_out(run, at, entry) if at < len(run.stored) else None
            if message is None:
                # Perhaps only a record before it is missing. If not, this logs the reason.
                message = self._read(entries, entry, None)
            self._take(entries, entry, message)
            at += 1
            index += 1
        return end

    def _cut_out(self, run: RecordRun, at: i64, entry: Entry) -> BrokerMessage | None:
        """Return the message of an entry, whose record is in a run; None if it is damaged."""
        payload = run.rest(at, HEAD)
        if payload is None or len(payload) != i64(entry.size):
            return None
        try:
            return headed_message(run.stored[at], VALUE, payload, entry.message.origin)
        except DecodeError:
            return None

    def _take(self, entries: QueueEntries, entry: Entry, message: BrokerMessage | None) -> None:
        """Put a message that was read back into memory, or set its entry aside."""
        if message is None:
            entries.set_aside(entry)
        else:
            self._come_back(entries, entry, message)

    def peek(self, entries: QueueEntries, entry: Entry) -> BrokerMessage | None:
        """Read the message of the entry, which stays out; return None if it cannot be read."""
        page: bytes | None = None
        if self._has_page(entry):
            try:
                page = self._pages.get(self._key_of(entries, entry))
            except OSError as error:
                self._complain(entries, entry, str(error))
                return None
        self._has_read(i64(entry.size))
        return self._read(entries, entry, page)

    def _has_read(self, size: i64) -> None:
        self._read_bytes += size
        if self._read_bytes >= _UNMAP_BYTES:
            self._read_bytes = 0
            if self.unmap is not None:
                self.unmap()

    def _take_pages(self, entries: QueueEntries, wanted: list[Entry]) -> list[bytes | None] | None:
        """Return the page of each entry that has one, else None, and drop the pages. Return None if
        no entry has one."""
        paged: list[int] = []
        index: i64 = 0
        while index < len(wanted):
            if self._has_page(wanted[index]):
                paged.append(int(index))
            index += 1
        if not paged:
            return None
        values: list[bytes | None] = [None] * len(wanted)
        keys = [self._key_of(entries, wanted[at]) for at in paged]
        try:
            pages = self._pages.take(keys)
        except OSError as error:
            self._complain(entries, wanted[paged[0]], str(error))
            return values
        for at, page in zip(paged, pages, strict=True):
            values[at] = page
        return values

    def _has_page(self, entry: Entry) -> bool:
        """Return whether the message of the entry, which is out, has a page."""
        message = entry.message
        if message.header_end < 0:
            return message.header_end == _PAGED
        return message in self._together

    def _key_of(self, entries: QueueEntries, entry: Entry) -> bytes:
        key = self._together.get(entry.message)
        if key is not None:
            return key
        paging = entries.paging
        return _key(0 if paging is None else paging.id, entry.sequence)

    def _read(
        self, entries: QueueEntries, entry: Entry, page: bytes | None
    ) -> BrokerMessage | None:
        """Read the message of the entry from its `page`, or from its record, which may be passed as
        `page` too."""
        message = entry.message
        try:
            if self._has_page(entry):
                if page is None:
                    raise StoreDamaged("its page is missing or damaged")
            elif message.header_end >= 0:
                body = self.store.get(BODY, self.agenda.bodies.get(message, 0), 0)
                if body is None or len(body) != i64(entry.size):
                    raise StoreDamaged("its body is missing, or has another size")
                return derive(message, body, message.header_end)
            elif page is None:
                page = self.store.get(ENTRY, entries.node.store_id, entry.sequence)
                if page is None:
                    raise StoreDamaged("its record is missing")
            if len(page) != HEAD + i64(entry.size):
                raise StoreDamaged("its record has another size")
            if message.header_end >= 0:
                return derive(message, page[HEAD:], message.header_end)
            return read_message(page, message.origin)
        except (StoreDamaged, DecodeError, OSError) as error:
            self._complain(entries, entry, str(error))
            return None

    def _come_back(self, entries: QueueEntries, entry: Entry, message: BrokerMessage) -> None:
        """Put a message that was read back into memory."""
        size = i64(entry.size)
        before = entry.message
        paging = entries.paging
        if before.header_end < 0:
            message.holders = 1
            entry.message = message
            self._drop_blank(before)
            if paging is not None:
                paging.count -= 1
                paging.bytes -= size
        else:
            before.payload = message.payload
            self._together.pop(before, None)
            self.agenda.emptied -= 1
            self.loaded += size
        if paging is not None:
            paging.loaded += size
        self.agenda.held += size
        self.messages -= 1
        self.bytes -= size
        self.paged_in += 1

    def load_message(self, entries: QueueEntries, message: BrokerMessage, size: i64) -> bool:
        """Read a message, which several queues have, for a place that has no entry; see `load`."""
        stand_in = Entry(message, 0)
        stand_in.size = i32(size)
        return self.load(entries, stand_in)

    # -- gone --------------------------------------------------------------------------------

    def forget(self, entries: QueueEntries, entry: Entry) -> None:
        """Release the message of the entry, which is out."""
        message = entry.message
        size = i64(entry.size)
        if message.header_end >= 0:
            message.holders -= 1
            if message.holders == 0:
                self.forget_message(message, size)
            return
        self.forget_out(entries, message, entry.sequence, size)

    def forget_out(
        self, entries: QueueEntries, blank: BrokerMessage, sequence: i64, size: i64
    ) -> None:
        """Release a message that is out and has a blank: it leaves the queue."""
        paging = entries.paging
        if paging is not None:
            if blank.header_end == _PAGED:
                self._drop_page(_key(paging.id, sequence))
            paging.count -= 1
            paging.bytes -= size
        self._drop_blank(blank)
        self.messages -= 1
        self.bytes -= size

    def forget_message(self, message: BrokerMessage, size: i64) -> None:
        """Release a message that is out and has no entry any more, after it had several."""
        key = self._together.pop(message, None)
        if key is not None:
            self._drop_page(key)
        if message.shared:
            drop_body(self.agenda, message)
        self.agenda.emptied -= 1
        self.messages -= 1
        self.bytes -= size

    def _drop_blank(self, blank: BrokerMessage) -> None:
        blank.holders -= 1
        if blank.holders == 0:
            blanks = self._paged if blank.header_end == _PAGED else self._recorded
            del blanks[int(blank.origin)]

    def _drop_page(self, key: bytes) -> None:
        stale = self._stale
        stale.append(key)
        self.full = False
        if len(stale) >= _TOGETHER:
            self._stale = []
            self._pages.drop(stale)

    def tidy(self) -> None:
        """Release what is no longer needed; called from time to time."""
        self.full = False
        self.flush()
        self._pages.tidy()

    def close(self) -> None:
        """Close the pages; after that nothing can be read."""
        self._pages.close()

    # -- what cannot be read -------------------------------------------------------------------

    def _complain(self, entries: QueueEntries, entry: Entry, reason: str) -> None:
        place = (entries.node.address, int(entry.sequence))
        if place in self._reported:
            return
        if len(self._reported) < 10_000:
            self._reported.add(place)
        self.damaged += 1
        log.error(
            "a message cannot be read from disk",
            queue=place[0],
            sequence=place[1],
            reason=reason,
        )


def _blank(blanks: dict[int, BrokerMessage], origin: i64, mark: i64) -> BrokerMessage:
    """Return the blank for messages of an origin; create it if necessary."""
    blank = blanks.get(int(origin))
    if blank is None:
        blank = BrokerMessage(b"", 0, mark)
        blank.origin = origin
        blanks[int(origin)] = blank
    return blank


def pager_of(agenda: Agenda) -> Pager | None:
    """Return the pager of a broker, None if it has none."""
    pager = agenda.pager
    return pager if isinstance(pager, Pager) else None


def forget_message(agenda: Agenda, message: BrokerMessage, size: i64) -> None:
    """Release a message that is out and has no entry any more."""
    pager = pager_of(agenda)
    if pager is not None:
        pager.forget_message(message, size)


def _key(id: i64, number: i64) -> bytes:
    """Return the key of a page: for an entry, `id` is that of its queue; for a message that several
    entries share, `id` is 0."""
    w = BytesWriter()
    write_i64_be(w, id)
    write_i64_be(w, number)
    return w.getvalue()
