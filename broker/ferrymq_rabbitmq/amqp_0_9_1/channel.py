"""A channel: what the client has in it, and the functions that serve its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.connections.client_limits import EXCEEDED
from ferrymq_broker.connections.message_rate import MessageRate
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.slices import LINK, MESSAGE
from ferrymq_broker.values.rights import RECEIVE
from ferrymq_codec_0_9_1.method import Method
from ferrymq_rabbitmq.amqp_0_9_1 import (
    basic_get,
    channel_transaction,
    consuming,
    exchange_methods,
    queue_methods,
)
from ferrymq_rabbitmq.amqp_0_9_1.acknowledgements import (
    ACCEPT,
    DISCARD,
    REQUEUE,
    acknowledge,
    apply,
    recover,
)
from ferrymq_rabbitmq.amqp_0_9_1.channel_consumer import ChannelConsumer, MessageGetter
from ferrymq_rabbitmq.amqp_0_9_1.confirms import Confirms
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_channel import ServerChannel
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault, Refused, fault_of
from ferrymq_rabbitmq.amqp_0_9_1.publishing import publish
from ferrymq_types_0_9_1.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicRecoverAsync,
    BasicReject,
)
from ferrymq_types_0_9_1.channel import ChannelFlow, ChannelFlowOk
from ferrymq_types_0_9_1.confirm import ConfirmSelect, ConfirmSelectOk
from ferrymq_types_0_9_1.constants import COMMAND_INVALID, NOT_FOUND, PRECONDITION_FAILED
from ferrymq_types_0_9_1.exchange import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
)
from ferrymq_types_0_9_1.queue import (
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from ferrymq_types_0_9_1.tx import TxCommit, TxRollback, TxSelect

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.connections.output import ClientOutput
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.exchanges.exchange import Exchange
    from ferrymq_broker.nodes.link_terms import Party, SourceTerms
    from ferrymq_broker.nodes.queues.queue import Queue
    from ferrymq_broker.number_sequence import NumberSequence
    from ferrymq_rabbitmq.amqp_0_9_1.channel_connection import ChannelConnection
    from ferrymq_rabbitmq.amqp_0_9_1.channel_transaction import ChannelTransaction
    from ferrymq_rabbitmq.amqp_0_9_1.engine.server_connection import ServerConnection
    from ferrymq_rabbitmq.amqp_0_9_1.unacknowledged import Unacknowledged
    from ferrymq_rabbitmq.management.host_requests import HostRequests


# What a method costs that is neither a message nor its outcome, in units of slices: a client may
# declare hundreds of queues in one read.
_SERVICE: Final = 80


class Channel:
    """A channel of a connection. It may raise `ChannelFault` and `ConnectionFault` where it serves
    a method.

    `consumers` are by their tags, `unacknowledged` has the deliveries without an outcome by their
    numbers, in order, none of them below `first_tag`; `last_tag` is the number of the last
    delivery, and `rate` how fast they are written. `prefetch` is that of later consumers,
    `total_prefetch` that of all consumers together; 0 is no limit. `exchanges` are those that were
    published to lately. `last_queue` is the queue that was declared last, which an empty name
    stands for. `confirms` and `transaction` are None until the client selects them.
    """

    __slots__ = (
        "number",
        "id",
        "connection",
        "engine",
        "_state",
        "client",
        "space",
        "output",
        "numbers",
        "requests",
        "consumers",
        "unacknowledged",
        "first_tag",
        "last_tag",
        "rate",
        "prefetch",
        "total_prefetch",
        "is_stopped",
        "exchanges",
        "last_queue",
        "reply_queue",
        "getter",
        "confirms",
        "transaction",
        "_outstanding",
        "_held_back",
        "_closing",
    )

    def __init__(self, connection: ChannelConnection, number: i64, requests: HostRequests) -> None:
        client = connection.client
        self.number: i64 = number
        self.numbers: NumberSequence = connection.broker.shared.numbers
        self.id: i64 = self.numbers.next()
        self.connection: ChannelConnection = connection
        self.engine: ServerConnection = connection.engine
        # The channel in the engine: it may be over before the door knows.
        self._state: ServerChannel = connection.engine.channels[int(number)]
        self.client: ConnectedClient = client
        self.space: AddressSpace = client.space
        self.output: ClientOutput = connection.output
        self.requests: HostRequests = requests
        self.consumers: dict[str, ChannelConsumer] = {}
        self.unacknowledged: dict[int, Unacknowledged] = {}
        self.first_tag: i64 = 1
        self.last_tag: i64 = 0
        self.rate: MessageRate = MessageRate(connection.broker.agenda.now)
        self.prefetch: i64 = 0
        self.total_prefetch: i64 = 0
        # Whether the client has asked for no more messages (channel.flow).
        self.is_stopped: bool = False
        self.exchanges: dict[str, Exchange] = {}
        self.last_queue: str = ""
        # The queue for direct replies, if the client has asked for it.
        self.reply_queue: Queue | None = None
        self.getter: MessageGetter = basic_get.make_getter(self)
        self.confirms: Confirms | None = None
        self.transaction: ChannelTransaction | None = None
        # The deliveries without an outcome, those in a transaction included.
        self._outstanding: i64 = 0
        # The nodes that do not dispatch until everything has returned; None while the channel is
        # open.
        self._held_back: list[Node] | None = None
        self._closing: list[Unacknowledged] = []

    # -- methods -------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Return whether anything is read or written on the channel. If not, `close` follows."""
        return self._state.is_open()

    def on_method(self, method: Method) -> None:
        """Serve a method without a content."""
        if isinstance(method, BasicAck):
            acknowledge(self, method.delivery_tag, method.multiple, ACCEPT)
        elif isinstance(method, BasicNack):
            outcome = REQUEUE if method.requeue else DISCARD
            acknowledge(self, method.delivery_tag, method.multiple, outcome)
        elif isinstance(method, BasicReject):
            acknowledge(self, method.delivery_tag, False, REQUEUE if method.requeue else DISCARD)
        else:
            serve = _SERVE.get(type(method))
            if serve is None:
                raise ChannelFault(COMMAND_INVALID, f"{type(method).NAME} from a client")
            self.connection.broker.agenda.slices.spend(_SERVICE)
            try:
                serve(self, method)
            except Refused as error:
                raise fault_of(error) from None

    def on_content(self, method: BasicPublish, properties: bytes, body: bytes) -> None:
        """Publish a message."""
        try:
            publish(self, method, properties, body)
        except BrokerError as error:
            raise fault_of(error) from None

    def send(self, method: Method) -> None:
        """Write a method."""
        self.engine.send_method(self.number, method)
        self.output.touch()

    def answer(self, method: Method) -> None:
        """Write the answer to a method; it waits for the disk if the method has changed
        anything."""
        self.connection.answered = True
        self.send(method)

    def write_confirms(self) -> None:
        """Confirm what was published since the last call."""
        confirms = self.confirms
        if confirms is not None and confirms.write(self):
            self.connection.answered = True

    def named(self, queue: str) -> str:
        """Return the name of a queue; an empty one stands for the queue that was declared last.

        Raises `ChannelFault` if there is none.
        """
        if queue:
            return queue
        if not self.last_queue:
            raise ChannelFault(NOT_FOUND, "no previously declared queue")
        return self.last_queue

    def party(self) -> Party:
        """Return the client as nodes see it."""
        return self.client.party(self.id)

    # -- deliveries ------------------------------------------------------------------------

    def on_got(self, entry: Entry, address: str, no_ack: bool) -> None:
        """Note that basic.get has taken a message of a queue."""

    def is_full(self, no_ack: bool) -> bool:
        """Return whether the client gets no more until it settles something, or continues."""
        if self.is_stopped or not self._state.is_open():
            return True
        if no_ack:
            return False
        total = self.total_prefetch
        return (total != 0 and self._outstanding >= total) or self.connection.is_full()

    def remember(self, each: Unacknowledged) -> None:
        """Note a delivery that waits for its acknowledgement."""
        self.unacknowledged[int(each.tag)] = each
        self._outstanding += 1
        self.connection.outstanding += 1

    def forget(self, each: Unacknowledged, outcome: i64) -> None:
        """Note that a delivery has its outcome (`acknowledgements`)."""
        connection = self.connection
        crowded = connection.is_full()
        total = self.total_prefetch
        full = total != 0 and self._outstanding >= total
        self._outstanding -= 1
        connection.outstanding -= 1
        consumer = each.consumer
        if consumer is not None:
            consumer.outstanding -= 1
            consumer.on_room()
        if full:
            self.wake_waiting()
        if crowded:
            connection.wake_waiting()

    def wake_waiting(self) -> None:
        """Wake the consumers of the channel that wait for room."""
        for consumer in self.consumers.values():
            consumer.on_room()

    def holds_messages(self) -> bool:
        """Return whether the client has messages without an outcome."""
        return self._outstanding > 0

    def count_unsettled(self) -> int:
        """Return how many deliveries have no outcome, those in a transaction included."""
        return int(self._outstanding)

    # -- consumers -------------------------------------------------------------------------

    def new_consumer(
        self, asked: Node, node: Node, terms: SourceTerms, tag: str, no_ack: bool
    ) -> ChannelConsumer:
        """Return a new consumer with the prefetch of the channel."""
        return ChannelConsumer(self, asked, node, terms, tag, no_ack, self.prefetch)

    def expect_more_consumers(self) -> None:
        """Raise `BrokerError` if the channel has as many consumers as a connection may have
        links."""
        most = self.connection.broker.client_limits.links
        if len(self.consumers) >= most:
            raise BrokerError(
                EXCEEDED, f"the channel has {most} consumers already, which is the limit"
            )

    def end_consumer(self, consumer: ChannelConsumer) -> None:
        """End a consumer. The channel holds its deliveries until they are acknowledged."""
        consumer.closed = True
        if consumer.outstanding > 0:
            for each in self.unacknowledged.values():
                if each.consumer is consumer:
                    self._hand_over(each, consumer)
            self._hand_over_enlisted(consumer)
        consumer.leave()
        self._end_reply_queue(consumer)

    def _hand_over(self, each: Unacknowledged, consumer: ChannelConsumer) -> None:
        """Hand a delivery of a consumer that ends over to the channel."""
        getter = self.getter
        each.consumer = None
        entry = each.entry
        if entry is not None and each.holder is consumer:
            each.node.hand_over(entry, consumer, getter)
            each.holder = getter

    def _hand_over_enlisted(self, consumer: ChannelConsumer) -> None:
        """Hand the deliveries of a consumer that a transaction settles over to the channel."""
        transaction = self.transaction
        if transaction is not None:
            for each, _ in transaction.outcomes:
                if each.consumer is consumer:
                    self._hand_over(each, consumer)

    def on_evicted(self, consumer: ChannelConsumer) -> None:
        """End a consumer whose queue is going away, and tell clients that want to know."""
        if consumer.closed:
            return
        self.consumers.pop(consumer.tag, None)
        consumer.closed = True
        if self.engine.is_capable("consumer_cancel_notify"):
            consumer.notify()
        # Without any delivery of its own there is nothing to look for.
        found = self.unacknowledged.values() if consumer.outstanding > 0 else ()
        for each in found:
            if each.consumer is consumer:
                each.consumer = None
                entry = each.entry
                if entry is not None and each.holder is consumer:
                    # The queue is gone: the client may still acknowledge, without effect.
                    each.entry = None
                    each.node.give_back(consumer, entry, False, False)
        self._hand_over_enlisted(consumer)
        consumer.leave()
        self._end_reply_queue(consumer)

    def _end_reply_queue(self, consumer: ChannelConsumer) -> None:
        queue = self.reply_queue
        if queue is not None and consumer.node is queue:
            self.reply_queue = None
            if not queue.deleted:
                self.space.remove(queue)

    def reauthorize(self) -> int:
        """Cancel the consumers that the client may not have any more, and return how many there
        were."""
        access = self.client.access
        gone = [
            consumer
            for consumer in self.consumers.values()
            if not access.open
            and consumer.asked is not self.reply_queue
            and not access.permits(RECEIVE, consumer.asked.address)
        ]
        for consumer in gone:
            self.consumers.pop(consumer.tag)
            consumer.notify()
            self.end_consumer(consumer)
        return len(gone)

    # -- the end -------------------------------------------------------------------------

    def close(self) -> bool:
        """End the channel: its deliveries return to their queues. Return false if there is more to
        do than the slice allows: call this again then."""
        held_back = self._held_back
        if held_back is None:
            held_back = self._begin_close()
        slices = self.connection.broker.agenda.slices
        waiting = self._closing
        while waiting:
            if slices.is_spent():
                return False
            slices.spend(MESSAGE)
            apply(self, waiting.pop(), REQUEUE)
        while self.consumers:
            if slices.is_spent():
                return False
            slices.spend(LINK)
            _, consumer = self.consumers.popitem()
            consumer.leave()
            self._end_reply_queue(consumer)
        while held_back:
            held_back.pop().resume_dispatch()
        return True

    def _begin_close(self) -> list[Node]:
        if self.transaction is not None:
            self.transaction.roll_back(self)
        held_back: list[Node] = []
        for consumer in self.consumers.values():
            consumer.closed = True
        self._closing = list(self.unacknowledged.values())
        self._closing.reverse()
        self.unacknowledged = {}
        nodes: dict[Node, None] = {}
        for each in self._closing:
            nodes[each.node] = None
        for node in nodes:
            # Nobody may get newer messages before all have returned.
            node.pause_dispatch()
            held_back.append(node)
        self._held_back = held_back
        return held_back


