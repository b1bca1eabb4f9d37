"""A partition of a stream: its log, the retention, and the deliveries of its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.vecs import vec
from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log as journal
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.node import PERMANENT, Node, Refusal, Space
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_broker.nodes.streams.last_record import last_record
from ferrymq_broker.nodes.streams.partition_log import MemoryLog, PartitionLog
from ferrymq_broker.nodes.streams.segments import ENDLESS, Extent, LogSegment
from ferrymq_broker.nodes.streams.stored_log import StoredLog
from ferrymq_broker.nodes.streams.stream_annotations import (
    offset_entry,
    partition_entry,
    stamp,
    stamped,
    told_with,
)
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.tables import PARTITION, RECORD
from ferrymq_broker.timers import Timer
from ferrymq_broker.values.names import PART
from ferrymq_types.descriptors import HEADER

if TYPE_CHECKING:
    from ferrymq_broker.nodes.streams.stored import PartitionFields
    from ferrymq_broker.values.policy import StreamPolicy
    from ferrymq_types.transport import Error

# How many records a reader takes in one turn. While there are several readers, so many deliveries
# are kept encoded, so that readers at the same place share the work. Large ones are not kept,
# because copying them costs more than encoding the annotations in front of them.
SLICE: Final = 64
_SMALL: Final = 4096

DAMAGED: Final = "ferrymq:record-damaged"

# Into how many segments the retained age or number of records is divided, at least: up to one
# segment more than asked for may be kept.
_DIVISIONS: Final = 8


@final
class _Expiry(Timer):
    """The timer for the first segment of a partition that becomes too old."""

    __slots__ = ("partition",)

    def __init__(self, partition: StreamPartition) -> None:
        super().__init__()
        self.partition = partition

    def on_time(self, now: i64) -> None:
        """Drop segments that are too old."""
        self.partition.expire(now)


class RecordWaiter:
    """The interface of a reader of a partition that may have read all its records. `waiting` is
    true while the partition has to wake it for the next record."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: bool = False

    def rouse(self) -> None:
        """Continue reading: there is another record."""


class PartitionOwner(Node):
    """The interface of a stream, as its partitions see it."""

    __slots__ = ("policy",)

    def __init__(
        self, address: str, space: Space, policy: StreamPolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, lifetime)
        self.policy: StreamPolicy = policy

    def keeper_of(self, partition: i64) -> str:
        """Return the holder of the lowest offset of a partition; empty if there is no hold."""
        return ""

    def pass_holds(self, partition: i64, end: i64) -> None:
        """Move holds to the offset `end`, because all records of the partition before it are
        dropped."""


