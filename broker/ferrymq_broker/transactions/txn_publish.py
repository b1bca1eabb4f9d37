"""Messages that are published when their transaction is committed (AMQP 1.0 §4.4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.batches import BATCH_FORMAT
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq_broker.connections.outcomes import ACCEPTED
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.message import admit
from ferrymq_broker.nodes.node import BOUNDLESS, Node, Refusal
from ferrymq_broker.nodes.queues.persistence import drop_body
from ferrymq_broker.transactions.transaction import ROLLBACK
from ferrymq_broker.transactions.txn_work import TxnWork
from ferrymq_codec.errors import DecodeError
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq_broker.connections.link_ports import ProducerPort
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.transactions.transaction import BrokerTransaction
    from ferrymq_types.unions import Outcome


@final
class TxnPublish(TxnWork):
    """A message and its `node`. `message` is None once there is nothing to publish.

    `holders` are the nodes that keep room for it; `promised` is whether `node` counts it with its
    promised credit.
    """

    __slots__ = (
        "transaction",
        "endpoint",
        "delivery",
        "node",
        "message",
        "holders",
        "promised",
    )

    def __init__(
        self,
        transaction: BrokerTransaction,
        endpoint: ProducerPort,
        delivery: IncomingDelivery,
        node: Node | None,
    ) -> None:
        self.transaction: BrokerTransaction = transaction
        self.endpoint: ProducerPort = endpoint
        self.delivery: IncomingDelivery = delivery
        self.node: Node | None = node
        self.message: BrokerMessage | None = None
        self.holders: list[Node] = []
        self.promised: bool = False

    def reserve(self, message: BrokerMessage) -> Refusal | None:
        """Take the message if it can be published later."""
        node = self.node
        if node is None:
            return None
        if node.deleted:
            return Refusal("amqp:not-found", f"{node.address!r} has been deleted")
        refusal = node.reserve(message, self.holders)
        if refusal is not None:
            self._unreserve(message)
            return refusal
        if self.message is None:
            self.message = message
            message.holders += 1
            node.agenda.pinned += len(message.payload)
            if message.holders == 1:
                node.agenda.held += len(message.payload)
        return None

    def renew(self) -> str:
        """Check again: nodes may have been deleted, and bindings changed."""
        message = self.message
        if message is None:
            return ""
        held = self.holders
        self.holders = []
        refusal = self.reserve(message)
        # Nodes have kept the reserved room until now.
        for node in held:
            node.unreserve(message)
        return "" if refusal is None else refused(refusal)

    def commit(self) -> None:
        """Publish the message, which no consumer has seen yet."""
        message = self.message
        node = self.node
        if message is None or node is None:
            # The tag is remembered: this message was accepted before.
            self.endpoint.on_discharged(self.delivery, False, False)
            return
        promised = self.promised
        if promised:
            self.promised = False
            node.promised -= 1
        try:
            refusal = node.publish(message)
        finally:
            self._unreserve(message)
        if promised:
            node.regain_room()
        if refusal is not None:
            # Nodes have just said that they will take the message, so they should not refuse it.
            self.endpoint.count_dropped()
            log.error("committed message refused", node=node.address, reason=refusal.description)
        kept = self.endpoint.keeps(node, message)
        self._drop(message, node)
        self.endpoint.on_discharged(self.delivery, True, kept)

    def roll_back(self, lost: bool) -> None:
        """Drop the message."""
        self.endpoint.on_discharged(self.delivery, False, False)
        message = self.message
        node = self.node
        if message is not None and node is not None:
            self._unreserve(message)
            self._drop(message, node)
        if self.promised and node is not None:
            self.promised = False
            node.promised -= 1
            node.regain_room()
        # The engine keeps the delivery until it is settled, but not the payload.
        self.delivery.payload = b""

    def settle(self, committed: bool) -> None:
        """Settle the delivery as accepted, or without an outcome (AMQP 1.0 §4.4.4.1)."""
        delivery = self.delivery
        if not delivery.remote_settled:
            if committed:
                delivery.settle(ACCEPTED)
            elif not delivery.second:
                delivery.settle(None)
        if delivery.settled or delivery.remote_settled:
            # The delivery is over, and must not lead to its work any more: the broker does not
            # collect cycles of older objects, so both would stay, with the payload.
            delivery.context = None

    def resume_on(self, link: ReceiverLink) -> IncomingDelivery:
        """Continue on a new attachment of the link (AMQP 1.0 §2.6.13).

        Returns the delivery for the unsettled map of the broker's attach. Its state says that the
        message is part of the transaction.
        """
        delivery = IncomingDelivery(link, -1, self.delivery.tag, 0)
        delivery.complete = True
        delivery.state = self.provisional_state()
        self.continue_with(delivery)
        return delivery

    def continue_with(self, delivery: IncomingDelivery) -> None:
        """Use this delivery for the outcome, because the sender has sent the message again."""
        self.delivery.context = None
        self.delivery = delivery
        delivery.context = self

    def provisional_state(self) -> TransactionalState:
        """Return the state that tells the sender the outcome after a commit."""
        return TransactionalState(txn_id=self.transaction.id, outcome=ACCEPTED)

    def _unreserve(self, message: BrokerMessage) -> None:
        for node in self.holders:
            node.unreserve(message)
        self.holders = []

    def _drop(self, message: BrokerMessage, node: Node) -> None:
        self.message = None
        message.holders -= 1
        node.agenda.pinned -= len(message.payload)
        if message.holders == 0:
            node.agenda.held -= len(message.payload)
            if message.shared:
                # All nodes to which the message was published have been deleted.
                drop_body(node.agenda, message)


def post(
    endpoint: ProducerPort, delivery: IncomingDelivery, transaction: BrokerTransaction
) -> TxnPublish | None:
    """Add a message to a live transaction, and tell the sender its provisional outcome.

    Return None if the message is refused; then the transaction can only be rolled back.
    """
    before = endpoint.posting(delivery)
    if before is not None:
        if before.transaction is transaction and not delivery.remote_settled:
            before.continue_with(delivery)
            delivery.update(before.provisional_state())
        else:
            endpoint.reject(
                delivery,
                "amqp:illegal-state",
                "the message with this delivery-tag is part of another transaction",
                None,
            )
        return None
    size: i64 = len(delivery.payload)
    excess = transaction.excess(size)
    if excess:
        transaction.mark_rollback_only(ROLLBACK, excess, {"limit": excess})
        turn_away(endpoint, delivery, transaction)
        return None
    posting = TxnPublish(transaction, endpoint, delivery, endpoint.node)
    delivery.context = posting
    refusal: Refusal | None = None
    if not endpoint.is_resent(delivery):
        try:
            if delivery.message_format == BATCH_FORMAT:
                raise BrokerError(
                    "amqp:not-implemented", "a batch of messages cannot be part of a transaction"
                )
            message = admit(delivery.payload, delivery.message_format)
            node = endpoint.route(message)
            message = endpoint.admitted(message, node)
            if posting.node is None:
                posting.node = node
                refusal = endpoint.refusal_if_full(node)
                if refusal is None and node.room() != BOUNDLESS:
                    node.promised += 1
                    posting.promised = True
            message.origin = endpoint.origin
        except DecodeError as error:
            refusal = Refusal("amqp:decode-error", str(error))
        except BrokerError as error:
            refusal = Refusal(error.condition, error.description, False, error.info)
        else:
            if refusal is None:
                refusal = posting.reserve(message)
    transaction.add(posting, size)
    endpoint.on_posted(delivery, posting)
    outcome: Outcome | None = ACCEPTED
    if refusal is not None:
        # The number identifies the message: a client that sends settled has no other way to learn
        # which message was refused.
        number: i64 = len(transaction) - 1
        transaction.mark_rollback_only(
            ROLLBACK,
            refused(refusal),
            {"message": int(number), "condition": refusal.condition},
        )
        outcome = endpoint.outcome_of(delivery, refusal)
    if not delivery.remote_settled:
        if outcome is not None:
            state = TransactionalState(txn_id=transaction.id, outcome=outcome)
            delivery.update(state)
        elif refusal is not None:
            endpoint.end_for(delivery, refusal)
    return posting if refusal is None else None


def turn_away(
    endpoint: ProducerPort, delivery: IncomingDelivery, transaction: BrokerTransaction
) -> None:
    """Reject a message for a transaction that can only be rolled back."""
    error = transaction.error
    if error is not None and not delivery.remote_settled:
        endpoint.reject(delivery, error.condition, str(error.description), error.info)


def refused(refusal: Refusal) -> str:
    """Return the reason of a transaction that can only be rolled back."""
    return f"a message was refused with {refusal.condition}: {refusal.description}"
