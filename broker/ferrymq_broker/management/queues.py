"""Queues, and what can be done with the messages in one."""

from __future__ import annotations

from ferrymq_broker.config.nodes import QueueSettings
from ferrymq_broker.management.nodes import DeclaredNodes
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.nodes.queues.queue import Queue


class Queues(DeclaredNodes):
    """Queues, by address."""

    short = "queue"
    settings = tuple(field.alias or name for name, field in QueueSettings.model_fields.items())
    attributes = (
        "name",
        *settings,
        "available",
        "acquired",
        "scheduled",
        "bytes",
        "consumers",
        "producers",
        "published",
    )

    def operations(self) -> dict[str, Operation]:
        """Those of all nodes, and PURGE."""
        return {**super().operations(), "PURGE": Operation(self.purge)}

    def queue(self, call: Call) -> Queue:
        """The queue that is meant. Raises `ManagementError`."""
        queue = self.find(call.required_name())
        assert isinstance(queue, Queue)
        return queue

    def purge(self, call: Call) -> Result:
        """PURGE: drop what nobody holds."""
        call.expect_only()
        return Result({"count": int(self.queue(call).clear())}, description="purged")
