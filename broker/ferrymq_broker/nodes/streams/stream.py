"""The stream: an append-only log of messages in partitions, read by many.

Reading removes nothing: every reader has its own positions, and the outcomes of its deliveries
change nothing. Records are dropped by age and size only.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final
from uuid import UUID, uuid4

from mypy_extensions import i64

from ferrymq.chunks import BYTES, CHUNKS, RECORDS, UNTIL
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter_set import OFFSET
from ferrymq_broker.nodes.chunk_terms import chunk_of
from ferrymq_broker.nodes.node import PERMANENT, Node, Refusal, Space
from ferrymq_broker.nodes.streams.chunk_reader import ChunkStreamReader
from ferrymq_broker.nodes.streams.holds import RetentionHolds
from ferrymq_broker.nodes.streams.last_record import LAST_RECORD, wants_last_record
from ferrymq_broker.nodes.streams.partition import PartitionOwner, StreamPartition
from ferrymq_broker.nodes.streams.partitioner import place, read_part
from ferrymq_broker.nodes.streams.reader import PartitionCursor, StreamReader
from ferrymq_broker.nodes.streams.reader_groups import (
    EPOCH,
    GROUP,
    NO_EPOCH,
    ReaderGroups,
    epoch_of,
    group_of,
)
from ferrymq_broker.nodes.streams.record_reader import RecordStreamReader
from ferrymq_broker.nodes.streams.segments import ENDLESS
from ferrymq_broker.nodes.streams.spread import StreamPlacement, as_error, expect_placeable
from ferrymq_broker.nodes.streams.start_position import ON_TRIM, end_of, goes_on, start_of
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.timers import Timer
from ferrymq_codec.scalars import Symbol, UInt, ULong

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter_set import StreamPosition
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.streams.stored import PartitionFields
    from ferrymq_broker.slices import Slices
    from ferrymq_broker.values.policy import StreamPolicy
    from ferrymq_types.transport import Error

MAX_PARTITIONS: Final = 10_000

# How many filtering readers continue in one pass.
_AT_ONCE: Final = 4


@final
class _Turns(Timer):
    """The timer that gives a pass of its own to readers that skip many records."""

    __slots__ = ("stream",)

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream = stream

    def on_time(self, now: i64) -> None:
        """Give some of the readers their turn."""
        self.stream.unpark()


@final
class Stream(PartitionOwner):
    """A stream. `incarnation` is different for each stream that has had the same address; `holds`
    keep records that limits must not drop; `groups` has the readers by consumer group. `created` is
    when the stream was created, in milliseconds since the epoch, 0 if that is not known.
    `delivered` counts records sent to readers since the broker was started. `placement` says which
    partitions other brokers have; those are among `partitions` without records."""

    __slots__ = (
        "incarnation",
        "created",
        "placement",
        "partitions",
        "readers",
        "holds",
        "groups",
        "delivered",
        "_recovered",
        "_next",
        "_parked",
        "_turns",
    )

    # Attributes of `PartitionOwner` that the methods assign: their types for type checkers.
    store_id: i64

    def __init__(
        self, address: str, space: Space, policy: StreamPolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, policy, lifetime)
        self.incarnation: UUID = uuid4()
        self.created: i64 = self.agenda.wall
        self.placement: StreamPlacement = StreamPlacement(address, policy, space)
        self.partitions: list[StreamPartition] = []
        self.readers: list[StreamReader] = []
        self.holds: RetentionHolds = RetentionHolds(self)
        self.groups: ReaderGroups = ReaderGroups()
        self.delivered: i64 = 0
        # The number of messages that came before the broker was started.
        self._recovered: i64 = 0
        # The partition for the next message that names neither a partition nor a key.
        self._next: i64 = 0
        self._parked: deque[StreamReader] = deque()
        self._turns = _Turns(self)
        self._add_partitions(policy.partitions)

    def __repr__(self) -> str:
        return f"<stream {self.address!r} of {len(self.partitions)}>"

    @property
    def kind(self) -> str:
        """``stream``."""
        return "stream"

    # -- links -----------------------------------------------------------------------------

    def open_source(self, terms: SourceTerms) -> Node:
        """Return a reader for this link, of one partition or of all."""
        if terms.distribution_mode not in (None, "copy"):
            raise BrokerError(
                "amqp:not-implemented",
                f"{self.address!r} is a stream, which can only be read with distribution-mode copy",
            )
        if terms.exclusive:
            raise BrokerError(
                "amqp:not-implemented",
                f"{self.address!r} is a stream, which has no exclusive readers",
            )
        if self.placement.is_spread() and not terms.part:
            raise self.placement.whole_refused()
        forgiving = goes_on(terms.properties)
        position = terms.filters.position
        granted = terms.granted_properties
        reader: StreamReader
        if terms.part:
            reader = self._reader_of_one(terms, forgiving)
        else:
            for name in (CHUNKS, UNTIL):
                if terms.properties.get(name) is not None:
                    raise BrokerError(
                        "amqp:invalid-field",
                        f"the link property {name} is for one partition; read "
                        f"{self.address}::0 to {self.address}::{len(self.partitions) - 1} with "
                        "a link for each",
                    )
            reader = self._reader_of_all(position, forgiving)
            granted["ferrymq:first-offsets"] = [int(cursor.at()) for cursor in reader.cursors]
        reader.group = group_of(terms.properties)
        reader.epoch = epoch_of(terms.properties)
        self.groups.expect_place(
            reader, [cursor.partition for cursor in reader.cursors], self.policy
        )
        reader.tells_last = wants_last_record(terms.properties)
        if reader.tells_last:
            granted[LAST_RECORD] = True
        if reader.group:
            granted[GROUP] = reader.group
        if reader.epoch != NO_EPOCH:
            granted[EPOCH] = int(reader.epoch)
        granted["ferrymq:incarnation"] = self.incarnation
        granted["ferrymq:partitions"] = len(self.partitions)
        if ON_TRIM in terms.properties:
            granted[ON_TRIM] = "continue" if forgiving else "detach"
        terms.granted_mode = "copy"
        terms.browses = True
        return reader

    def _reader_of_one(self, terms: SourceTerms, forgiving: bool) -> StreamReader:
        partition = self.partition(terms.part)
        properties = terms.properties
        granted = terms.granted_properties
        until = end_of(properties)
        most = chunk_of(properties, terms.max_message_size)
        start = start_of(terms.filters.position, partition)
        reader: StreamReader
        if most is None:
            reader = RecordStreamReader(self, False, forgiving)
        else:
            reader = ChunkStreamReader(self, forgiving, most[0], most[1], start)
            granted[CHUNKS] = {Symbol(BYTES): ULong(most[0]), Symbol(RECORDS): UInt(most[1])}
        cursor = PartitionCursor(reader, partition, start)
        cursor.until = until
        reader.cursors.append(cursor)
        granted["ferrymq:first-offset"] = int(start)
        if until != ENDLESS:
            granted[UNTIL] = int(until)
        return reader

    def _reader_of_all(self, position: StreamPosition | None, forgiving: bool) -> StreamReader:
        if position is not None and position.kind == OFFSET and len(self.partitions) > 1:
            raise BrokerError(
                "amqp:invalid-field",
                f"an offset belongs to one partition; read {self.address}::0 to "
                f"{self.address}::{len(self.partitions) - 1} with a link for each",
            )
        reader = RecordStreamReader(self, True, forgiving)
        for partition in self.partitions:
            reader.cursors.append(PartitionCursor(reader, partition, start_of(position, partition)))
        return reader

    def open_target(self, terms: TargetTerms) -> Node:
        """Return the stream or the partition that a link with these terms publishes to."""
        if self.placement.is_spread() and not terms.part:
            raise self.placement.whole_refused()
        return self.target(terms.part)

    def target(self, part: str) -> Node:
        """Return the target of messages sent to ``STREAM::N``: the partition."""
        return self.partition(part) if part else self

    def partition(self, part: str) -> StreamPartition:
        """Return the partition that the part of an address names. Raises `BrokerError` if there is
        none, and ``amqp:link:redirect`` if another broker has it."""
        number = read_part(part)
        if number < 0 or number >= len(self.partitions):
            raise BrokerError(
                "amqp:not-found",
                f"{self.address!r} has no partition {part[:200]!r}; it has the partitions 0 to "
                f"{len(self.partitions) - 1}",
            )
        partition = self.partitions[number]
        if partition.elsewhere:
            raise self.placement.redirect(number)
        return partition

    def here(self) -> list[StreamPartition]:
        """Return the partitions that this broker has."""
        if not self.placement.is_spread():
            return self.partitions
        return [partition for partition in self.partitions if not partition.elsewhere]

    # -- messages in -----------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Append the message to its partition."""
        partitions = self.partitions
        number: i64 = -1
        if message.special:
            # Only such a message can name a partition, a key or a group-id.
            try:
                number = place(message, len(partitions), self.space.partitioner)
            except BrokerError as error:
                return _refusal(error)
        if number < 0:
            number = self._next
            while partitions[number].elsewhere:
                number = number + 1 if number + 1 < len(partitions) else 0
            self._next = number + 1 if number + 1 < len(partitions) else 0
        elif partitions[number].elsewhere:
            return _refusal(self.placement.not_here(number))
        return partitions[number].publish(message)

    def keeps(self, message: BrokerMessage) -> bool:
        """Return whether records are stored: all are, whatever they say themselves."""
        return self.store_id != 0

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Promise to append the message, unless its partition does not exist, or is elsewhere."""
        if self.deleted:
            return Refusal("amqp:not-found", f"{self.address!r} has been deleted")
        if message.special:
            try:
                number = place(message, len(self.partitions), self.space.partitioner)
            except BrokerError as error:
                return _refusal(error)
            if number >= 0 and self.partitions[number].elsewhere:
                return _refusal(self.placement.not_here(number))
        return None

    # -- readers with filters ----------------------------------------------------------------

    def park(self, reader: StreamReader) -> None:
        """Postpone a reader that has skipped so many records that others must have their turn."""
        self._parked.append(reader)
        if self._turns.due == 0:
            self.space.timers.set(self._turns, self.agenda.now)

    def unpark(self) -> None:
        """Resume some of the readers that wait."""
        parked = self._parked
        turns: i64 = _AT_ONCE
        while parked and turns > 0:
            reader = parked.popleft()
            reader.parked = False
            if reader.consumer is not None:
                turns -= 1
                reader.touch()
        if parked:
            # Set the timer later than this pass.
            self.space.timers.set(self._turns, self.agenda.now + 1)

    # -- settings --------------------------------------------------------------------------

    def grow(self, partitions: i64) -> None:
        """Set the number of partitions. Raises `BrokerError` if there are more already.

        From now on keys go to other partitions; readers of all partitions read the new ones, too.
        """
        present = len(self.partitions)
        if partitions < present:
            raise BrokerError(
                "amqp:precondition-failed",
                f"{self.address!r} has {present} partitions; their number cannot be reduced",
            )
        self._add_partitions(partitions)

    def moving(self, policy: StreamPolicy) -> i64:
        """Return a partition that has, or has had, records here, and that another broker would have
        with this policy; −1 if there is none."""
        placement = StreamPlacement(self.address, policy, self.space)
        for partition in self.partitions:
            if partition.log.next > 0 and not placement.is_here(partition.number):
                return partition.number
        return -1

    def change_policy(self, policy: StreamPolicy) -> None:
        """Use another policy from now on. Raises `BrokerError` if it has fewer partitions, or if a
        partition with records would be on another broker."""
        if policy.partitions_on != self.placement.entries:
            self._place_anew(policy)
        self.grow(policy.partitions)
        self.policy = policy
        for partition in self.partitions:
            partition.keep(policy)

    def _place_anew(self, policy: StreamPolicy) -> None:
        """Use the placement of a policy from now on. Raises `BrokerError`."""
        expect_placeable(self.address, policy, self.space)
        placement = StreamPlacement(self.address, policy, self.space)
        moving = self.moving(policy)
        if moving >= 0:
            raise placement.immovable(moving)
        if policy.partitions < len(self.partitions):
            # `grow` raises the error, before anything is changed.
            return
        self.placement = placement
        for number, partition in enumerate(self.partitions):
            if partition.elsewhere == placement.is_here(number):
                self._move(number)
        if placement.is_spread():
            self._end_whole_links()

    def _move(self, number: i64) -> None:
        """Give up a partition without records, or have one that another broker has had."""
        partition = self.partitions[number]
        if partition.elsewhere:
            partition.elsewhere = False
            if self.store_id != 0:
                partition.keep_stored(self.agenda.changes.new_id())
            self.holds.cover(number)
            return
        self.holds.leave(number)
        partition.delete(as_error(self.placement.redirect(number)))
        partition = StreamPartition(self, number)
        partition.elsewhere = True
        self.partitions[number] = partition

    def _end_whole_links(self) -> None:
        """End the links to the whole stream, of which this broker has only a part now."""
        error = as_error(self.placement.whole_refused())
        for producer in list(self.producers):
            producer.evict(error)
        for reader in list(self.readers):
            if reader.whole and reader.consumer is not None:
                reader.stop(reader.consumer, error)

    def _add_partitions(self, count: i64) -> None:
        if count < 1 or count > MAX_PARTITIONS:
            raise BrokerError(
                "amqp:invalid-field",
                f"the policy has {count} partitions; it must have 1 to {MAX_PARTITIONS}",
            )
        number: i64 = len(self.partitions)
        while number < count:
            partition = StreamPartition(self, number)
            partition.elsewhere = not self.placement.is_here(number)
            self.partitions.append(partition)
            number += 1
            if partition.elsewhere:
                continue
            if self.store_id != 0:
                partition.keep_stored(self.agenda.changes.new_id())
            self.holds.cover(partition.number)
            for reader in self.readers:
                if reader.whole:
                    reader.read_too(partition)

    # -- holds -----------------------------------------------------------------------------

    def keeper_of(self, partition: i64) -> str:
        """See `PartitionOwner.keeper_of`."""
        return self.holds.keeper(partition)

    def pass_holds(self, partition: i64, end: i64) -> None:
        """See `PartitionOwner.pass_holds`."""
        self.holds.pass_(partition, end)

    def hold(self, holder: str, partition: i64, offset: i64) -> None:
        """Keep the records of a partition from an offset on until the holder says otherwise. Once a
        holder has an offset in every partition, partitions that are added later are held, too. Must
        be called in a pass.

        Raises `BrokerError` (``amqp:precondition-failed``) for an offset before the first record or
        after the next one, and if there are too many holds.
        """
        self.holds.move(holder, {int(partition): int(offset)})

    def release(self, holder: str) -> bool:
        """Release the hold of a holder; return false if there was none. Must be called in a
        pass."""
        return self.holds.release(holder)

    # -- the store -------------------------------------------------------------------------

    def keep_stored(self, id: i64) -> None:
        """Store the stream, which is new, from now on, with the id of its `NODE`."""
        self.store_id = id
        for partition in self.here():
            partition.keep_stored(self.agenda.changes.new_id())

    def describe_stored(self) -> dict[str, object]:
        """Return the fields of its `NODE` beside those of every node, for `restore`."""
        return {"incarnation": self.incarnation, "created": int(self.created)}

    def restore(self, id: i64, fields: dict[str, object]) -> None:
        """Restore the stream from its id and the fields of `describe_stored`; its partitions
        follow.

        Raises `StoreDamaged`.
        """
        incarnation = fields.get("incarnation")
        if not isinstance(incarnation, UUID):
            raise StoreDamaged(f"the stored stream {self.address!r} has no incarnation")
        created = fields.get("created", 0)
        if not isinstance(created, int):
            raise StoreDamaged(
                f"the stored stream {self.address!r} has the invalid creation time {created!r}"
            )
        self.agenda.changes.has_id(id)
        self.store_id = id
        self.incarnation = incarnation
        self.created = created

    def restore_partition(self, id: i64, fields: PartitionFields) -> StreamPartition:
        """Restore a partition that was stored with this id; its records follow. Raises
        `StoreDamaged`."""
        number = fields.number
        if number < 0 or number >= MAX_PARTITIONS:
            raise StoreDamaged(f"the stored stream {self.address!r} has no partition {number}")
        while number >= len(self.partitions):
            self.partitions.append(StreamPartition(self, len(self.partitions)))
        partition = self.partitions[number]
        if partition.store_id != 0:
            raise StoreDamaged(f"the stored stream {self.address!r} has two partitions {number}")
        # What is stored is here, whatever the URL of this broker is now.
        partition.elsewhere = False
        partition.restore(id, fields)
        return partition

    def restored(self) -> None:
        """Drop records beyond the limits, after all records are restored."""
        for partition in self.here():
            if partition.store_id == 0:
                partition.keep_stored(self.agenda.changes.new_id())
            else:
                partition.restored()
                if partition.log.next == 0 and not self.placement.is_here(partition.number):
                    # The URL of this broker has changed.
                    self._move(partition.number)
                    continue
            self._recovered += partition.log.next

    # -- information -------------------------------------------------------------------------

    def message_count(self) -> i64:
        """Return the number of records in all partitions."""
        count: i64 = 0
        for partition in self.partitions:
            count += partition.message_count()
        return count

    def published(self) -> i64:
        """Return the number of records appended since the broker was started."""
        count: i64 = 0
        for partition in self.partitions:
            count += partition.log.next
        return count - self._recovered

    def began(self) -> i64:
        """Return when the oldest record was appended, in milliseconds since the epoch; 0 without a
        record."""
        began: i64 = 0
        for partition in self.partitions:
            log = partition.log
            if log.first < log.next:
                time = log.began()
                if began == 0 or time < began:
                    began = time
        return began

    def range(self, partition: i64) -> tuple[int, int]:
        """Return the offset of a partition's first record and that of the next record."""
        log = self.partitions[partition].log
        return int(log.first), int(log.next)

    def offset_at(self, partition: i64, time: i64) -> i64:
        """Return the offset of the partition's first record that was appended at `time`
        (milliseconds since the epoch) or later; the offset of the next record if there is none."""
        return self.partitions[partition].offset_at(time)

    def figures(self) -> dict[str, int]:
        """Return the counters of all partitions together."""
        size: i64 = 0
        beyond: i64 = 0
        producers = len(self.producers)
        for partition in self.partitions:
            producers += len(partition.producers)
            size += partition.log.bytes
            if partition.held != ENDLESS:
                beyond += partition.beyond(partition.held)
        return {
            "records": int(self.message_count()),
            "bytes": int(size),
            "bytes-for-holds": int(beyond),
            "published": int(self.published()),
            "delivered": int(self.delivered),
            "consumers": len(self.readers),
            "producers": producers,
        }

    def describe(self) -> dict[str, object]:
        """Return settings and figures; ``ranges`` has those of each partition."""
        policy = self.policy
        described: dict[str, object] = {
            "name": self.address,
            "type": "stream",
            "incarnation": str(self.incarnation),
            "partitions": len(self.partitions),
            "max-bytes": policy.max_bytes,
            "max-age": policy.max_age,
            "max-records": policy.max_records,
            "segment-bytes": policy.segment_bytes,
            "durable": policy.durable,
            "capture": policy.capture,
            "consumer-groups": list(policy.consumer_groups),
            "readers-per-group": policy.readers_per_group,
        }
        described.update(self.figures())
        described["ranges"] = [partition.describe() for partition in self.here()]
        described["placement"] = self.placement.describe()
        described["holds"] = self.holds.describe()
        described["groups"] = self.groups.describe(len(self.partitions))
        return described

    # -- the end -----------------------------------------------------------------------------

    def clear(self) -> int:
        """Drop all records; return how many there were. Offsets continue."""
        count: i64 = 0
        for partition in self.partitions:
            count += partition.clear()
        self.reconsider_life()
        return count

    def delete(self, error: Error) -> None:
        """End every link with `error` and drop everything."""
        self.holds.clear()
        super().delete(error)

    def consumers_of(self) -> list[Consumer]:
        """Return the links of its readers."""
        return [reader.consumer for reader in self.readers if reader.consumer is not None]

    def parts(self) -> list[Node]:
        """Return its partitions."""
        return list(self.partitions)

    def drop_rest(self, slices: Slices) -> bool:
        """Cancel the turns of all readers."""
        self._parked.clear()
        self.space.timers.cancel(self._turns)
        return True


def _refusal(error: BrokerError) -> Refusal:
    return Refusal(error.condition, error.description)
