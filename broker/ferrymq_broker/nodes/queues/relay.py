"""Relays: a sender's messages go through a queue to another node, which the link names.

A link asks for it with the link property `ferrymq:forward-to`. What cannot be sent on becomes a
dead letter of the queue, as with its own `forward-to`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.disabling import refusal_of_disabled
from ferrymq_broker.nodes.node import BOUNDLESS, Node, Refusal
from ferrymq_broker.nodes.queues.lifecycle.forwarding import Forwarding
from ferrymq_broker.nodes.queues.queue import Queue

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.values.policy import QueuePolicy


@final
class Relay(Node):
    """The target of one link: a node that sends each message through `queue` to `destination`, a
    native address. No address names the relay.

    The link counts as a link of the queue, and ends with the queue. It uses no room there.
    """

    __slots__ = ("queue", "destination", "_forwarding")

    def __init__(self, queue: Queue, destination: str) -> None:
        super().__init__(queue.address, queue.space)
        self.queue: Queue = queue
        self.destination: str = destination
        self.producers = queue.producers
        self._forwarding = Forwarding(queue)
        self._forwarding.address = destination

    @property
    def kind(self) -> str:
        """``queue``."""
        return "queue"

    @property
    def policy(self) -> QueuePolicy:
        """Return the policy of the queue."""
        return self.queue.policy

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Send the message on, or make it a dead letter of the queue."""
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        refusal = self._forwarding.publish(message)
        if refusal is None or not self.policy.forward_failed:
            return refusal
        self.queue.lifecycle.give_up(message, refusal)
        return None

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """See `Node.reserve`: the room is that of the destination."""
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        refusal = self._forwarding.reserve(message, holders)
        return None if self.policy.forward_failed else refusal

    def _refusal(self) -> Refusal | None:
        queue = self.queue
        if queue.deleted:
            return Refusal("amqp:not-found", f"{queue.address!r} has been deleted")
        return refusal_of_disabled(queue) if self.policy.send_disabled else None

    def keeps(self, message: BrokerMessage) -> bool:
        """See `Node.keeps`."""
        return self._forwarding.keeps(message)

    def room(self) -> i64:
        """See `Node.room`: messages stay nowhere here."""
        return BOUNDLESS

    def link_opened(self) -> None:
        """Count a link of the queue."""
        self.queue.link_opened()

    def link_closed(self) -> None:
        """Count a link of the queue that is gone."""
        self.queue.link_closed()


def relay_through(node: Node, destination: Node) -> Relay:
    """Return a relay through the queue `node`. Raises `BrokerError` if that is not possible."""
    if not isinstance(node, Queue):
        raise BrokerError(
            "amqp:not-implemented", f"{node.address[:200]!r} is no queue: it sends nothing on"
        )
    if destination is node or destination.kind == "service":
        raise BrokerError(
            "amqp:not-allowed",
            f"{node.address[:200]!r} cannot send messages on to {destination.address[:200]!r}",
        )
    return Relay(node, destination.address)
