"""The records that a queue writes to the store, and their format.

The head of an entry comes before the message, or before the id of its body:

    arrived i64 | format u32 | level u8 | flags u8

`arrived` is in milliseconds since the epoch. The flags say that the message has a body of its own
(`SHARED`), that it is `special`, that the time is not that of arrival but the one at which the
message expires (`EXPIRES`), and that the broker itself made the message (`OWN`). So an entry can be
restored without reading its message.

Changes of an entry since it came are in a record of their own:

    failures i64 | numbers i64 …

A number 1 says that the message is deferred. The other numbers are those of the links that must not
get the message again (`Consumer.known_as`), if they are valid after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64, u8

from ferrymq_broker.nodes.consumer import OWNER
from ferrymq_broker.nodes.message import BrokerMessage, restore
from ferrymq_broker.nodes.node import BOUNDLESS
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.tables import BODY, DUPLICATE, ENTRY, LEASE, SCHEDULED, SESSION, STATE
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.value_reader import read_value
from ferrymq_codec.value_writer import write_value

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Agenda, Node

HEAD: Final = 14
SHARED: Final = 1
SPECIAL: Final = 2
EXPIRES: Final = 4
OWN: Final = 8

# The number in the state of an entry that says that its message is deferred.
DEFERRED_FLAG: Final = 1

# The most links that can be excluded from an entry through a restart.
MOST_EXCLUDED: Final = 64

_FORMATS: Final = 0x1_0000_0000
_SIGNED: Final = 0x7FFF_FFFF


class EntryHead(NamedTuple):
    """The head of an entry or of a scheduled message. `time` is the arrival; if the message
    `expires`, it is the expiry; for a scheduled message it is when the message is due."""

    time: int
    format: int
    level: int
    shared: bool
    special: bool
    expires: bool
    own: bool


@final
class QueueRecords:
    """The records of the queue `node`. `persist` is whether it also stores messages that are not
    durable.

    `stable` is the sequence of the last entry that may be delivered: later entries are not on disk
    yet. `unstable` is the last batch that has such entries.
    """

    __slots__ = ("node", "agenda", "persist", "stable", "unstable", "_sealed")

    def __init__(self, node: Node, persist: bool) -> None:
        self.node: Node = node
        self.agenda: Agenda = node.agenda
        self.persist: bool = persist
        self.stable: i64 = BOUNDLESS
        self.unstable: i64 = 0
        # The last entry of the batch that is being written.
        self._sealed: i64 = 0

    def keeps(self, message: BrokerMessage) -> bool:
        """Return whether the message gets a record."""
        return self.node.store_id != 0 and (message.durable or self.persist)

    def seal(self, published: i64) -> None:
        """Note that the next batch has the entries up to this sequence."""
        self._sealed = published

    def stabilise(self, number: i64) -> None:
        """Release the entries of the batch `number`, which is on disk now, to consumers."""
        self.stable = BOUNDLESS if self.unstable == number else self._sealed

    # -- entries -----------------------------------------------------------------------------

    def keep(self, entry: Entry) -> None:
        """Store an entry that has just been appended; consumers get it only after that."""
        entry.stored = True
        changes = self.agenda.changes
        self._put(entry, encode_head(self.agenda.wall, entry.level, entry.message, 0))
        if self.unstable != changes.number:
            if self.stable == BOUNDLESS:
                self.stable = entry.sequence - 1
            self.unstable = changes.number
            changes.watch(self.node)

    def put(self, entry: Entry) -> None:
        """Store the present state of the entry."""
        if entry.expires != 0:
            expires = self.agenda.date_of(entry.expires)
            head = encode_head(expires, entry.level, entry.message, EXPIRES)
        else:
            head = encode_head(self.agenda.wall, entry.level, entry.message, 0)
        self._put(entry, head)

    def _put(self, entry: Entry, head: bytes) -> None:
        agenda = self.agenda
        id = self.node.store_id
        message = entry.message
        value = _body(agenda, message) if message.shared else message.payload
        agenda.changes.put_parts(ENTRY, id, entry.sequence, head, value)

    def drop(self, entry: Entry) -> None:
        """Drop the records of an entry that leaves the queue."""
        id = self.node.store_id
        if id == 0:
            # The queue is being deleted, with all its records.
            return
        changes = self.agenda.changes
        sequence = entry.sequence
        changes.drop(ENTRY, id, sequence)
        if entry.failures != 0 or entry.excluded is not None or entry.deferred:
            changes.drop(STATE, id, sequence)

    def drop_range(self, first: i64, last: i64) -> None:
        """Drop the records of all sequences from `first` to `last`; none of these entries has a
        failed delivery."""
        id = self.node.store_id
        if id == 0 or last < first:
            return
        if first == last:
            self.agenda.changes.drop(ENTRY, id, first)
        else:
            self.agenda.changes.drop_range(ENTRY, id, first, last)

    def put_state(self, entry: Entry) -> None:
        """Store the number of failed deliveries of a stored entry, whether it is deferred, and
        the links excluded from it."""
        id = self.node.store_id
        if id == 0 or not entry.stored:
            return
        w = BytesWriter()
        write_i64_be(w, i64(entry.failures))
        if entry.deferred:
            write_i64_be(w, DEFERRED_FLAG)
        excluded = entry.excluded
        if excluded is not None:
            # The numbers of the newest termini come first.
            for number in sorted(one for one in excluded if one <= OWNER)[:MOST_EXCLUDED]:
                write_i64_be(w, number)
        self.agenda.changes.put(STATE, id, entry.sequence, w.getvalue())

    # -- records without an entry ------------------------------------------------------------

    def put_scheduled(self, sequence: i64, due: i64, message: BrokerMessage) -> None:
        """Store a message that becomes available at the deadline `due`."""
        agenda = self.agenda
        id = self.node.store_id
        head = encode_head(agenda.date_of(due), i64(message.priority), message, 0)
        value = _body(agenda, message) if message.shared else message.payload
        agenda.changes.put_parts(SCHEDULED, id, sequence, head, value)

    def drop_scheduled(self, sequence: i64) -> None:
        """Drop the record of a scheduled message that has been appended or cancelled."""
        if self.node.store_id != 0:
            self.agenda.changes.drop(SCHEDULED, self.node.store_id, sequence)

    def put_identity(self, number: i64, time: i64, identity: object) -> None:
        """Store the identity of a message and the date of its arrival."""
        w = BytesWriter()
        write_i64_be(w, time)
        # A digest is stored as a tuple, which no AMQP type is.
        write_value(w, list(identity) if isinstance(identity, tuple) else identity, "identity")
        self.agenda.changes.put(DUPLICATE, self.node.store_id, number, w.getvalue())

    def drop_identity(self, number: i64) -> None:
        """Drop the record of an identity, which is no longer remembered."""
        if self.node.store_id != 0:
            self.agenda.changes.drop(DUPLICATE, self.node.store_id, number)

    def drop_all(self) -> None:
        """Drop all records of the queue, which is deleted."""
        id = self.node.store_id
        if id != 0:
            changes = self.agenda.changes
            for table in (ENTRY, STATE, SCHEDULED, DUPLICATE, SESSION, LEASE):
                changes.drop_range(table, id, 0, LAST)


def take_state(entry: Entry, value: bytes) -> None:
    """Restore the state of an entry that `put_state` stored; an empty `value` changes nothing."""
    at: i64 = 8
    size: i64 = len(value)
    if size < at:
        return
    entry.failures = i32(read_i64_be(value, 0))
    while at < size:
        number = read_i64_be(value, at)
        if number <= OWNER:
            entry.exclude(number)
        elif number == DEFERRED_FLAG:
            entry.deferred = True
        at += 8


def read_identity(value: bytes) -> tuple[int, object]:
    """Return the time and the identity in a record. Raises `StoreDamaged`."""
    try:
        reader = Reader(value, 8, len(value))
        identity = read_value(reader, "identity")
    except DecodeError as error:
        raise StoreDamaged(f"the stored identity of a message cannot be read: {error}") from error
    return int(read_i64_be(value, 0)), tuple(identity) if isinstance(identity, list) else identity


def drop_body(agenda: Agenda, message: BrokerMessage) -> None:
    """Drop the record of a body that no entry uses any more."""
    id = agenda.bodies.pop(message, 0)
    if id != 0:
        agenda.changes.drop(BODY, id, 0)


def _body(agenda: Agenda, message: BrokerMessage) -> bytes:
    """Return the id of the body of a message; store the body if it is not stored yet."""
    id: i64 = agenda.bodies.get(message, 0)
    if id == 0:
        id = agenda.changes.new_id()
        agenda.bodies[message] = id
        agenda.changes.put(BODY, id, 0, message.payload)
    w = BytesWriter()
    write_i64_be(w, id)
    return w.getvalue()


def encode_head(time: i64, level: i64, message: BrokerMessage, flags: int) -> bytes:
    """Return the head of an entry; `flags` may be `EXPIRES`."""
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
    """Return the head of the value of an `ENTRY` or `SCHEDULED`. Raises `StoreDamaged`."""
    if len(value) < HEAD:
        raise StoreDamaged("the record of an entry is shorter than its head")
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


def read_message(value: bytes, origin: i64) -> BrokerMessage:
    """Return the message in the value of an `ENTRY` that is not shared; a connection of the number
    `origin` brought it. Raises `DecodeError`, and `StoreDamaged` for a value without a head."""
    if len(value) < HEAD:
        raise StoreDamaged("the record of an entry is shorter than its head")
    return headed_message(value, 0, value[HEAD:], origin)


def headed_message(data: bytes, head: i64, payload: bytes, origin: i64) -> BrokerMessage:
    """Return the message of an entry whose head begins in `data` at `head`; see `read_message`."""
    format = i64(read_i32_be(data, head + 8))
    special = i64(data[head + 13]) & SPECIAL != 0
    return restore(payload, format & (_FORMATS - 1), special, origin)


def is_plain_head(head: bytes) -> bool:
    """Return whether the head has everything that a plain queue must know of the message: the
    message is neither shared nor special, and the head has no expiry."""
    return i64(head[13]) & (SHARED | SPECIAL | EXPIRES) == 0


def body_id(value: bytes) -> int:
    """Return the id of the body in the value of an entry with `EntryHead.shared`."""
    if len(value) != HEAD + 8:
        raise StoreDamaged("the record of an entry has no id of its body")
    return int(read_i64_be(value, HEAD))
