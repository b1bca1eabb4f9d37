"""Tables for clients of Azure in every virtual host, and the streams in the form of Event Hubs.

`HUB_TABLES` has all of it, for the tables of the broker. READ of a hub and of a partition: the
clients use the node ``$management`` of the virtual host, and expect the status of a response under
other names (`named_for_them`). Their sequence number is the offset here, and their offset is the
same number as text. The rights are those of RANGES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.filters.filter_set import FIRST, NEXT
from ferrymq_broker.management.authorisation import forbidden
from ferrymq_broker.management.dialect import ManagementDialect
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.errors import FORBIDDEN, NOT_FOUND
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.ranges import may_look
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.server.host_tables import HostTables
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Int, Symbol, Timestamp

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace

VENDOR: Final = "com.microsoft:"

_CONDITIONS: Final = {NOT_FOUND: "amqp:not-found", FORBIDDEN: "amqp:unauthorized-access"}


def named_for_them(result: Result) -> dict[str, object]:
    """Return the application-properties in which Event Hubs clients expect the status."""
    properties: dict[str, object] = {
        "status-code": Int(result.status),
        "status-description": result.description,
    }
    condition = _CONDITIONS.get(result.status)
    if condition is not None:
        properties["error-condition"] = Symbol(condition)
    return properties


class _OfStreams(EntityType):
    """A read-only view of streams. Unknown arguments, which these clients send, are ignored."""

    listed = False

    def __init__(self, space: AddressSpace) -> None:
        self.space = space

    @property
    def name(self) -> str:
        """The name that these clients use."""
        return self.short

    def operations(self) -> dict[str, Operation]:
        """Return READ."""
        return {"READ": Operation(self.read)}

    def authorise(self, operation: str, call: Call) -> None:
        """Check the right to read the stream."""
        if not may_look(call.party, self.space, self.space.meant_by(call.name)):
            raise forbidden(operation, self.short, call.name)

    def stream(self, call: Call) -> Stream:
        """Return the stream that a request names, made if that is allowed. Raises
        `ManagementError`."""
        name = call.required_name()
        space = self.space
        address = space.meant_by(name)
        node = space.find(address)
        if node is None and isinstance(space.policy_for(address), StreamPolicy):
            # Clients ask about a hub before they use it.
            node, _ = space.resolve(address, (), call.party.access)
        if not isinstance(node, Stream):
            raise self.missing(name)
        return node


class EventHubEntities(_OfStreams):
    """The streams, as event hubs."""

    short = VENDOR + "eventhub"
    attributes: tuple[str, ...] = ("name", "type", "created_at", "partition_count", "partition_ids")

    def read(self, call: Call) -> Result:
        """Handle READ: return the number and the names of partitions."""
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
    """The partitions of streams, as partitions of event hubs; ``partition`` is the number."""

    short = VENDOR + "partition"
    attributes: tuple[str, ...] = (
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
        """Return READ."""
        return {"READ": Operation(self.read, ("partition",))}

    def read(self, call: Call) -> Result:
        """Handle READ: return the range of a partition. One that never had a record ends at -1."""
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


def _make_types(space: AddressSpace) -> list[EntityType]:
    return [EventHubEntities(space), HubPartitionEntities(space)]


HUB_TABLES: Final = HostTables(
    dialects=(ManagementDialect(VENDOR, _make_types, named_for_them),),
    position_words={"-1": FIRST, -1: FIRST, "@latest": NEXT},
    signature_types=("servicebus.windows.net:sastoken",),
    websocket_paths=("/$servicebus/websocket",),
)
