"""basic.publish: where a message goes, and what becomes of one that goes nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.connections.permissions import put_on_record
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.node import Node, Refusal
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.names import PART
from ferrymq_codec.errors import DecodeError
from ferrymq_rabbitmq.address_v2 import exchange_address, vhost_of
from ferrymq_rabbitmq.amqp_0_9_1.conversion.from_0_9_1 import message_of
from ferrymq_rabbitmq.amqp_0_9_1.conversion.to_0_9_1 import content_of
from ferrymq_rabbitmq.amqp_0_9_1.direct_reply import DIRECT_REPLY, is_reply_queue, replied_to
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault, ConnectionFault, not_implemented
from ferrymq_rabbitmq.arguments import is_internal
from ferrymq_types_0_9_1.basic import BasicProperties, BasicPublish, BasicReturn
from ferrymq_types_0_9_1.constants import (
    ACCESS_REFUSED,
    NO_ROUTE,
    NOT_FOUND,
    PRECONDITION_FAILED,
    SYNTAX_ERROR,
)

if TYPE_CHECKING:
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel

# Bits of the property flags (AMQP 0-9-1 §4.2.6.1): properties that have to be looked at.
_HEADERS: Final = 1 << 13
_REPLY_TO: Final = 1 << 9
_EXPIRATION: Final = 1 << 8
_USER_ID: Final = 1 << 4
_COPIES: Final = ("CC", "BCC")
# The exchanges that a channel remembers by their names.
_MOST_EXCHANGES: Final = 64
_NOT_FOUND: Final = "amqp:not-found"
_UNROUTABLE: Final = Refusal(_NOT_FOUND, "no queue has the name of the routing key", True)


@final
class Publication:
    """A message on its way to `exchange`, None for the default exchange, with its routing keys:
    that of the method first, then those of the headers CC and BCC."""

    __slots__ = ("message", "exchange", "keys", "mandatory")

    def __init__(
        self, message: BrokerMessage, exchange: Exchange | None, keys: list[str], mandatory: bool
    ) -> None:
        self.message: BrokerMessage = message
        self.exchange: Exchange | None = exchange
        self.keys: list[str] = keys
        self.mandatory: bool = mandatory

    def send(self, channel: Channel) -> bool:
        """Publish the message; return it to a client that wants it back if no queue gets it.

        Return false if a queue has refused it.
        """
        refusal = self._route(channel)
        if refusal is None:
            return True
        if not refusal.released:
            return False
        if self.mandatory:
            content = content_of(self.message, self.keys[0], 0)
            channel.engine.send_content(
                channel.number,
                BasicReturn(
                    reply_code=NO_ROUTE,
                    reply_text="NO_ROUTE",
                    exchange=content.exchange,
                    routing_key=content.routing_key,
                ),
                content.properties,
                content.body,
            )
            channel.output.touch()
        return True

    def reserve(self, channel: Channel, holders: list[Node]) -> Refusal | None:
        """Keep room for the message in the queues that would get it, and append these to
        `holders`; return why one of them would not take it."""
        for key in self.keys:
            if self.exchange is not None:
                refusal = self.exchange.reserve_for(self.message, key, holders)
            else:
                node = queue_of(channel, key)
                refusal = None if node is None else node.reserve(self.message, holders)
            if refusal is not None and refusal.condition != _NOT_FOUND:
                return refusal
        return None

    def _route(self, channel: Channel) -> Refusal | None:
        if len(self.keys) == 1:
            return _route_one(channel, self.message, self.exchange, self.keys[0])
        return self._route_all(channel)

    def _route_all(self, channel: Channel) -> Refusal | None:
        """Send the message to each queue that any of the keys leads to, once."""
        nodes: dict[Node, None] = {}
        for key in self.keys:
            if self.exchange is not None:
                nodes.update(dict.fromkeys(self.exchange.destinations(self.message, key)))
            else:
                node = queue_of(channel, key)
                if node is not None:
                    nodes[node] = None
        if not nodes:
            return _UNROUTABLE
        if len(nodes) > 1 and self.message.durable:
            self.message.shared = True
        refused: Refusal | None = None
        for node in nodes:
            refused = node.publish(self.message) or refused
        return refused


def _route_one(
    channel: Channel, message: BrokerMessage, exchange: Exchange | None, key: str
) -> Refusal | None:
    """Send a message that has one routing key."""
    if exchange is not None:
        return exchange.route(message, key)
    node = queue_of(channel, key)
    return _UNROUTABLE if node is None else node.publish(message)


def queue_of(channel: Channel, name: str) -> Node | None:
    """Return the queue or stream that the default exchange sends to for a routing key."""
    node = channel.space.find(name)
    # A union would be made anew for each message.
    return node if isinstance(node, Queue) or isinstance(node, Stream) else None  # noqa: SIM101


def publish(channel: Channel, method: BasicPublish, properties: bytes, body: bytes) -> None:
    """Publish a message, or add it to the channel's transaction.

    Raises `ChannelFault` for an exchange that does not exist or is not for the client, and for
    properties that are wrong; `ConnectionFault` for malformed properties.
    """
    if method.immediate:
        raise not_implemented("immediate=true")
    key = method.routing_key
    name = method.exchange
    if not channel.client.access.open:
        # Before anything is looked up: a client without the right does not learn what there is.
        _require(channel, name, key)
    exchange = None if name == "" else exchange_of(channel, name)
    keys: list[str] | None = None
    flags: i64 = (i64(properties[0]) << 8) | i64(properties[1])
    try:
        if flags & (_HEADERS | _REPLY_TO | _EXPIRATION | _USER_ID) != 0:
            keys = [key]
            properties = _checked(channel, flags, properties, keys)
            if not channel.client.access.open:
                for copy in keys[1:]:
                    _require(channel, name, copy)
        message = message_of(properties, body, name, key, int(channel.client.id))
    except DecodeError as error:
        raise ConnectionFault(SYNTAX_ERROR, str(error)) from None
    transaction = channel.transaction
    if transaction is not None:
        transaction.publish(Publication(message, exchange, keys or [key], method.mandatory))
        return
    confirms = channel.confirms
    if confirms is not None:
        confirms.last += 1
    if keys is None and not method.mandatory:
        # Most messages.
        refusal = _route_one(channel, message, exchange, key)
        taken = refusal is None or refusal.released
    else:
        taken = Publication(message, exchange, keys or [key], method.mandatory).send(channel)
    if confirms is not None and not taken:
        confirms.refuse()


def exchange_of(channel: Channel, name: str) -> Exchange:
    """Return the exchange with a name. Raises `ChannelFault` if there is none, or if it is for
    other exchanges only."""
    exchange = channel.exchanges.get(name)
    if exchange is not None and not exchange.deleted:
        return exchange
    node = channel.space.find(exchange_address(name))
    if not isinstance(node, Exchange):
        raise ChannelFault(
            NOT_FOUND, f"no exchange '{name[:200]}' in vhost '{vhost_of(channel.space)}'"
        )
    if is_internal(node.policy):
        raise ChannelFault(
            ACCESS_REFUSED,
            f"cannot publish to internal exchange '{name[:200]}' in vhost "
            f"'{vhost_of(channel.space)}'",
        )
    if len(channel.exchanges) >= _MOST_EXCHANGES:
        channel.exchanges.clear()
    channel.exchanges[name] = node
    return node


def _require(channel: Channel, name: str, key: str) -> None:
    """Raise `BrokerError` if the client may not send to an exchange; an empty name is the default
    one."""
    access = channel.client.access
    if not name and is_reply_queue(key):
        # Whoever knows the name may answer.
        return
    try:
        if not name:
            access.require_send(channel.space.canonical(key), key)
            return
        known = channel.exchanges.get(name)
        address = exchange_address(name) if known is None else known.address
        access.require_send(address)
        if key and access.asks_for_parts():
            access.require_send(f"{address}{PART}{key}")
    except BrokerError as error:
        put_on_record(channel.client, error, "message")
        raise


def _checked(channel: Channel, flags: i64, properties: bytes, keys: list[str]) -> bytes:
    """Check the properties that the broker acts upon, and add the keys of CC and BCC to `keys`.

    Return the properties to publish: without BCC, and with the name of the queue for a direct
    reply.
    """
    if flags & (_REPLY_TO | _EXPIRATION | _USER_ID) == 0 and b"CC" not in properties:
        return properties
    found = BasicProperties.from_bytes(properties)
    user, logged_in = found.user_id, channel.client.user
    if user is not None and logged_in is not None and user != logged_in:
        raise ChannelFault(
            PRECONDITION_FAILED,
            f"user_id property set to '{user[:100]}' but authenticated user was '{logged_in}'",
        )
    expiration = found.expiration
    if expiration is not None and not (expiration.isascii() and expiration.isdigit()):
        raise ChannelFault(PRECONDITION_FAILED, f"invalid expiration '{expiration[:100]}'")
    changed = False
    headers = found.headers
    if headers is not None:
        for name in _COPIES:
            if name in headers:
                keys.extend(_copies(name, headers[name]))
        if "BCC" in headers:
            found.headers = {name: value for name, value in headers.items() if name != "BCC"}
            changed = True
    if found.reply_to == DIRECT_REPLY:
        found.reply_to = replied_to(channel)
        changed = True
    return found.to_bytes() if changed else properties


def _copies(name: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise ChannelFault(PRECONDITION_FAILED, f"{name} header must be an array of strings")
    return [str(key) for key in value]