@final
class StreamPartition(Node):
    """A log of messages, and the node to which links to ``STREAM::N`` publish.

    `waiting` has the readers that have read everything. `readers` is the number of readers,
    `shared` is whether there are several. Records from the offset `held` on stay, whatever the
    limits say. `elsewhere` is whether another broker has the partition: it has no records here.
    """

    __slots__ = (
        "stream",
        "number",
        "elsewhere",
        "log",
        "waiting",
        "readers",
        "shared",
        "held",
        "_warned",
        "_entry",
        "_text",
        "_also",
        "_max_age",
        "_max_bytes",
        "_max_records",
        "_expiry",
        "_encoded",
        "_encoded_offsets",
    )

    # Attributes of `Node` that the methods assign: their types for type checkers.
    store_id: i64

    def __init__(self, stream: PartitionOwner, number: i64) -> None:
        super().__init__(f"{stream.address}{PART}{number}", stream.space)
        self.stream: PartitionOwner = stream
        self.number: i64 = number
        self.elsewhere: bool = False
        self.log: PartitionLog = MemoryLog(ENDLESS, ENDLESS, ENDLESS)
        self.waiting: list[RecordWaiter] = []
        self.readers: i64 = 0
        self.shared: bool = False
        self.held: i64 = ENDLESS
        # Whether it has been logged that holds keep much more than the limits.
        self._warned = False
        self._entry = partition_entry(number)
        personality = self.space.personality
        # Whether offsets are told as text.
        self._text = personality is not None and personality.text_offsets
        self._also = offset_entry("" if personality is None else personality.offset_annotation)
        self._expiry = _Expiry(self)
        self._max_age: i64 = ENDLESS
        self._max_bytes: i64 = ENDLESS
        self._max_records: i64 = ENDLESS
        # Encoded deliveries of the last records that were read, by the offset modulo `SLICE`, while
        # `shared`.
        self._encoded: list[BrokerMessage | None] = []
        self._encoded_offsets = vec[i64]()
        self.keep(stream.policy)

    def __repr__(self) -> str:
        return f"<partition {self.address!r} {self.log.first}..{self.log.next}>"

    @property
    def kind(self) -> str:
        """``partition``."""
        return "partition"

    def link_opened(self) -> None:
        """Count a link, for the stream too."""
        super().link_opened()
        self.stream.link_opened()

    def link_closed(self) -> None:
        """Count a link that is gone, for the stream too."""
        super().link_closed()
        self.stream.link_closed()

    def message_count(self) -> i64:
        """Return the number of records."""
        return self.log.next - self.log.first

    # -- messages in -----------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Append the message, whatever partition the message itself names."""
        log = self.log
        agenda = self.agenda
        log.append(message, agenda.wall, agenda.now)
        agenda.pin(len(message.payload))
        if log.bytes > self._max_bytes or log.next - log.first > self._max_records:
            self._trim()
        if self._max_age != ENDLESS and self._expiry.due == 0:
            self._set_expiry()
        if self.waiting and self.store_id == 0:
            self.rouse()
        return None

    def keeps(self, message: BrokerMessage) -> bool:
        """Return whether records are stored: all are, whatever they say themselves."""
        return self.store_id != 0

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Promise to append the message."""
        if self.deleted:
            return Refusal("amqp:not-found", f"{self.address!r} has been deleted")
        return None

    def rouse(self) -> None:
        """Wake the readers that wait: there is something to read."""
        waiting = self.waiting
        self.waiting = []
        for waiter in waiting:
            waiter.waiting = False
            waiter.rouse()

    # -- the store -------------------------------------------------------------------------

    def keep_stored(self, id: i64) -> None:
        """Store the partition, which has no records yet, from now on with this id."""
        self._store_as(id).write()

    def _store_as(self, id: i64) -> StoredLog:
        log = StoredLog(self, id)
        self.store_id = id
        self.log = log
        self._divide(self.stream.policy)
        return log

    def restore(self, id: i64, fields: PartitionFields) -> None:
        """Restore the partition with this id; its records follow in `restore_record`."""
        self.agenda.changes.has_id(id)
        self._store_as(id).restore(fields)

    def restore_record(self, offset: i64, value: bytes) -> None:
        """Restore a record with this value, empty if it cannot be read. Records come in order."""
        log = self.log
        if isinstance(log, StoredLog):
            log.restore_record(offset, value)

    def restored(self) -> None:
        """Drop records beyond the limits, after all records are restored."""
        log = self.log
        if isinstance(log, StoredLog):
            log.restored()
        self.keep(self.stream.policy)

    def seal(self) -> None:
        """Note that the records so far are in the next batch."""
        log = self.log
        if isinstance(log, StoredLog):
            log.seal()

    def stabilise(self, number: i64) -> None:
        """Show readers the records of that batch, which is on disk now, and count them."""
        log = self.log
        if self.deleted or not isinstance(log, StoredLog):
            return
        log.settle()
        if log.first < log.doomed:
            self._drop_until(log, log.doomed)
            self.stream.reconsider_life()
        if log.bytes > self._max_bytes or log.next - log.first > self._max_records:
            self._trim()
        if self._max_age != ENDLESS and self._expiry.due == 0:
            self._set_expiry()
        if self.waiting:
            self.rouse()

    def _drop_until(self, log: StoredLog, end: i64) -> None:
        oldest = log.oldest()
        while oldest is not None and oldest.first < end:
            self._drop()
            oldest = log.oldest()

    # -- retention -------------------------------------------------------------------------

    def keep(self, policy: StreamPolicy) -> None:
        """Use the limits of this policy from now on."""
        self._max_age = policy.max_age or ENDLESS
        self._max_bytes = policy.max_bytes or ENDLESS
        self._max_records = policy.max_records or ENDLESS
        self._divide(policy)
        log = self.log
        self._trim()
        self.space.timers.cancel(self._expiry)
        if self._max_age != ENDLESS and log.next > log.first:
            self.expire(self.agenda.now)

    def _divide(self, policy: StreamPolicy) -> None:
        self.log.divide(
            policy.segment_bytes, _part_of(policy.max_records), _part_of(policy.max_age)
        )

    def _trim(self) -> None:
        """Drop segments that are not held while enough remains without them."""
        log = self.log
        first = log.first
        while True:
            oldest = log.oldest()
            if oldest is None:
                break
            remaining = log.next - oldest.first - oldest.count
            if log.bytes - oldest.bytes < self._max_bytes and remaining < self._max_records:
                break
            if oldest.first + oldest.count > self.held:
                self._hold_back(oldest, self.agenda.now)
                break
            self._drop()
        if log.first != first:
            log.trimmed()

    def expire(self, now: i64) -> None:
        """Drop the segments that are not held and whose last record is too old."""
        log = self.log
        before = now - self._max_age
        first = log.first
        oldest = log.oldest()
        while oldest is not None and oldest.moment <= before:
            if oldest.first + oldest.count > self.held:
                self._hold_back(oldest, now)
                break
            self._drop()
            oldest = log.oldest()
        if log.first != first:
            log.trimmed()
        self._set_expiry()
        self.stream.reconsider_life()

    def _set_expiry(self) -> None:
        oldest = self.log.oldest()
        if oldest is None:
            return
        due = oldest.moment + self._max_age
        if oldest.first + oldest.count > self.held:
            # The segment is dropped when the hold moves. Until then a warning may be necessary.
            due += self._max_age
            if due <= self.agenda.now:
                return
        self.space.timers.set(self._expiry, due)

    # -- holds -----------------------------------------------------------------------------

    def held_at(self, offset: i64) -> i64:
        """Return the offset of a hold that asks for this one: a hold begins after records that are
        being dropped.

        Raises `BrokerError` if there is no record with this offset and it is not the next one.
        """
        log = self.log
        if offset < log.first or offset > log.next:
            raise BrokerError(
                "amqp:precondition-failed",
                f"{self.address!r} has the records from {log.first} to before {log.next}; a "
                f"hold cannot begin at {offset}",
                {
                    "partition": int(self.number),
                    "expected": int(offset),
                    "first": int(log.first),
                    "next": int(log.next),
                },
            )
        if isinstance(log, StoredLog) and offset < log.doomed:
            return log.doomed
        return offset

    def hold_from(self, offset: i64) -> None:
        """Hold records from this offset on; drop others if the limits say so."""
        forward = offset > self.held
        self.held = offset
        if not forward:
            return
        self._trim()
        log = self.log
        if self._max_age != ENDLESS and log.next > log.first:
            self.expire(self.agenda.now)
        oldest = log.oldest()
        if oldest is None or not self._is_too_much(oldest, self.agenda.now):
            self._warned = False

    def beyond(self, offset: i64) -> i64:
        """Return the bytes of records, from the segment of this offset on, that only holds keep."""
        before: i64 = -ENDLESS
        if self._max_age != ENDLESS:
            before = self.agenda.now - self._max_age
        return self.log.overdue(offset, self._max_bytes, self._max_records, before)

    def _is_too_much(self, oldest: Extent, now: i64) -> bool:
        """Return whether there is more than twice of what the limits allow."""
        log = self.log
        return (
            log.bytes // 2 > self._max_bytes
            or (log.next - log.first) // 2 > self._max_records
            or (now - oldest.moment) // 2 >= self._max_age
        )

    def _hold_back(self, oldest: Extent, now: i64) -> None:
        """Log a warning about records that only holds keep."""
        if self._warned or not self._is_too_much(oldest, now):
            return
        self._warned = True
        journal.warning(
            "a hold keeps a stream at more than twice its limits",
            stream=self.stream.address,
            partition=int(self.number),
            holder=self.stream.keeper_of(self.number),
            offset=int(self.held),
            bytes=int(self.log.bytes),
        )

    # -- dropping --------------------------------------------------------------------------

    def _drop(self) -> None:
        self.agenda.unpin(self.log.trim(self.agenda.slices))

    def clear(self) -> i64:
        """Drop all records, held or not; return how many there were. Offsets continue.

        Records that are not on disk yet are dropped when they are: readers never see them.
        """
        log = self.log
        count = log.doom()
        oldest = log.oldest()
        while oldest is not None:
            self._drop()
            oldest = log.oldest()
        if count > 0:
            log.trimmed()
        self._forget_encoded()
        self.space.timers.cancel(self._expiry)
        if self.held != ENDLESS:
            # Held or not: a purge drops all records.
            self.stream.pass_holds(
                self.number, log.doomed if isinstance(log, StoredLog) else log.next
            )
        return count

    def delete(self, error: Error) -> None:
        """End every link with `error` and drop everything."""
        id = self.store_id
        log = self.log
        if id != 0:
            changes = self.agenda.changes
            changes.drop(PARTITION, id, 0)
            changes.drop_range(RECORD, id, 0, LAST)
            self.store_id = 0
        super().delete(error)
        if isinstance(log, StoredLog):
            self.agenda.unpin(log.close())
        self.clear()

    # -- messages out ----------------------------------------------------------------------

    def count_readers(self, change: i64) -> None:
        """Add `change` to the number of readers."""
        self.readers += change
        shared = self.readers > 1
        if shared != self.shared:
            self.shared = shared
            self._forget_encoded()

    def _forget_encoded(self) -> None:
        if not self.shared:
            self._encoded = []
            self._encoded_offsets = vec[i64]()
            return
        self._encoded = [None] * SLICE
        self._encoded_offsets = vec[i64]([-1] * SLICE)

    def message_at(self, segment: LogSegment, index: i64) -> BrokerMessage:
        """Return the message for a delivery of a record, with its place in the annotations."""
        if not self.shared:
            return self.encode(segment, index, 0)
        offset = segment.first + index
        slot = offset % SLICE
        if self._encoded_offsets[slot] == offset:
            encoded = self._encoded[slot]
            if encoded is not None:
                return encoded
        message = self.encode(segment, index, 0)
        if len(message.payload) <= _SMALL:
            self._encoded[slot] = message
            self._encoded_offsets[slot] = offset
        return message

    def raw(self, segment: LogSegment, index: i64) -> BrokerMessage:
        """Return a record as it was published, for a delivery that begins with the bytes of
        `stamp`."""
        formats = segment.formats
        format: i64 = 0 if formats is None else formats.get(index, 0)
        return BrokerMessage(segment.payloads[index], format, 0)

    def last_record(self, skipped: i64) -> bytes:
        """Return the delivery-annotations for a reader that is told of the partition's last record
        with each delivery."""
        log = self.log
        last = log.next - 1
        time = log.ended() if log.first <= last else 0
        now = self.agenda.wall
        personality = self.space.personality
        if personality is None:
            told = last_record(last, time, now)
        else:
            told = personality.last_record(int(last), int(time), int(now))
        return told_with(told, skipped)

    def stamp(
        self, segment: LogSegment, index: i64, skipped: i64, told: bytes = b""
    ) -> tuple[bytes, int]:
        """Return, as `encode` without copying the record: the sections with which a delivery
        begins, and where the rest of the delivery begins in the record. `told` comes from
        `last_record`."""
        formats = segment.formats
        if formats is not None and (formats.get(index, 0) >> 8) != 0:
            return b"", 0
        return stamp(
            segment.payloads[index],
            segment.first + index,
            segment.times[index],
            self._entry,
            skipped,
            self._text,
            self._also,
            told,
        )

    def encode(self, segment: LogSegment, index: i64, skipped: i64) -> BrokerMessage:
        """Return `message_at` for a reader that has lost the `skipped` records before this one."""
        payload = segment.payloads[index]
        format: i64 = 0
        formats = segment.formats
        if formats is not None:
            format = formats.get(index, 0)
        if (format >> 8) == 0:
            payload = stamped(
                payload,
                segment.first + index,
                segment.times[index],
                self._entry,
                skipped,
                self._text,
                self._also,
            )
        message = BrokerMessage(payload, format, 0)
        if (format >> 8) == 0 and section_at(payload, 0) == HEADER:
            message.header_end = section_end(payload, 0)
        message.origin = segment.origins[index]
        return message

    def find(self, offset: i64) -> LogSegment:
        """Return the segment in memory with a record that readers may see. Raises `BrokerError` if
        the record cannot be read."""
        try:
            return self.log.find(offset)
        except StoreDamaged as error:
            raise BrokerError(
                DAMAGED,
                f"{self.address!r}: {error}; the log of the broker has the reason",
                {"partition": int(self.number), "offset": int(offset)},
            ) from error

    # -- information -----------------------------------------------------------------------

    def offset_at(self, time: i64) -> i64:
        """Return the offset of the first record that was appended at `time` (milliseconds since the
        epoch) or later; the offset of the next record if there is none."""
        return self.log.offset_at(time)

    def describe(self) -> dict[str, object]:
        """Return the first and last offset and time, and the counts and sizes."""
        log = self.log
        figures: dict[str, object] = {
            "partition": int(self.number),
            "first-offset": int(log.first),
            "next-offset": int(log.next),
            "records": int(log.next - log.first),
            "bytes": int(log.bytes),
            "first-time": None,
            "last-time": None,
        }
        if log.next > log.first:
            figures["first-time"] = int(log.began())
            figures["last-time"] = int(log.ended())
        return figures


def _part_of(limit: i64) -> i64:
    """Return the share of a limit that one segment may have."""
    if limit == 0:
        return ENDLESS
    part = limit // _DIVISIONS
    return part if part > 0 else 1