def _select_confirms(channel: Channel, method: Method) -> None:
    """Confirm published messages from now on (``confirm.select``)."""
    assert isinstance(method, ConfirmSelect)
    if channel.transaction is not None:
        raise ChannelFault(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms()
    if not method.no_wait:
        channel.answer(ConfirmSelectOk())


def _set_flow(channel: Channel, method: Method) -> None:
    """Stop or continue deliveries (``channel.flow``)."""
    assert isinstance(method, ChannelFlow)
    channel.is_stopped = not method.active
    channel.answer(ChannelFlowOk(active=method.active))
    if method.active:
        channel.wake_waiting()


def _take_cancel_ok(channel: Channel, method: Method) -> None:
    """Take the client's answer to a cancelled consumer, which changes nothing."""


_SERVE: Final[dict[type[Method], Callable[[Channel, Method], None]]] = {
    ExchangeDeclare: exchange_methods.declare,
    ExchangeDelete: exchange_methods.delete,
    ExchangeBind: exchange_methods.bind,
    ExchangeUnbind: exchange_methods.unbind,
    QueueDeclare: queue_methods.declare,
    QueueBind: queue_methods.bind,
    QueueUnbind: queue_methods.unbind,
    QueuePurge: queue_methods.purge,
    QueueDelete: queue_methods.delete,
    BasicQos: consuming.set_prefetch,
    BasicConsume: consuming.consume,
    BasicCancel: consuming.cancel,
    BasicCancelOk: _take_cancel_ok,
    BasicGet: basic_get.get,
    BasicRecover: recover,
    BasicRecoverAsync: recover,
    ChannelFlow: _set_flow,
    ConfirmSelect: _select_confirms,
    TxSelect: channel_transaction.select,
    TxCommit: channel_transaction.commit,
    TxRollback: channel_transaction.roll_back,
}
