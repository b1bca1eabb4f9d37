"""Streams, and what lies in one."""

from __future__ import annotations

from ferrymq_broker.config.nodes import StreamSettings
from ferrymq_broker.management.nodes import DeclaredNodes
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.peeking import Sheet, count_of
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.policy import NodePolicy, StreamPolicy
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_codec.scalars import Timestamp


class Streams(DeclaredNodes):
    """Streams, by address."""

    short = "stream"
    settings = tuple(field.alias or name for name, field in StreamSettings.model_fields.items())

    def operations(self) -> dict[str, Operation]:
        """Those of all nodes, PEEK and PURGE."""
        return {
            **super().operations(),
            "PEEK": Operation(self.peek, ("partition", "from-offset", "from-time", "count")),
            "PURGE": Operation(self.purge),
        }

    def change(self, node: Node, policy: NodePolicy) -> None:
        """Retention and more partitions; not fewer."""
        assert isinstance(node, Stream) and isinstance(policy, StreamPolicy)
        node.change_policy(policy)

    def peek(self, call: Call) -> Result:
        """PEEK: records of one partition from an offset or a time on."""
        call.expect_only("partition", "from-offset", "from-time", "count")
        stream = self._stream(call)
        partition = stream.partition(str(call.number("partition", 0)))
        first, end = stream.range(partition.number)
        offset = call.number("from-offset", first)
        if "from-time" in call.arguments:
            offset = max(offset, partition.offset_at(call.number("from-time", 0)))
        offset = max(int(offset), first)
        sheet = Sheet(count_of(call))
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

    def purge(self, call: Call) -> Result:
        """PURGE: drop all records. Offsets go on where they were."""
        call.expect_only()
        return Result({"count": int(self._stream(call).clear())}, description="purged")

    def _stream(self, call: Call) -> Stream:
        stream = self.find(call.required_name())
        assert isinstance(stream, Stream)
        return stream
