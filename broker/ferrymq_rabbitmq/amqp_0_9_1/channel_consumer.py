"""A consumer of a channel: it writes basic.deliver for the messages that a node offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.connections.link_ports import ClientConsumer
from ferrymq_broker.connections.output_turns import LARGE, OUTPUT_LIMIT
from ferrymq_broker.nodes.consumer import IDLE, SETTLED, TAKEN
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.link_terms import SourceTerms
from ferrymq_broker.nodes.message import BrokerMessage, replace_start, restore
from ferrymq_broker.nodes.node import Node
from ferrymq_rabbitmq.amqp_0_9_1.conversion.to_0_9_1 import content_of, key_of, short_string
from ferrymq_rabbitmq.amqp_0_9_1.unacknowledged import Unacknowledged
from ferrymq_types.transport import Error
from ferrymq_types_0_9_1.basic import BasicCancel

if TYPE_CHECKING:
    from ferrymq_broker.connections.output import ClientOutput
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel


class ChannelConsumer(ClientConsumer):
    """A consumer of the queue or stream `node`, under the consumer tag `tag`.

    `asked` is the node that the client named, `key` the routing key of messages without one.
    `prefetch` is how many deliveries may wait for their acknowledgements, 0 for as many as the
    broker allows; `outstanding` is how many do. `waits` is whether the node is told when there is
    room for more.
    """

    __slots__ = (
        "channel",
        "output",
        "asked",
        "key",
        "node",
        "terms",
        "tag",
        "_encoded_tag",
        "no_ack",
        "prefetch",
        "outstanding",
        "waits",
    )

    # Attributes of `ClientConsumer` that the methods assign: their types for type checkers.
    closed: bool
    priority: i64
    exclusive: bool

    def __init__(
        self,
        channel: Channel,
        asked: Node,
        node: Node,
        terms: SourceTerms,
        tag: str,
        no_ack: bool,
        prefetch: i64,
    ) -> None:
        super().__init__(channel.numbers.next(), terms.browses)
        self.priority = terms.priority
        self.exclusive = terms.exclusive
        self.filter = terms.filters.predicate
        self.channel: Channel = channel
        self.output: ClientOutput = channel.output
        self.asked: Node = asked
        self.key: str = key_of(asked.address)
        self.node: Node = node
        self.terms: SourceTerms = terms
        self.tag: str = tag
        self._encoded_tag = short_string(tag)
        self.no_ack: bool = no_ack
        self.prefetch: i64 = prefetch
        self.outstanding: i64 = 0
        self.waits: bool = False

    def connection_number(self) -> i64:
        """See `ClientConsumer.connection_number`."""
        return self.channel.client.id

    # -- messages ------------------------------------------------------------------------

    def deliver(self, entry: Entry) -> i64:
        """Write the message if the client can take one now."""
        return self._send(entry, entry.message) if self.takes_more() else IDLE

    def deliver_headed(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Write a message that consists of `head` and the payload from `start` on."""
        if not self.takes_more():
            return IDLE
        message = entry.message
        payload = replace_start(message.payload, start, head)
        return self._send(entry, restore(payload, message.format, False, message.origin))

    def takes_more(self) -> bool:
        """Return whether a message would be written at once; if not, note what to wait for."""
        if self.closed:
            return False
        if self.output.blocked:
            self.output.stall(self)
            return False
        if self.prefetch != 0 and self.outstanding >= self.prefetch:
            self.waits = True
            return False
        if self.channel.is_full(self.no_ack):
            self.waits = True
            return False
        return True

    def _send(self, entry: Entry, message: BrokerMessage) -> i64:
        output = self.output
        if len(message.payload) > LARGE and output.shared.turns.spent:
            output.stand_by()
            output.stall(self)
            return IDLE
        channel = self.channel
        content = content_of(message, self.key, int(entry.failures))
        channel.last_tag += 1
        tag = channel.last_tag
        head = content.head
        channel.engine.send_delivery(
            channel.number,
            self._encoded_tag,
            tag,
            entry.attempts > 0 and not self.copies,
            head.place,
            head.properties,
            content.body,
        )
        if not output.dirty:
            output.touch()
        if output.pending_bytes() >= OUTPUT_LIMIT:
            output.stop_sending()
        if self.no_ack:
            if entry.stored and not self.copies:
                # The message is removed from disk before it is sent: at most once.
                output.need_batch()
            return SETTLED
        self.outstanding += 1
        held = None if self.copies else entry
        channel.remember(Unacknowledged(tag, self.node, self, held, self))
        return TAKEN

    def on_room(self) -> None:
        """Take note that a delivery has its outcome, or that the client takes messages again."""
        if self.waits and not self.closed:
            self.waits = False
            self.node.wake(self)

    def go_on(self) -> None:
        """Continue to send: the client can take messages again."""
        self.node.wake(self)

    # -- the end -------------------------------------------------------------------------

    def evict(self, error: Error) -> None:
        """End the consumer, because its queue is going away, and tell the client."""
        self.channel.on_evicted(self)

    def forfeit(self, error: Error) -> None:
        """End the consumer: see `evict`."""
        self.channel.on_evicted(self)

    def notify(self) -> None:
        """Tell the client that the broker has cancelled the consumer."""
        self.channel.engine.send_method(
            self.channel.number, BasicCancel(consumer_tag=self.tag, no_wait=True)
        )
        self.output.touch()

    def leave(self) -> None:
        """Leave the node; the consumer holds no messages any more."""
        self.closed = True
        self.output.stalled.pop(self, None)
        self.node.unsubscribe(self)
        self.asked.close_source(self.terms, True)
        self.asked.link_closed()


@final
class MessageGetter(ClientConsumer):
    """The receiver of one message for basic.get; `taken` is the entry that it got.

    It also stands in for cancelled consumers: it holds messages that wait for acknowledgements.
    """

    __slots__ = ("taken",)

    def __init__(self, id: i64) -> None:
        super().__init__(id, False)
        self.taken: Entry | None = None

    def deliver(self, entry: Entry) -> i64:
        """Take the message; the channel writes it."""
        self.taken = entry
        return TAKEN
