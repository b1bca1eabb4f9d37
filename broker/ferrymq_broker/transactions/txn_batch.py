"""Batches of messages that are published when their transaction is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq_broker.connections.message_batches import admit_part, split
from ferrymq_broker.connections.outcomes import ACCEPTED
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.node import Node, Refusal
from ferrymq_broker.transactions.transaction import ROLLBACK
from ferrymq_broker.transactions.txn_publish import refused, turn_away
from ferrymq_broker.transactions.txn_work import TxnWork
from ferrymq_codec.errors import DecodeError
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq_broker.connections.link_ports import ProducerPort
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.transactions.transaction import BrokerTransaction
    from ferrymq_types.unions import Outcome


@final
class TxnBatch(TxnWork):
    """The `messages` of one delivery, all for `node`: a stream or a partition, which has no bound
    and keeps no room. `size` is that of the messages together, in bytes."""

    __slots__ = ("endpoint", "delivery", "node", "messages", "size")

    def __init__(self, endpoint: ProducerPort, delivery: IncomingDelivery, node: Node) -> None:
        self.endpoint: ProducerPort = endpoint
        self.delivery: IncomingDelivery = delivery
        self.node: Node = node
        self.messages: list[BrokerMessage] = []
        self.size: i64 = 0

    def take(self, parts: list[bytes], key: object) -> Refusal | None:
        """Take the messages if all of them can be published later; `key` is their partition key."""
        endpoint = self.endpoint
        holders: list[Node] = []
        for part in parts:
            try:
                message = admit_part(part, key)
                node = endpoint.route(message)
            except DecodeError as error:
                return Refusal("amqp:decode-error", str(error))
            except BrokerError as error:
                return Refusal(error.condition, error.description, False, error.info)
            message.origin = endpoint.origin
            refusal = node.reserve(message, holders)
            if refusal is not None:
                return refusal
            self.messages.append(message)
            size: i64 = len(message.payload)
            self.size += size
            self.node.agenda.held += size
        return None

    def renew(self) -> str:
        """Check again: the node may have been deleted, or have other partitions."""
        holders: list[Node] = []
        for message in self.messages:
            refusal = self.node.reserve(message, holders)
            if refusal is not None:
                return refused(refusal)
        return ""

    def commit(self) -> None:
        """Publish the messages, which no consumer has seen yet."""
        node = self.node
        for message in self.messages:
            refusal = node.publish(message)
            if refusal is not None:
                # The node has just said that it will take the message.
                self.endpoint.count_dropped()
                log.error(
                    "committed message refused", node=node.address, reason=refusal.description
                )
        self._drop()

    def roll_back(self, lost: bool) -> None:
        """Drop the messages."""
        self._drop()

    def settle(self, committed: bool) -> None:
        """Settle the delivery as accepted, or without an outcome (AMQP 1.0 §4.4.4.1)."""
        delivery = self.delivery
        if not delivery.remote_settled:
            delivery.settle(ACCEPTED if committed else None)

    def _drop(self) -> None:
        self.node.agenda.held -= self.size
        self.size = 0
        self.messages = []


def post_batch(
    endpoint: ProducerPort, delivery: IncomingDelivery, transaction: BrokerTransaction, node: Node
) -> None:
    """Add the messages of a batch to a live transaction, all or none, and tell the sender the
    provisional outcome. If one is refused, the transaction can only be rolled back."""
    batch = TxnBatch(endpoint, delivery, node)
    refusal: Refusal | None = None
    count: i64 = 0
    try:
        parts, key = split(delivery.payload)
    except DecodeError as error:
        refusal = Refusal("amqp:decode-error", str(error))
    else:
        count = len(parts)
        endpoint.batched += count - 1
        refusal = batch.take(parts, key)
    # The messages are copies.
    delivery.payload = b""
    first: i64 = len(transaction)
    if refusal is None:
        excess = transaction.excess(batch.size, count)
        if excess:
            batch.roll_back(False)
            transaction.mark_rollback_only(ROLLBACK, excess, {"limit": excess})
            turn_away(endpoint, delivery, transaction)
            return
    transaction.add(batch, batch.size, count)
    outcome: Outcome | None = ACCEPTED
    if refusal is not None:
        # The number identifies the message, as for messages that come one by one.
        info: dict[str, object] = {} if refusal.info is None else dict(refusal.info)
        info["message"] = int(first) + len(batch.messages)
        transaction.mark_rollback_only(
            ROLLBACK, refused(refusal), {**info, "condition": refusal.condition}
        )
        refusal.info = info
        outcome = endpoint.outcome_of(delivery, refusal)
    if delivery.remote_settled:
        return
    if outcome is not None:
        delivery.update(TransactionalState(txn_id=transaction.id, outcome=outcome))
    elif refusal is not None:
        endpoint.end_for(delivery, refusal)
