"""Consumer groups: which readers a stream has, by group and partition, and which it may get.

A reader that names no group belongs to the group without a name, which every stream has. A reader
may have an epoch: then it is the only reader of its group in its partitions. A later reader with
the same epoch or a higher one takes its place, any other reader is refused. Groups and epochs are
known while there are readers; nothing is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.streams.segments import ENDLESS
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.streams.partition import StreamPartition
    from ferrymq_broker.nodes.streams.reader import StreamReader
    from ferrymq_broker.values.policy import StreamPolicy

# The link properties of readers.
EPOCH: Final = "ferrymq:epoch"
GROUP: Final = "ferrymq:consumer-group"

TOO_LOW: Final = "ferrymq:epoch-too-low"
STOLEN: Final = "amqp:link:stolen"

# The epoch of a reader that is not exclusive.
NO_EPOCH: Final = -1

# The longest name of a group, in characters.
MAX_GROUP_NAME: Final = 256

# The most counts and epochs in an answer of management.
_SHOWN: Final = 30_000


def epoch_of(properties: dict[str, object]) -> i64:
    """Return the epoch that an attach asks for, `NO_EPOCH` if it asks for none. Raises
    `BrokerError` if the property is invalid."""
    wanted = properties.get(EPOCH)
    if wanted is None:
        return NO_EPOCH
    # Check bool and Timestamp first: compiled code forgets the narrower type of an int.
    if (
        isinstance(wanted, bool | Timestamp)
        or not isinstance(wanted, int)
        or not 0 <= wanted <= ENDLESS
    ):
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {EPOCH} is {str(wanted)[:100]!r}; it must be a long, at least 0",
        )
    return wanted


def group_of(properties: dict[str, object]) -> str:
    """Return the consumer group that an attach names, "" if it names none. Raises `BrokerError` if
    the property is invalid."""
    wanted = properties.get(GROUP)
    if wanted is None:
        return ""
    if not isinstance(wanted, str) or not 0 < len(wanted) <= MAX_GROUP_NAME:
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {GROUP} is {str(wanted)[:100]!r}; it must be a string of 1 to "
            f"{MAX_GROUP_NAME} characters",
        )
    return str(wanted)


@final
class ReaderGroup:
    """The readers of one group, by the number of the partition. `links` is how many there are."""

    __slots__ = ("partitions", "links")

    def __init__(self) -> None:
        self.partitions: dict[int, dict[StreamReader, None]] = {}
        self.links: int = 0


@final
class ReaderGroups:
    """The consumer groups of a stream that have readers, by name.

    A partition that has a reader with an epoch has no other reader of that group. So it is enough
    to look at the first one.
    """

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, ReaderGroup] = {}

    def expect_place(
        self, reader: StreamReader, partitions: list[StreamPartition], policy: StreamPolicy
    ) -> None:
        """Raise `BrokerError` if the reader may not read these partitions now. Nothing changes."""
        name = reader.group
        address = reader.stream.address
        if name and policy.consumer_groups and name not in policy.consumer_groups:
            raise BrokerError("amqp:not-found", f"{address!r} has no consumer group {name[:200]!r}")
        group = self._groups.get(name)
        if group is None:
            return
        limit = policy.readers_per_group
        epoch = reader.epoch
        for partition in partitions:
            readers = group.partitions.get(int(partition.number))
            if not readers:
                continue
            highest = next(iter(readers)).epoch
            if epoch != NO_EPOCH:
                # The reader will take the place of all others.
                if highest > epoch:
                    raise BrokerError(
                        TOO_LOW,
                        f"{partition.address!r}: a reader{_of(name)} has the epoch {highest}; a "
                        f"reader with the epoch {epoch} cannot take its place",
                        {"partition": int(partition.number), "epoch": int(highest)},
                    )
            elif highest != NO_EPOCH:
                raise BrokerError(
                    "amqp:not-allowed",
                    f"{partition.address!r}: a reader{_of(name)} has the epoch {highest}; no "
                    "reader without an epoch is possible beside it",
                    {"partition": int(partition.number), "epoch": int(highest)},
                )
            elif 0 < limit <= len(readers):
                raise BrokerError(
                    "amqp:resource-limit-exceeded",
                    f"{partition.address!r} has {len(readers)} readers{_of(name)}; its limit is "
                    f"{limit}",
                    {"partition": int(partition.number), "readers": len(readers)},
                )

    def enter(self, reader: StreamReader) -> None:
        """Add a reader, whose attach has been answered. If it has an epoch, end the readers whose
        place it takes."""
        if reader.epoch != NO_EPOCH:
            self._evict(reader)
        group = self._groups.get(reader.group)
        if group is None:
            group = ReaderGroup()
            self._groups[reader.group] = group
        group.links += 1
        for cursor in reader.cursors:
            group.partitions.setdefault(int(cursor.partition.number), {})[reader] = None

    def _evict(self, reader: StreamReader) -> None:
        group = self._groups.get(reader.group)
        if group is None:
            return
        # The partition in which each of the readers meets the new one first.
        found: dict[StreamReader, StreamPartition] = {}
        for cursor in reader.cursors:
            for other in group.partitions.get(int(cursor.partition.number), ()):
                found.setdefault(other, cursor.partition)
        for other, partition in found.items():
            consumer = other.consumer
            if consumer is None:
                continue
            other.stop(
                consumer,
                Error(
                    condition=STOLEN,
                    description=f"{partition.address!r}: a reader{_of(reader.group)} with the "
                    f"epoch {reader.epoch} has taken the place of this one",
                    info={"partition": int(partition.number), "epoch": int(reader.epoch)},
                ),
            )

    def enter_too(self, reader: StreamReader, partition: StreamPartition) -> None:
        """Add a reader of all partitions to a new one."""
        group = self._groups.get(reader.group)
        if group is not None:
            group.partitions.setdefault(int(partition.number), {})[reader] = None

    def leave(self, reader: StreamReader) -> None:
        """Remove a reader, whose link is gone."""
        group = self._groups.get(reader.group)
        if group is None:
            return
        group.links -= 1
        if group.links == 0:
            del self._groups[reader.group]
            return
        for cursor in reader.cursors:
            number = int(cursor.partition.number)
            readers = group.partitions.get(number)
            if readers is not None:
                readers.pop(reader, None)
                if not readers:
                    del group.partitions[number]

    def describe(self, partitions: int) -> list[dict[str, object]]:
        """Return each group that has readers: `name`, `links`, and two lists by partition:
        `readers`, and `epochs` with None where no reader has one. Both are None if the groups have
        more than 30 000 partitions together."""
        shown = len(self._groups) * partitions <= _SHOWN
        found: list[dict[str, object]] = []
        for name, group in self._groups.items():
            counts: list[int] = []
            epochs: list[int | None] = []
            if shown:
                for number in range(partitions):
                    readers = group.partitions.get(number)
                    counts.append(0 if readers is None else len(readers))
                    epoch: i64 = NO_EPOCH if not readers else next(iter(readers)).epoch
                    epochs.append(None if epoch == NO_EPOCH else int(epoch))
            found.append(
                {
                    "name": name,
                    "links": group.links,
                    "readers": counts if shown else None,
                    "epochs": epochs if shown else None,
                }
            )
        return found


def _of(group: str) -> str:
    """Return how a description says which group is meant."""
    return f" of the consumer group {group!r}" if group else ""
