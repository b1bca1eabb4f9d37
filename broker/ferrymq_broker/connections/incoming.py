"""Links on which the broker receives: producers, with or without an address of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.receiver import ReceiverLink
from ferrymq_broker.connections.outcomes import ACCEPTED, RELEASED
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.message import Message, admit
from ferrymq_broker.nodes.node import Node, Producer
from ferrymq_codec.errors import DecodeError
from ferrymq_types.messaging import Rejected
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler


@final
class IncomingEndpoint(Producer):
    """The broker's end of a link whose target is a node.

    `node` is None for the anonymous terminus, where every message says where it goes in its
    properties. `window` is the credit the client is kept supplied with, in messages.
    """

    __slots__ = ("link", "handler", "node", "window", "closed")

    def __init__(
        self, link: ReceiverLink, handler: ConnectionHandler, node: Node | None, window: i64
    ) -> None:
        self.link = link
        self.handler = handler
        self.node = node
        self.window: i64 = window
        self.closed = False

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """A message has arrived: publish it and say so."""
        node = self.node
        if delivery.remote_state is not None or node is None:
            self._on_unusual(delivery)
        else:
            try:
                message = admit(delivery.payload, delivery.message_format)
            except DecodeError as error:
                self._reject(delivery, "amqp:decode-error", str(error))
            else:
                message.origin = self.handler.id
                self._publish(node, message, delivery)
        link = self.link
        if link.credit * 2 <= self.window:
            self.supply()

    def supply(self) -> None:
        """Give the client its full credit again, once its connection takes what we answer."""
        handler = self.handler
        if handler.blocked:
            if self not in handler.unsupplied:
                handler.unsupplied.append(self)
        else:
            self.link.set_credit(self.window)

    def _on_unusual(self, delivery: IncomingDelivery) -> None:
        if isinstance(delivery.remote_state, TransactionalState):
            self._reject(
                delivery, "amqp:transaction:unknown-id", "no transaction has been declared"
            )
            return
        try:
            message = admit(delivery.payload, delivery.message_format)
            node = self.node
            if node is None:
                node = self._route(message)
        except DecodeError as error:
            self._reject(delivery, "amqp:decode-error", str(error))
        except BrokerError as error:
            self._reject(delivery, error.condition, error.description)
        else:
            message.origin = self.handler.id
            self._publish(node, message, delivery)

    def _publish(self, node: Node, message: Message, delivery: IncomingDelivery) -> None:
        refusal = node.publish(message)
        if refusal is None:
            if not delivery.remote_settled:
                delivery.settle(ACCEPTED)
        elif refusal.released:
            if not delivery.remote_settled:
                delivery.settle(RELEASED)
        else:
            self._reject(delivery, refusal.condition, refusal.description)

    def _route(self, message: Message) -> Node:
        to = message.to()
        if to is None:
            raise BrokerError(
                "amqp:not-found", "the message has no properties.to, and the link no address"
            )
        return self.handler.space.target(to)

    def _reject(self, delivery: IncomingDelivery, condition: str, description: str) -> None:
        error = Error(condition=condition, description=description)
        if delivery.remote_settled:
            # There is nobody to tell but the link.
            self.evict(error)
        else:
            delivery.settle(Rejected(error=error))

    def evict(self, error: Error) -> None:
        """The node is going away, or the client cannot be told otherwise."""
        self.link.detach(closed=True, error=error)
        self.handler.touch()
        self.close()

    def close(self) -> None:
        """The link is gone. What it published stays."""
        if self.closed:
            return
        self.closed = True
        node = self.node
        if node is not None and self in node.producers:
            node.producers.remove(self)
            node.link_closed()
