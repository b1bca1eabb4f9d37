"""The class exchange: declare, delete, bind and unbind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import EXCHANGE_TYPES
from ferrymq_rabbitmq.address_v2 import exchange_address, vhost_of
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault, ConnectionFault
from ferrymq_types_0_9_1.constants import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_FOUND,
    PRECONDITION_FAILED,
)
from ferrymq_types_0_9_1.exchange import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
)

if TYPE_CHECKING:
    from ferrymq_codec_0_9_1.method import Method
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel


def declare(channel: Channel, method: Method) -> None:
    """Make an exchange, or check that it exists as declared; with `passive` only that it
    exists."""
    assert isinstance(method, ExchangeDeclare)
    name = method.exchange
    if not name:
        raise ChannelFault(ACCESS_REFUSED, "operation not permitted on the default exchange")
    if method.passive:
        if not isinstance(channel.space.find(exchange_address(name)), Exchange):
            raise ChannelFault(
                NOT_FOUND, f"no exchange '{name[:200]}' in vhost '{vhost_of(channel.space)}'"
            )
    elif method.exchange_type not in EXCHANGE_TYPES:
        raise ConnectionFault(
            COMMAND_INVALID, f"unknown exchange type '{method.exchange_type[:100]}'"
        )
    else:
        channel.requests.exchanges.declare(
            channel.party(),
            name,
            {
                "type": method.exchange_type,
                "durable": method.durable,
                "auto_delete": method.auto_delete,
                "internal": method.internal,
                "arguments": method.arguments,
            },
        )
    if not method.no_wait:
        channel.answer(ExchangeDeclareOk())


def delete(channel: Channel, method: Method) -> None:
    """Delete an exchange; with `if_unused` only if it has no bindings."""
    assert isinstance(method, ExchangeDelete)
    name = method.exchange
    node = channel.space.find(exchange_address(name)) if name else None
    if method.if_unused and isinstance(node, Exchange) and node.bindings():
        raise ChannelFault(
            PRECONDITION_FAILED,
            f"exchange '{name[:200]}' in vhost '{vhost_of(channel.space)}' in use",
        )
    channel.requests.exchanges.delete(channel.party(), name)
    if not method.no_wait:
        channel.answer(ExchangeDeleteOk())


def bind(channel: Channel, method: Method) -> None:
    """Bind an exchange to another one."""
    assert isinstance(method, ExchangeBind)
    channel.requests.bindings.bind(
        channel.party(),
        {
            "source": method.source,
            "destination_exchange": method.destination,
            "binding_key": method.routing_key,
            "arguments": method.arguments,
        },
    )
    if not method.no_wait:
        channel.answer(ExchangeBindOk())


def unbind(channel: Channel, method: Method) -> None:
    """Remove the binding of an exchange to another one."""
    assert isinstance(method, ExchangeUnbind)
    channel.requests.bindings.remove(
        channel.party(),
        method.source,
        exchange_address(method.destination),
        method.routing_key,
        method.arguments,
    )
    if not method.no_wait:
        channel.answer(ExchangeUnbindOk())
