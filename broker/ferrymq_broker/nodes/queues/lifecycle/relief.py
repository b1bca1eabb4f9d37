"""Credit for the senders of a queue that blocks, once for a pass in which messages have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.nodes.node import Node

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.queue import Queue


@final
class Relief(Node):
    """On the agenda it is a node, but no address names it: its turn is to relieve the queue."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.address, queue.space)
        self.queue = queue

    def dispatch(self) -> None:
        """There may be room in the queue again."""
        if not self.queue.deleted:
            self.queue.relieve()
