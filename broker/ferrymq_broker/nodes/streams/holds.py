"""Holds: records that stay in spite of the limits, because a holder still has to copy them.

A holder has an offset in some partitions of a stream, or in all: records from there on are kept.
Limits drop whole segments; a segment with any record at or after that offset stays. A hold that
names every partition there is covers those that are added later, from their first record on.

Only the holder moves or releases its hold. But PURGE and DELETE, for which the right to manage the
stream is needed, drop held records too; holds then continue after the dropped records.

| table | id | number | value |
|---|---|---|---|
| `HOLD` | the hold | 0 | stream, holder, since, whether it covers new partitions: a map |
| `HELD` | the hold | partition | offset: a map |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.streams.segments import ENDLESS
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.tables import HELD, HOLD

if TYPE_CHECKING:
    from ferrymq_broker.nodes.streams.stream import Stream

# The most holds of one stream, and the most characters of a holder's name.
MAX_HOLDS: Final = 100
MAX_NAME: Final = 256
# The most offsets in a description of all holds.
_SHOWN: Final = 30_000


@final
class RetentionHold:
    """A hold: the holder and its `offsets` by partition. `whole` is whether the hold covers
    partitions that are added later; `since` is when it was made, in milliseconds since the epoch;
    `id` is the id of its records, or 0.

    `begun` has the offsets at which the hold was made, or to which a purge moved it. From there on
    the holder has moved it.
    """

    __slots__ = ("holder", "id", "since", "whole", "offsets", "begun")

    def __init__(self, holder: str, id: i64, since: i64, whole: bool) -> None:
        self.holder: str = holder
        self.id: i64 = id
        self.since: i64 = since
        self.whole: bool = whole
        self.offsets: dict[int, int] = {}
        self.begun: dict[int, int] = {}


@final
class RetentionHolds:
    """The holds of one stream, by holder. Each partition knows its lowest held offset (`held`)."""

    __slots__ = ("stream", "_holds")

    def __init__(self, stream: Stream) -> None:
        self.stream: Stream = stream
        self._holds: dict[str, RetentionHold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def find(self, holder: str) -> RetentionHold | None:
        """Return the hold of a holder; None if there is none."""
        return self._holds.get(holder)

    def keeper(self, partition: i64) -> str:
        """Return the holder of the lowest offset of a partition; empty if there is no hold."""
        lowest: i64 = ENDLESS
        name = ""
        for hold in self._holds.values():
            offset: i64 = hold.offsets.get(partition, ENDLESS)
            if offset < lowest:
                lowest = offset
                name = hold.holder
        return name

    # -- requests of holders ---------------------------------------------------------------

    def move(self, holder: str, offsets: dict[int, int]) -> None:
        """Hold records from these offsets on, by partition; records below them are dropped if
        limits say so.

        Partitions that are not named keep their offsets. Raises `BrokerError`, and changes nothing,
        if a partition does not exist, or does not have the offset any more or yet.
        """
        stream = self.stream
        places: dict[int, int] = {}
        for number, offset in offsets.items():
            places[number] = stream.partition(str(number)).held_at(offset)
        changes = stream.agenda.changes
        hold = self._holds.get(holder)
        if hold is None:
            hold = self._make(holder, len(offsets) == len(stream.here()))
        elif not hold.whole and len(hold.offsets.keys() | offsets.keys()) == len(stream.here()):
            hold.whole = True
            self._write(hold)
        # The client relies on the answer, even if nothing has changed now.
        changes.claim()
        for number, offset in places.items():
            self._place(hold, number, offset, False)

    def release(self, holder: str) -> bool:
        """Drop a hold; return false if there was none."""
        hold = self._holds.pop(holder, None)
        if hold is None:
            return False
        self._drop(hold)
        for number in hold.offsets:
            self._tell(number)
        return True

    def _make(self, holder: str, whole: bool) -> RetentionHold:
        stream = self.stream
        if not holder or len(holder) > MAX_NAME:
            raise BrokerError(
                "amqp:invalid-field", f"the name of a holder must have 1 to {MAX_NAME} characters"
            )
        if len(self._holds) >= MAX_HOLDS:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"{stream.address!r} has {MAX_HOLDS} holds already, which is the limit; "
                "release some first",
            )
        agenda = stream.agenda
        id: i64 = 0
        if stream.store_id != 0:
            id = agenda.changes.new_id()
        hold = RetentionHold(holder, id, agenda.wall, whole)
        self._holds[holder] = hold
        self._write(hold)
        return hold

    def _place(self, hold: RetentionHold, number: i64, offset: i64, begins: bool) -> None:
        """Set the offset of the hold in a partition; with `begins` it begins there."""
        before: i64 = hold.offsets.get(number, -1)
        if before == offset:
            return
        hold.offsets[number] = offset
        if begins or before < 0:
            hold.begun[number] = offset
        if hold.id != 0:
            value = encode_map({"offset": int(offset), "begun": hold.begun[number]})
            self.stream.agenda.changes.put(HELD, hold.id, number, value)
        partition = self.stream.partitions[number]
        if offset < partition.held:
            partition.hold_from(offset)
        elif before == partition.held:
            self._tell(number)

    def _tell(self, number: i64) -> None:
        """Tell a partition its lowest held offset."""
        partition = self.stream.partitions[number]
        lowest: i64 = ENDLESS
        for hold in self._holds.values():
            offset: i64 = hold.offsets.get(number, ENDLESS)
            if offset < lowest:
                lowest = offset
        if lowest != partition.held:
            partition.hold_from(lowest)

    # -- changes of the stream -------------------------------------------------------------

    def cover(self, number: i64) -> None:
        """Extend holds of the whole stream to a new partition."""
        for hold in self._holds.values():
            if hold.whole:
                self._place(hold, number, 0, True)

    def leave(self, number: i64) -> None:
        """Forget the offsets in a partition that another broker has from now on."""
        for hold in self._holds.values():
            hold.begun.pop(number, None)
            if hold.offsets.pop(number, -1) >= 0 and hold.id != 0:
                self.stream.agenda.changes.drop(HELD, hold.id, number)

    def pass_(self, number: i64, end: i64) -> None:
        """Move holds up to this offset, because all records of the partition before it are
        dropped."""
        for hold in self._holds.values():
            offset: i64 = hold.offsets.get(number, ENDLESS)
            if offset < end:
                self._place(hold, number, end, True)

    def clear(self) -> None:
        """Drop all holds, because the stream is deleted."""
        for hold in self._holds.values():
            self._drop(hold)
        self._holds.clear()
        for partition in self.stream.partitions:
            partition.held = ENDLESS

    # -- the store -------------------------------------------------------------------------

    def _write(self, hold: RetentionHold) -> None:
        if hold.id == 0:
            return
        fields: dict[str, object] = {
            "stream": int(self.stream.store_id),
            "holder": hold.holder,
            "since": int(hold.since),
            "whole": hold.whole,
        }
        self.stream.agenda.changes.put(HOLD, hold.id, 0, encode_map(fields))

    def _drop(self, hold: RetentionHold) -> None:
        if hold.id != 0:
            changes = self.stream.agenda.changes
            changes.drop(HOLD, hold.id, 0)
            changes.drop_range(HELD, hold.id, 0, LAST)

    def restore(self, hold: RetentionHold) -> None:
        """Restore a hold that was stored; its offsets follow. Raises `StoreDamaged`."""
        if not hold.holder or hold.holder in self._holds:
            raise StoreDamaged(
                f"hold {hold.id} of {self.stream.address!r} has no name, or the name of "
                "another hold"
            )
        self._holds[hold.holder] = hold

    def restore_offset(self, hold: RetentionHold, number: i64, offset: i64, begun: i64) -> None:
        """Restore the offsets of a stored hold in a partition. Raises `StoreDamaged`."""
        partitions = self.stream.partitions
        if number < 0 or number >= len(partitions) or offset < 0:
            raise StoreDamaged(
                f"hold {hold.id} of {self.stream.address!r} has the invalid offset {offset} in "
                f"partition {number}"
            )
        hold.offsets[number] = offset
        hold.begun[number] = begun
        if offset < partitions[number].held:
            partitions[number].held = offset

    # -- information -----------------------------------------------------------------------

    def describe(self) -> list[dict[str, object]]:
        """Return each hold: `holder`, `since`, `bytes` (what is dropped without this hold, if no
        other hold keeps it), and `offsets`: a list by partition, with None where there is none.
        Both are None if the holds of the stream have more than 30 000 offsets together, because
        that would take seconds."""
        partitions = self.stream.partitions
        shown = len(self._holds) * len(partitions) <= _SHOWN
        found: list[dict[str, object]] = []
        for hold in self._holds.values():
            size: i64 = 0
            if shown:
                for number, offset in hold.offsets.items():
                    size += partitions[number].beyond(offset)
            found.append(
                {
                    "holder": hold.holder,
                    "since": int(hold.since),
                    "bytes": int(size) if shown else None,
                    "offsets": (
                        [hold.offsets.get(number) for number in range(len(partitions))]
                        if shown
                        else None
                    ),
                }
            )
        return found
