"""The exchange and the routing key of a message, which clients look for in its annotations."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.exchanges.routing_key import key_of
from ferrymq_broker.nodes.exchanges.routing_key_target import RoutingKeyTarget
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.node import Node
from ferrymq_codec.scalars import UByte
from ferrymq_rabbitmq.address_v2 import exchange_name
from ferrymq_rabbitmq.amqp_0_9_1.conversion.annotations import OTHER_PROPERTIES
from ferrymq_rabbitmq.arguments import is_internal

EXCHANGE: Final = "x-exchange"
ROUTING_KEY: Final = "x-routing-key"


def routed(message: BrokerMessage, node: Node) -> BrokerMessage:
    """Return a message that was sent to `node`, with the exchange and the routing key in its
    annotations. A queue gets what is sent to the default exchange, whose name is empty.

    Raises `BrokerError` for an exchange that clients may not publish to.
    """
    exchange: Exchange | None = None
    key = node.address
    if isinstance(node, RoutingKeyTarget):
        exchange, key = node.exchange, node.key
    elif isinstance(node, Exchange):
        exchange, key = node, key_of(message)
    if exchange is not None and is_internal(exchange.policy):
        raise BrokerError(
            "amqp:unauthorized-access",
            f"the exchange {exchange_name(exchange.address)[:200]!r} is internal: only other "
            "exchanges send to it",
        )
    name = "" if exchange is None else exchange_name(exchange.address)
    told: dict[str, object] = {EXCHANGE: name, ROUTING_KEY: key}
    if message.priority == 0 and OTHER_PROPERTIES not in view_of(message).message_annotations:
        # Its publisher says so. Clients of AMQP 0-9-1 would take it for a message without one.
        told[OTHER_PROPERTIES] = {"priority": UByte(0)}
    return message.annotated(told)
