"""Streams and their records."""

from __future__ import annotations

from ferrymq_broker.config.nodes import StreamSettings
from ferrymq_broker.management.authorisation import forbidden
from ferrymq_broker.management.holds import hold, release
from ferrymq_broker.management.nodes import DeclaredNodes
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.peek import PeekResult, count_of
from ferrymq_broker.management.ranges import locate, may_look, ranges
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import NodePolicy, StreamPolicy
from ferrymq_codec.scalars import Timestamp


class StreamEntities(DeclaredNodes):
    """The streams, by address."""

    short = "stream"
    settings: tuple[str, ...] = tuple(
        field.alias or name for name, field in StreamSettings.model_fields.items()
    )

    def operations(self) -> dict[str, Operation]:
        """Return the operations of all nodes, and those of streams."""
        return {
            **super().operations(),
            "PEEK": Operation(self.peek, ("partition", "from-offset", "from-time", "count")),
            "PURGE": Operation(self.purge),
            "RANGES": Operation(self.ranges, ("names", "after")),
            "HOLD": Operation(self.hold, ("holder", "offsets")),
            "RELEASE": Operation(self.release, ("holder",)),
            "LOCATE": Operation(self.locate, ("positions",)),
        }

    def authorise(self, operation: str, call: Call) -> None:
        """Check rights as for all nodes. RANGES and LOCATE need the right to read the stream;
        RANGES of many streams leaves out those that the party may not read."""
        if operation not in ("RANGES", "LOCATE"):
            super().authorise(operation, call)
        elif (call.name or operation == "LOCATE") and not may_look(
            call.party, self.space, call.name
        ):
            raise forbidden(operation, self.short, call.name)

    def change(self, node: Node, policy: NodePolicy) -> None:
        """Change the policy. The number of partitions cannot become smaller."""
        assert isinstance(node, Stream) and isinstance(policy, StreamPolicy)
        node.change_policy(policy)

    def staying(self, node: Node, before: NodePolicy, after: NodePolicy) -> str:
        """Return "partitions" if a stored stream has got more partitions, which stay."""
        assert isinstance(before, StreamPolicy) and isinstance(after, StreamPolicy)
        grown = node.store_id != 0 and after.partitions != before.partitions
        return "partitions" if grown else ""

    def peek(self, call: Call) -> Result:
        """Handle PEEK: return records of one partition, from an offset or a time on."""
        call.expect_only("partition", "from-offset", "from-time", "count")
        stream = self._stream(call)
        partition = stream.partition(str(call.number("partition", 0)))
        first, end = stream.range(partition.number)
        offset = call.number("from-offset", first)
        if "from-time" in call.arguments:
            offset = max(offset, partition.offset_at(call.number("from-time", 0)))
        offset = max(int(offset), first)
        sheet = PeekResult(count_of(call))
        while offset < end and not sheet.full:
            segment = partition.find(offset)
            index = offset - segment.first
            facts: dict[str, object] = {
                "partition": int(partition.number),
                "offset": offset,
                "time": Timestamp(segment.times[index]),
            }
            if not sheet.add(partition.encode(segment, index, 0).payload, facts):
                break
            offset += 1
        return Result({"messages": sheet.messages})

    def ranges(self, call: Call) -> Steps[Result]:
        """Handle RANGES: return incarnation and partition ranges of some streams or all."""
        if call.name:
            self._stream(call)
        gives = call.party.access.gives_anything()
        return (yield from ranges(call, self.space, self.identities() if gives else []))

    def locate(self, call: Call) -> Steps[Result]:
        """Handle LOCATE: return the offsets of positions by time or by bytes."""
        return (yield from locate(call, self._stream(call)))

    def hold(self, call: Call) -> Result:
        """Handle HOLD: keep records for a holder."""
        return hold(call, self._stream(call))

    def release(self, call: Call) -> Result:
        """Handle RELEASE: remove a hold."""
        return release(call, self._stream(call))

    def purge(self, call: Call) -> Result:
        """Handle PURGE: drop all records. Offsets are not reset."""
        call.expect_only()
        return Result({"count": int(self._stream(call).clear())}, description="purged")

    def _stream(self, call: Call) -> Stream:
        stream = self.find(call.required_name())
        assert isinstance(stream, Stream)
        return stream
