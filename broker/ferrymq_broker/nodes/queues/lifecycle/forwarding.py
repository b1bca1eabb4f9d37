"""Forwarding: a queue sends each message on to another node in the step in which it comes.

The message never waits in the queue, so the sender's outcome is that of the last node, and what is
stored is stored there. A message takes at most `MOST_HOPS` steps of this kind, and none to a queue
that has sent it on already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.narrowing import narrow
from ferrymq_broker.nodes.node import BOUNDLESS, Refusal

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Node

# The most queues, one after the other, that send a message on.
MOST_HOPS: Final = 4


@final
class Forwarding:
    """The forwarding of the messages of the queue `node` to `address`. `count` is the number of
    messages that were sent on since the broker was started."""

    __slots__ = ("node", "address", "count")

    def __init__(self, node: Node) -> None:
        self.node: Node = node
        self.address: str = ""
        self.count: int = 0

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Send the message on; return the reason if that is not possible."""
        try:
            target = self._target()
        except BrokerError as error:
            return Refusal(error.condition, error.description)
        route = self.node.space.forwarding
        route.append(self.node)
        try:
            refusal = target.publish(message)
        finally:
            route.pop()
        if refusal is not None and not refusal.partly:
            return refusal
        self.count += 1
        if message.origin != 0 and target.room() != BOUNDLESS and target.room() < target.pledged():
            # The message used no credit of the target, so credit of others is taken back.
            narrow(target)
        return None

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Reserve room where the message will go; see `Node.reserve`."""
        try:
            target = self._target()
        except BrokerError as error:
            return Refusal(error.condition, error.description)
        route = self.node.space.forwarding
        route.append(self.node)
        try:
            return target.reserve(message, holders)
        finally:
            route.pop()

    def keeps(self, message: BrokerMessage) -> bool:
        """Return whether the message survives a crash where it goes; see `Node.keeps`."""
        try:
            target = self._target()
        except BrokerError:
            return False
        route = self.node.space.forwarding
        route.append(self.node)
        try:
            return target.keeps(message)
        finally:
            route.pop()

    def _target(self) -> Node:
        """Return the node that gets the message. Raises `BrokerError` if there is none, or if the
        message has come too far."""
        route = self.node.space.forwarding
        here = self.node.address[:200]
        if len(route) >= MOST_HOPS:
            raise BrokerError(
                "amqp:not-allowed",
                f"{here!r} would be queue {MOST_HOPS + 1} to send the message on; {MOST_HOPS} are "
                "allowed",
            )
        target = self.node.space.target(self.address)
        if target is self.node or target in route:
            raise BrokerError(
                "amqp:not-allowed", f"the message would come to {target.address[:200]!r} again"
            )
        if target.address.startswith("$"):
            # Messages to such an address are commands to the broker.
            raise BrokerError(
                "amqp:not-allowed", f"{target.address[:200]!r} belongs to a service of the broker"
            )
        return target
