"""The transactions of one connection, by their ids (AMQP 1.0 §4.1).

An id is valid only on its connection. There it may be used on any link of any session, and several
transactions may be open at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq.batches import BATCH_FORMAT
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq_broker.connections.outcomes import is_terminal, judge, symbol
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.queues.locks import LockOver
from ferrymq_broker.transactions.transaction import ROLLBACK, UNKNOWN_ID, BrokerTransaction
from ferrymq_broker.transactions.txn_batch import post_batch
from ferrymq_broker.transactions.txn_delivery import TxnBrowse, TxnDelivery
from ferrymq_broker.transactions.txn_publish import TxnPublish, post, turn_away
from ferrymq_codec.scalars import Symbol
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.link_ports import ConsumerPort, ControlPort, ProducerPort
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.number_sequence import NumberSequence
    from ferrymq_broker.timers import TimerHeap
    from ferrymq_broker.transactions.transaction import TransactionLimits


@final
class Transactions:
    """The transactions that have been declared on a connection and not discharged."""

    __slots__ = ("waiting", "_open", "_begun", "_limits", "_numbers", "_timers", "_agenda")

    def __init__(
        self,
        limits: TransactionLimits,
        numbers: NumberSequence,
        timers: TimerHeap,
        agenda: Agenda,
    ) -> None:
        self._limits = limits
        self._numbers = numbers
        self._timers = timers
        self._agenda = agenda
        # Transactions whose discharge waits for a delivery that is not fully sent.
        self.waiting: list[BrokerTransaction] = []
        self._open: dict[bytes, BrokerTransaction] = {}
        # Links with a message whose last frame has not come, and its transaction.
        self._begun: dict[Link, BrokerTransaction] = {}

    def __len__(self) -> int:
        return len(self._open)

    # -- declare and discharge -------------------------------------------------------------

    def declare(self, coordinator: ControlPort) -> BrokerTransaction:
        """Declare a transaction. Raises `BrokerError` if there are too many."""
        limits = self._limits
        if len(self._open) >= limits.open:
            raise BrokerError(
                ROLLBACK,
                f"the connection has {limits.open} open transactions, which is the limit; "
                "discharge some first",
                {"condition": Symbol("amqp:resource-limit-exceeded")},
            )
        number: int = self._numbers.next()
        transaction = BrokerTransaction(
            number.to_bytes(8, "big"), coordinator, self._timers, limits
        )
        self._open[transaction.id] = transaction
        if limits.timeout > 0:
            self._timers.set(transaction, self._agenda.now + limits.timeout)
        return transaction

    def find(self, id: object) -> BrokerTransaction | None:
        """Return the transaction with this id; None if there is none on this connection."""
        return self._open.get(id) if isinstance(id, bytes) else None

    def forget(self, transaction: BrokerTransaction) -> None:
        """Forget a transaction that has ended."""
        self._open.pop(transaction.id, None)

    def of(self, coordinator: ControlPort) -> list[BrokerTransaction]:
        """Return the transactions that were declared on this control link."""
        return [one for one in self._open.values() if one.coordinator is coordinator]

    def recheck(self) -> None:
        """Continue discharges: the client may have taken the rest of the messages for which they
        wait."""
        waiting = self.waiting
        self.waiting = []
        for transaction in waiting:
            transaction.coordinator.go_on(transaction)

    # -- work ---------------------------------------------------------------------------------

    def post(
        self, endpoint: ProducerPort, delivery: IncomingDelivery, state: TransactionalState
    ) -> TxnPublish | None:
        """Add a message to the transaction that its state names (AMQP 1.0 §4.4.1), or a batch.

        Return None if the message is not part of the transaction, because it has been refused, and
        for a batch.
        """
        self.end_posting(endpoint.link)
        transaction = self.find(state.txn_id)
        if transaction is None or transaction.discharge is not None:
            endpoint.reject(
                delivery, UNKNOWN_ID, "the connection has no open transaction with this id", None
            )
            return None
        if transaction.doomed:
            turn_away(endpoint, delivery, transaction)
            return None
        node = endpoint.node
        if endpoint.batches and delivery.message_format == BATCH_FORMAT and node is not None:
            post_batch(endpoint, delivery, transaction, node)
            return None
        return post(endpoint, delivery, transaction)

    def begin_posting(self, link: Link, state: TransactionalState) -> None:
        """Remember that the first frame of a message has come, and not the last (§4.4.1)."""
        transaction = self.find(state.txn_id)
        if transaction is not None:
            self._begun[link] = transaction

    def end_posting(self, link: Link) -> None:
        """Forget the incomplete message of a link: it is complete, or was aborted."""
        self._begun.pop(link, None)

    def cut_posting(self, link: Link) -> None:
        """Doom the transaction of the incomplete message of a link that is gone now."""
        transaction = self._begun.pop(link, None)
        if transaction is not None:
            transaction.mark_rollback_only(
                ROLLBACK,
                f"link {link.name!r} ended before a message of the transaction was complete",
            )

    def is_inside_posting(self, transaction: BrokerTransaction) -> bool:
        """Return whether a message of the transaction is incomplete.

        If the link of that message cannot bring the rest, the transaction is doomed instead.
        """
        if not self._begun:
            return False
        for link, one in list(self._begun.items()):
            if one is transaction:
                if link.usable:
                    return True
                self.cut_posting(link)
        return False

    def miss(self, link: Link, state: TransactionalState) -> None:
        """Doom a transaction of which a message was dropped (AMQP 1.0 §4.4.4.1)."""
        transaction = self.find(state.txn_id)
        if transaction is not None:
            transaction.mark_rollback_only(
                ROLLBACK, f"a message of the transaction on link {link.name!r} was dropped"
            )

    def miss_outcome(self, state: TransactionalState) -> None:
        """Doom a transaction that has an outcome which cannot be applied, because its link had
        ended."""
        transaction = self.find(state.txn_id)
        if transaction is not None:
            transaction.mark_rollback_only(
                ROLLBACK, "an outcome of the transaction came after its link had ended"
            )

    def acquire(
        self, endpoint: ConsumerPort, delivery: OutgoingDelivery, entry: Entry | None
    ) -> None:
        """Add a message that a link has sent in the transaction of its flow state (§4.4.3)."""
        transaction = endpoint.acquiring
        assert transaction is not None
        transaction.add(TxnDelivery(transaction, endpoint, delivery, entry, True))

    def state(
        self,
        endpoint: ConsumerPort,
        delivery: OutgoingDelivery,
        state: TransactionalState,
        settled: bool,
    ) -> None:
        """Add the outcome that a client has given a delivery in a transaction (§4.4.2)."""
        context = delivery.context
        holding = context if isinstance(context, TxnDelivery) else None
        entry = context if isinstance(context, Entry) else None
        lost = isinstance(context, LockOver)
        if entry is not None and not endpoint.still_holds(entry):
            entry = None
            lost = True
        transaction = self.find(state.txn_id)
        if transaction is None:
            endpoint.refuse(UNKNOWN_ID, "the connection has no open transaction with this id")
            return
        outcome = state.outcome
        agreed = endpoint.outcomes
        if agreed is not None and is_terminal(outcome) and symbol(outcome) not in agreed:
            endpoint.refuse(
                "amqp:not-allowed",
                f"the outcome {symbol(outcome)} is not among the outcomes of the source",
            )
            return
        if endpoint.imposed is not None and is_terminal(outcome):
            outcome = endpoint.imposed
        told = outcome
        judged = entry if holding is None else holding.entry
        if judged is not None and is_terminal(outcome):
            outcome = judge(endpoint.node, judged, outcome, endpoint.link.drain)
        if not transaction.doomed and is_terminal(delivery.state):
            transaction.mark_rollback_only(
                ROLLBACK,
                "an outcome of the transaction came for a message that the broker had "
                "released before",
            )
        if lost and not transaction.doomed:
            transaction.mark_rollback_only(
                ROLLBACK,
                "an outcome of the transaction came for a message whose lock had been lost before",
            )
        if transaction.doomed:
            self._too_late(endpoint, delivery, settled)
        elif holding is None:
            excess = transaction.excess(0)
            if excess:
                transaction.mark_rollback_only(ROLLBACK, excess)
                self._too_late(endpoint, delivery, settled)
                return
            holding = TxnDelivery(transaction, endpoint, delivery, entry, False)
            transaction.add(holding)
            holding.retire(outcome, settled, told)
        elif holding.transaction is transaction:
            holding.retire(outcome, settled, told)
        else:
            # If one control link has declared both transactions, the work of both is undone.
            transaction.coordinator.terminate(
                "a delivery of another transaction was given an outcome in a transaction of "
                "this link"
            )
            self._too_late(endpoint, delivery, settled)

    def outcome(self, endpoint: ConsumerPort, delivery: OutgoingDelivery) -> None:
        """Process an outcome for a delivery of a transaction that does not name the transaction."""
        holding = delivery.context
        assert isinstance(holding, TxnDelivery)
        state = delivery.remote_state
        if not is_terminal(state):
            holding.retire(None, delivery.remote_settled)
            return
        holding.transaction.coordinator.terminate(
            "a delivery of the transaction was given an outcome that does not name the transaction"
        )
        if isinstance(delivery.context, Entry | LockOver):
            endpoint.on_outcome(delivery)

    def _too_late(self, endpoint: ConsumerPort, delivery: OutgoingDelivery, settled: bool) -> None:
        """Drop an outcome that is never applied, because the transaction has been rolled back."""
        if isinstance(delivery.remote_state, TransactionalState):
            delivery.remote_state = None
        context = delivery.context
        if settled and isinstance(context, TxnDelivery):
            context.retire(None, True)
        elif settled and isinstance(context, Entry | LockOver):
            endpoint.on_outcome(delivery)

    def associate(self, endpoint: ConsumerPort, properties: dict[str, object]) -> None:
        """Associate a link with the transaction that the properties of a flow name, if any
        (§4.4.3)."""
        if "txn-id" not in properties:
            return
        id = properties["txn-id"]
        before = endpoint.acquiring
        if before is not None:
            before.acquirers.pop(endpoint, None)
            endpoint.acquire_under(None)
        if id is None:
            return
        transaction = self.find(id)
        if transaction is None:
            endpoint.refuse(
                UNKNOWN_ID, "the flow names a transaction that is not open on this connection"
            )
            return
        if endpoint.copies:
            bookmark = endpoint.node.bookmark(endpoint)
            if bookmark is None:
                endpoint.refuse(
                    "amqp:not-implemented",
                    "a browser cannot acquire messages in a transaction: they stay in the " "queue",
                )
                return
            if not transaction.doomed:
                transaction.add(TxnBrowse(endpoint, bookmark))
        transaction.acquirers[endpoint] = None
        endpoint.acquire_under(transaction)


def too_late(transaction: BrokerTransaction) -> Error:
    """Return the reason why a transaction cannot be committed."""
    error = transaction.error
    return Error(condition=ROLLBACK) if error is None else error
