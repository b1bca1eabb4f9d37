"""What a queue writes to the store, and how its records look.

The head of an entry, in front of the message as the queue has it, or of the id of its body:

    arrived i64 | format u32 | level u8 | flags u8

`arrived` is in milliseconds since the epoch. The flags say that the message has a body of its own
(`SHARED`), that it is `special`, that the time is not that of arrival but the one at which the
message expires (`EXPIRES`), and that it is the broker's `OWN`: no client sent it like this. That
is enough to know an entry without reading its message.

What has happened to an entry since it came is in a record of its own:

    failures i64 | numbers i64 …

The numbers are those of the links that must not get the message again (`Consumer.known_as`), as far
as they mean something behind a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64, u8

from ferrymq_broker.nodes.consumer import OWNER
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.node import BOUNDLESS
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.tables import BODY, DUPLICATE, ENTRY, SCHEDULED, STATE
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.value_reader import read_value
from ferrymq_codec.value_writer import write_value

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.nodes.queues.lifecycle.schedule import Scheduled
    from ferrymq_broker.nodes.queues.queue import Queue

HEAD: Final = 14
SHARED: Final = 1
SPECIAL: Final = 2
EXPIRES: Final = 4
OWN: Final = 8

# So many links may be kept from an entry through a restart.
MOST_EXCLUDED: Final = 64

_FORMATS: Final = 0x1_0000_0000
_SIGNED: Final = 0x7FFF_FFFF


class EntryHead(NamedTuple):
    """The head of an entry or of a scheduled message; `time` is when it came or, if it `expires`,
    when it does so, or when it is due."""

    time: int
    format: int
    level: int
    shared: bool
    special: bool
    expires: bool
    own: bool


def keep_entry(queue: Queue, entry: Entry) -> None:
    """Store an entry that has just been appended; until that is done nobody gets it."""
    entry.stored = True
    changes = queue.agenda.changes
    _put(queue, entry, encode_head(queue.agenda.wall, entry.level, entry.message, 0))
    if queue.unstable != changes.number:
        if queue.stable == BOUNDLESS:
            queue.stable = entry.sequence - 1
        queue.unstable = changes.number
        changes.watch(queue)


def put_entry(queue: Queue, entry: Entry) -> None:
    """Store the entry as it is now."""
    paging = queue.paging
    if paging is not None:
        paging.amended[int(entry.sequence)] = int(queue.agenda.changes.number)
    if entry.expires != 0:
        expires = queue.agenda.date_of(entry.expires)
        head = encode_head(expires, entry.level, entry.message, EXPIRES)
    else:
        head = encode_head(queue.agenda.wall, entry.level, entry.message, 0)
    _put(queue, entry, head)


def _put(queue: Queue, entry: Entry, head: bytes) -> None:
    agenda = queue.agenda
    message = entry.message
    if message.shared:
        agenda.changes.put_parts(
            ENTRY, queue.store_id, entry.sequence, head, _body(agenda, message)
        )
    else:
        agenda.changes.put_parts(ENTRY, queue.store_id, entry.sequence, head, message.payload)


def drop_entry(queue: Queue, entry: Entry) -> None:
    """An entry that is stored leaves the queue."""
    id = queue.store_id
    if id == 0:
        # The queue is being deleted, and all its records are dropped.
        return
    changes = queue.agenda.changes
    sequence = entry.sequence
    changes.drop(ENTRY, id, sequence)
    if entry.failures != 0 or entry.excluded is not None:
        changes.drop(STATE, id, sequence)


def drop_entries(queue: Queue, first: i64, last: i64) -> None:
    """Entries that are stored, of all sequences from `first` to `last`, leave the queue; none has a
    failed delivery."""
    id = queue.store_id
    if id == 0 or last < first:
        return
    if first == last:
        queue.agenda.changes.drop(ENTRY, id, first)
    else:
        queue.agenda.changes.drop_range(ENTRY, id, first, last)


def put_state(queue: Queue, entry: Entry) -> None:
    """Store how often the entry was delivered in vain, and which links must not get it again."""
    w = BytesWriter()
    write_i64_be(w, i64(entry.failures))
    excluded = entry.excluded
    if excluded is not None:
        # The last termini that were made come first.
        for number in sorted(one for one in excluded if one <= OWNER)[:MOST_EXCLUDED]:
            write_i64_be(w, number)
    queue.agenda.changes.put(STATE, queue.store_id, entry.sequence, w.getvalue())


def take_state(entry: Entry, value: bytes) -> None:
    """Give an entry what was stored of it with `put_state`; nothing where `value` is empty."""
    at: i64 = 8
    size: i64 = len(value)
    if size < at:
        return
    entry.failures = i32(read_i64_be(value, 0))
    while at < size:
        number = read_i64_be(value, at)
        if number <= OWNER:
            entry.exclude(number)
        at += 8


def put_scheduled(queue: Queue, scheduled: Scheduled) -> None:
    """Store a message that is to come later."""
    agenda = queue.agenda
    message = scheduled.message
    head = encode_head(agenda.date_of(scheduled.due), i64(message.priority), message, 0)
    id = queue.store_id
    if message.shared:
        agenda.changes.put_parts(SCHEDULED, id, scheduled.sequence, head, _body(agenda, message))
    else:
        agenda.changes.put_parts(SCHEDULED, id, scheduled.sequence, head, message.payload)


def drop_scheduled(queue: Queue, sequence: i64) -> None:
    """A message that was to come has come, or will not."""
    if queue.store_id != 0:
        queue.agenda.changes.drop(SCHEDULED, queue.store_id, sequence)


def put_identity(queue: Queue, number: i64, time: i64, identity: object) -> None:
    """Store what a message was known by, and when it came."""
    w = BytesWriter()
    write_i64_be(w, time)
    # A digest is a tuple, and no type of AMQP's.
    write_value(w, list(identity) if isinstance(identity, tuple) else identity, "identity")
    queue.agenda.changes.put(DUPLICATE, queue.store_id, number, w.getvalue())


def drop_identity(queue: Queue, number: i64) -> None:
    """The message may come again."""
    if queue.store_id != 0:
        queue.agenda.changes.drop(DUPLICATE, queue.store_id, number)


def read_identity(value: bytes) -> tuple[int, object]:
    """When it came, and what it was known by. Raises `StoreDamaged`."""
    try:
        reader = Reader(value, 8, len(value))
        identity = read_value(reader, "identity")
    except DecodeError as error:
        raise StoreDamaged(f"an identity cannot be read: {error}") from error
    return int(read_i64_be(value, 0)), tuple(identity) if isinstance(identity, list) else identity


def drop_queue(queue: Queue) -> None:
    """The queue is gone with all it has."""
    changes = queue.agenda.changes
    id = queue.store_id
    for table in (ENTRY, STATE, SCHEDULED, DUPLICATE):
        changes.drop_range(table, id, 0, LAST)


def drop_body(agenda: Agenda, message: BrokerMessage) -> None:
    """No entry has the message any more, which was stored apart from them."""
    id = agenda.bodies.pop(message, 0)
    if id != 0:
        agenda.changes.drop(BODY, id, 0)


def _body(agenda: Agenda, message: BrokerMessage) -> bytes:
    """The id of the body of a message, stored if it has not been before."""
    id: i64 = agenda.bodies.get(message, 0)
    if id == 0:
        id = agenda.changes.new_id()
        agenda.bodies[message] = id
        agenda.changes.put(BODY, id, 0, message.payload)
    w = BytesWriter()
    write_i64_be(w, id)
    return w.getvalue()


def encode_head(time: i64, level: i64, message: BrokerMessage, flags: int) -> bytes:
    """The head of an entry; `flags` may be `EXPIRES`."""
    w = BytesWriter()
    write_i64_be(w, time)
    format = message.format
    write_i32_be(w, i32(format - _FORMATS if format > _SIGNED else format))
    w.append(u8(level))
    if message.shared:
        flags |= SHARED
    if message.special:
        flags |= SPECIAL
    if message.origin == 0:
        flags |= OWN
    w.append(u8(flags))
    return w.getvalue()


def read_head(value: bytes) -> EntryHead:
    """The head of the value of an `ENTRY` or `SCHEDULED`. Raises `StoreDamaged`."""
    if len(value) < HEAD:
        raise StoreDamaged("an entry is shorter than its head")
    format: int = read_i32_be(value, 8)
    flags: int = value[13]
    return EntryHead(
        int(read_i64_be(value, 0)),
        format if format >= 0 else format + _FORMATS,
        int(value[12]),
        flags & SHARED != 0,
        flags & SPECIAL != 0,
        flags & EXPIRES != 0,
        flags & OWN != 0,
    )


def is_plain_head(head: bytes) -> bool:
    """Whether the head says of a message all that a plain queue has to know: it is neither shared
    nor special, and does not say when it expires."""
    return i64(head[13]) & (SHARED | SPECIAL | EXPIRES) == 0


def body_id(value: bytes) -> int:
    """The id of the body that the value of an entry with `EntryHead.shared` names."""
    if len(value) != HEAD + 8:
        raise StoreDamaged("an entry does not name its body")
    return int(read_i64_be(value, HEAD))
