"""Queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.config.nodes import QueueSettings
from ferrymq_broker.management.leases import QueueLeaseOperations
from ferrymq_broker.management.messages import QueueMessages
from ferrymq_broker.management.nodes import DeclaredNodes
from ferrymq_broker.management.operation import Call, Operation
from ferrymq_broker.management.sessions import QueueSessions
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace


class QueueEntities(DeclaredNodes):
    """The queues, by address."""

    short = "queue"
    settings: tuple[str, ...] = tuple(
        field.alias or name for name, field in QueueSettings.model_fields.items()
    )

    def __init__(self, space: AddressSpace) -> None:
        super().__init__(space)
        self._messages = QueueMessages(space, self._queue)
        self._sessions = QueueSessions(self._queue)
        self._leases = QueueLeaseOperations(self._queue)

    def operations(self) -> dict[str, Operation]:
        """Return the operations of all nodes, and those on messages, sessions and leases."""
        return {
            **super().operations(),
            **self._messages.operations(),
            **self._sessions.operations(),
            **self._leases.operations(),
        }

    def change(self, node: Node, policy: NodePolicy) -> None:
        """Change the policy. Limits apply at once, lifetimes only to new messages."""
        assert isinstance(node, Queue) and isinstance(policy, QueuePolicy)
        node.change_policy(policy)

    def _queue(self, call: Call) -> Queue:
        queue = self.find(call.required_name())
        assert isinstance(queue, Queue)
        return queue
