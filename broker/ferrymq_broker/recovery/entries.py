"""Recovery of queues from the store: entries, scheduled messages, identities of duplicates,
states of sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.broker import Broker
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.queues.persistence import HEAD, is_plain_head, read_head, read_identity
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.queues.restore import QueueRestore
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.recovery.messages import MessageLoader, origin_of
from ferrymq_broker.recovery.paged_out import PagedOut, find_paged_out
from ferrymq_broker.recovery.read_ahead import ReadAhead
from ferrymq_broker.recovery.recovered_state import Fields, RecoveredState
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import decode_map
from ferrymq_broker.store.records import Brief, Record
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import DUPLICATE, ENTRY, NAMES, SCHEDULED, SESSION, STATE

# A callback that gets the number of entries recovered so far.
OnEntries = Callable[[int], None]

# The entries between two calls of `OnEntries`.
_STEP: Final = 10_000
# The mapped bytes counted for the head of an entry.
_PAGE: Final = 4096


def recover_entries(
    broker: Broker, store: Store, found: RecoveredState, reading: ReadAhead, told: OnEntries
) -> int:
    """Recover the entries of all queues and return their number. Raises `StoreDamaged`."""
    messages = MessageLoader(broker.agenda, store, reading)
    states = _States(store)
    count: i64 = 0
    last: i64 = -1
    queue: Queue | None = None
    restore: QueueRestore | None = None
    gone = Gone(broker, found)
    paged_out = find_paged_out(store.take_paged_out(), found.queues)
    runs: PagedOut | None = None
    for record in store.scan_parts(ENTRY, _Heads(found, paged_out)):
        id: i64 = record.id
        if id != last:
            last = id
            queue = found.queues.get(id)
            restore = None if queue is None else queue.restorer()
            runs = paged_out.get(id)
        if runs is not None:
            count += runs.restore(record.number)
        if queue is None or restore is None:
            gone.meet(ENTRY, id, record.value, messages)
            continue
        value = record.value
        if len(value) < record.size:
            head = read_head(value)
            restore.unread(
                record.number,
                head.level,
                record.size - HEAD,
                states.of(id, record.number),
                origin_of(head),
            )
            reading.add(min(record.size, _PAGE))
            count += 1
            if count % _STEP == 0:
                told(count)
            continue
        reading.add(len(value))
        try:
            head = read_head(value)
            message, size = messages.load(head, value)
        except StoreDamaged as error:
            raise StoreDamaged(
                f"entry {record.number} of {queue.address[:200]!r}: {error}"
            ) from error
        restore.entry(
            record.number,
            head.level,
            head.time,
            head.expires,
            message,
            size,
            states.of(id, record.number),
        )
        count += 1
        if count % _STEP == 0:
            told(count)
    for runs in paged_out.values():
        count += runs.restore()
    told(count)
    _recover_scheduled(store, found, messages, gone)
    _recover_identities(broker, store, found, messages, gone)
    _recover_sessions(broker, store, found, messages, gone)
    gone.report()
    messages.drop_orphans()
    for one in found.queues.values():
        one.restorer().finish()
    return count


@final
class _Heads(Brief):
    """A reader that skips the bodies of messages that stay on disk and need not be seen."""

    __slots__ = ("_queues", "_paged_out", "_last", "_restore", "_runs")

    def __init__(self, found: RecoveredState, paged_out: dict[int, PagedOut]) -> None:
        self._queues = found.queues
        self._paged_out = paged_out
        self._last = -1
        self._restore: QueueRestore | None = None
        self._runs: PagedOut | None = None

    def suffices(self, id: int, head: bytes) -> bool:
        """See `Brief.suffices`."""
        self._turn_to(id)
        restore = self._restore
        return restore is not None and is_plain_head(head) and restore.can_rest()

    def passed(self, id: int, number: int) -> int:
        """See `Brief.passed`."""
        self._turn_to(id)
        runs = self._runs
        return -1 if runs is None else int(runs.passed(number))

    def _turn_to(self, id: int) -> None:
        if id != self._last:
            self._last = id
            queue = self._queues.get(id)
            self._restore = None if queue is None else queue.restorer()
            self._runs = self._paged_out.get(id)


class _States:
    """The states of entries, read along with them: both are in the same order."""

    def __init__(self, store: Store) -> None:
        self._records = store.scan(STATE)
        self._next: Record | None = None
        self._advance()

    def of(self, id: i64, sequence: i64) -> bytes:
        """Return the state of the entry of a sequence in the queue `id`, empty if it has none.
        Entries must be asked for in order.

        Raises `StoreDamaged`.
        """
        while True:
            record = self._next
            if record is None or record.id > id or (record.id == id and record.number > sequence):
                return b""
            if record.id == id and record.number == sequence:
                return record.value
            self._advance()

    def _advance(self) -> None:
        record = next(self._records, None)
        if record is not None and (not record.value or len(record.value) % 8):
            raise StoreDamaged(
                f"state {record.number} of queue {record.id} is not a list of numbers"
            )
        self._next = record


def _recover_scheduled(
    store: Store, found: RecoveredState, messages: MessageLoader, gone: Gone
) -> None:
    for record in store.scan(SCHEDULED):
        queue = found.queues.get(record.id)
        if queue is None:
            gone.meet(SCHEDULED, record.id, record.value, messages)
            continue
        try:
            head = read_head(record.value)
            message, size = messages.load(head, record.value)
        except StoreDamaged as error:
            raise StoreDamaged(
                f"scheduled message {record.number} of {queue.address[:200]!r}: {error}"
            ) from error
        queue.restorer().scheduled(record.number, head.time, message, size)


def _recover_identities(
    broker: Broker, store: Store, found: RecoveredState, messages: MessageLoader, gone: Gone
) -> None:
    changes = broker.agenda.changes
    for record in store.scan(DUPLICATE):
        queue = found.queues.get(record.id)
        topic = found.nodes.get(record.id) if queue is None else None
        if queue is None and not isinstance(topic, Topic):
            gone.meet(DUPLICATE, record.id, b"", messages)
            continue
        time, identity = read_identity(record.value)
        if queue is not None:
            needed = queue.restorer().identity(record.number, time, identity)
        else:
            assert isinstance(topic, Topic)
            needed = topic.restore_identity(record.number, time, identity)
        if not needed:
            changes.drop(DUPLICATE, record.id, record.number)


def _recover_sessions(
    broker: Broker, store: Store, found: RecoveredState, messages: MessageLoader, gone: Gone
) -> None:
    changes = broker.agenda.changes
    states: list[tuple[int, int, Queue, Fields]] = []
    for record in store.scan(SESSION):
        queue = found.queues.get(record.id)
        if queue is None:
            gone.meet(SESSION, record.id, b"", messages)
            continue
        fields = Fields(f"session {record.number} of queue {record.id}", decode_map(record.value))
        states.append((fields.number("changed"), record.number, queue, fields))
    states.sort(key=lambda state: state[:2], reverse=True)
    for changed, number, queue, fields in states:
        state = fields.map.get("state")
        if not isinstance(state, bytes):
            raise fields.wrong("state")
        if not queue.restorer().session(number, fields.text("id"), state, changed):
            changes.drop(SESSION, queue.store_id, number)


class Gone:
    """A collector of records whose queues do not exist."""

    def __init__(self, broker: Broker, found: RecoveredState) -> None:
        self._changes = broker.agenda.changes
        self._aside = found.aside
        self._met: dict[tuple[int, int], int] = {}

    def meet(self, table: i64, id: i64, value: bytes, messages: MessageLoader) -> None:
        """Count a record. If its queue is kept aside, keep its body instead."""
        if id in self._aside:
            if value:
                messages.keep(value)
        else:
            key = (table, id)
            self._met[key] = self._met.get(key, 0) + 1

    def report(self) -> None:
        """Drop the records, and log how many there were."""
        for (table, id), count in self._met.items():
            log.warning(
                "records of a queue that is gone are dropped",
                table=NAMES[table],
                queue=id,
                records=count,
            )
            self._changes.has_id(id)
            self._changes.drop_range(table, id, 0, LAST)
            if table == ENTRY:
                self._changes.drop_range(STATE, id, 0, LAST)
