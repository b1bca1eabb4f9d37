"""Streams as clients of Event Hubs ask about them: READ of a hub and of one of its partitions.

They ask the node ``$management`` of the virtual host, and find the status of an answer under names
of their own (`named_for_them`). What they call a sequence number is the offset here, and what they
call an offset the same number as text. The rights are those of RANGES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.management.authorisation import forbidden
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.errors import FORBIDDEN, NOT_FOUND
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.ranges import may_look
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Int, Symbol, Timestamp

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace

VENDOR: Final = "com.microsoft:"

_CONDITIONS: Final = {NOT_FOUND: "amqp:not-found", FORBIDDEN: "amqp:unauthorized-access"}


def named_for_them(result: Result) -> dict[str, object]:
    """The application-properties in which these clients look for the status of an answer."""
    properties: dict[str, object] = {
        "status-code": Int(result.status),
        "status-description": result.description,
    }
    condition = _CONDITIONS.get(result.status)
    if condition is not None:
        properties["error-condition"] = Symbol(condition)
    return properties


class _OfStreams(EntityType):
    """Something about a stream that can only be read. Other arguments, of which these clients send
    some, mean nothing."""

    listed = False

    def __init__(self, space: AddressSpace) -> None:
        self.space = space

    @property
    def name(self) -> str:
        """As these clients call it."""
        return self.short

    def operations(self) -> dict[str, Operation]:
        """READ."""
        return {"READ": Operation(self.read)}

    def authorise(self, operation: str, call: Call) -> None:
        """Who may read the stream."""
        if not may_look(call.party, self.space, call.name):
            raise forbidden(operation, self.short, call.name)

    def stream(self, call: Call) -> Stream:
        """The one that is meant. Raises `ManagementError`."""
        name = call.required_name()
        node = self.space.find(name)
        if not isinstance(node, Stream):
            raise self.missing(name)
        return node


class EventHubEntities(_OfStreams):
    """Streams, as hubs."""

    short = VENDOR + "eventhub"
    attributes = ("name", "type", "created_at", "partition_count", "partition_ids")

    def read(self, call: Call) -> Result:
        """READ: how many partitions there are, and what they are called."""
        stream = self.stream(call)
        count = len(stream.partitions)
        return Result(
            {
                "name": call.name,
                "type": self.short,
                "created_at": Timestamp(stream.created),
                "partition_count": Int(count),
                "partition_ids": Array("string", [str(number) for number in range(count)]),
            }
        )


class HubPartitionEntities(_OfStreams):
    """Partitions of streams, as those of hubs; ``partition`` says which."""

    short = VENDOR + "partition"
    attributes = (
        "name",
        "type",
        "partition",
        "begin_sequence_number",
        "last_enqueued_sequence_number",
        "last_enqueued_offset",
        "last_enqueued_time_utc",
        "is_partition_empty",
    )

    def operations(self) -> dict[str, Operation]:
        """READ."""
        return {"READ": Operation(self.read, ("partition",))}

    def read(self, call: Call) -> Result:
        """READ: where a partition begins and ends. One that has never had a record ends at -1."""
        stream = self.stream(call)
        partition = stream.partition(str(call.number("partition", 0)))
        log = partition.log
        first, last = int(log.first), int(log.next) - 1
        return Result(
            {
                "name": call.name,
                "type": self.short,
                "partition": str(int(partition.number)),
                "begin_sequence_number": first,
                "last_enqueued_sequence_number": last,
                "last_enqueued_offset": str(last),
                "last_enqueued_time_utc": Timestamp(log.ended() if first <= last else 0),
                "is_partition_empty": first > last,
            }
        )
