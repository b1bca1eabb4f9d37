"""The transactions of one connection, by their ids (AMQP 1.0 §4.1).

An id means nothing on another connection. On its own it may be used on any link of any session, and
any number of transactions may be open at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq_broker.connections.outcomes import is_terminal, symbol
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.transactions.transaction import ROLLBACK, UNKNOWN_ID, BrokerTransaction
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
        # Links with a posting whose last frame has not come, and its transaction.
        self._begun: dict[Link, BrokerTransaction] = {}

    def __len__(self) -> int:
        return len(self._open)

    # -- their life ------------------------------------------------------------------------

    def declare(self, coordinator: ControlPort) -> BrokerTransaction:
        """Declare a transaction. Raises `BrokerError` if there are too many."""
        limits = self._limits
        if len(self._open) >= limits.open:
            raise BrokerError(
                ROLLBACK,
                f"{limits.open} transactions are open on the connection, and no more are allowed",
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
        """Forget a transaction that has come to its end."""
        self._open.pop(transaction.id, None)

    def of(self, coordinator: ControlPort) -> list[BrokerTransaction]:
        """Return the transactions that were declared on this control link."""
        return [one for one in self._open.values() if one.coordinator is coordinator]

    def recheck(self) -> None:
        """Go on with discharges: the client may have taken the rest of what they wait for."""
        waiting = self.waiting
        self.waiting = []
        for transaction in waiting:
            transaction.coordinator.go_on(transaction)

    # -- their work ------------------------------------------------------------------------

    def post(
        self, endpoint: ProducerPort, delivery: IncomingDelivery, state: TransactionalState
    ) -> TxnPublish | None:
        """Add a message that names a transaction to that (AMQP 1.0 §4.4.1).

        Return None if the message is not part of the transaction: it has been refused.
        """
        self.end_posting(endpoint.link)
        transaction = self.find(state.txn_id)
        if transaction is None or transaction.discharge is not None:
            endpoint.reject(delivery, UNKNOWN_ID, "there is no such transaction", None)
            return None
        if transaction.doomed:
            turn_away(endpoint, delivery, transaction)
            return None
        return post(endpoint, delivery, transaction)

    def begin_posting(self, link: Link, state: TransactionalState) -> None:
        """Remember that the first frame of a message has come, and not the last (§4.4.1)."""
        transaction = self.find(state.txn_id)
        if transaction is not None:
            self._begun[link] = transaction

    def end_posting(self, link: Link) -> None:
        """Forget the message that had begun on a link: it is whole, or was aborted."""
        self._begun.pop(link, None)

    def cut_posting(self, link: Link) -> None:
        """Doom the transaction of the message that had begun on a link that is gone now."""
        transaction = self._begun.pop(link, None)
        if transaction is not None:
            transaction.mark_rollback_only(
                ROLLBACK, f"link {link.name!r} ended inside a message of the transaction"
            )

    def is_inside_posting(self, transaction: BrokerTransaction) -> bool:
        """Tell whether a message of the transaction has begun and not ended.

        Where the link of that message cannot bring the rest, the transaction is doomed instead.
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
                ROLLBACK, f"a message of it on link {link.name!r} was dropped"
            )

    def miss_outcome(self, state: TransactionalState) -> None:
        """Doom a transaction with an outcome that cannot be applied: its link had ended."""
        transaction = self.find(state.txn_id)
        if transaction is not None:
            transaction.mark_rollback_only(
                ROLLBACK, "an outcome of it came when the link had ended"
            )

    def acquire(
        self, endpoint: ConsumerPort, delivery: OutgoingDelivery, entry: Entry | None
    ) -> None:
        """Add a message that a link has sent under the transaction of its flow state (§4.4.3)."""
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
        """Add the outcome of a delivery that a client has told in a transaction (§4.4.2)."""
        context = delivery.context
        holding = context if isinstance(context, TxnDelivery) else None
        transaction = self.find(state.txn_id)
        if transaction is None:
            endpoint.refuse(UNKNOWN_ID, "there is no such transaction")
            return
        outcome = state.outcome
        agreed = endpoint.outcomes
        if agreed is not None and is_terminal(outcome) and symbol(outcome) not in agreed:
            endpoint.refuse("amqp:not-allowed", f"{symbol(outcome)} is no agreed outcome")
            return
        if endpoint.imposed is not None and is_terminal(outcome):
            outcome = endpoint.imposed
        if not transaction.doomed and is_terminal(delivery.state):
            transaction.mark_rollback_only(
                ROLLBACK, "an outcome of it came for a message that the broker had released before"
            )
        if transaction.doomed:
            self._too_late(endpoint, delivery, settled)
        elif holding is None:
            excess = transaction.excess(0)
            if excess:
                transaction.mark_rollback_only(ROLLBACK, excess)
                self._too_late(endpoint, delivery, settled)
                return
            entry = context if isinstance(context, Entry) else None
            holding = TxnDelivery(transaction, endpoint, delivery, entry, False)
            transaction.add(holding)
            holding.retire(outcome, settled)
        elif holding.transaction is transaction:
            holding.retire(outcome, settled)
        else:
            # The work of both is undone if one control link has declared both.
            transaction.coordinator.terminate(
                "a delivery of another transaction was retired in one that this link declared"
            )
            self._too_late(endpoint, delivery, settled)

    def outcome(self, endpoint: ConsumerPort, delivery: OutgoingDelivery) -> None:
        """Act on what the client says about a delivery of a transaction without naming that."""
        holding = delivery.context
        assert isinstance(holding, TxnDelivery)
        state = delivery.remote_state
        if not is_terminal(state):
            holding.retire(None, delivery.remote_settled)
            return
        holding.transaction.coordinator.terminate(
            "a delivery of the transaction was given an outcome outside of it"
        )
        if isinstance(delivery.context, Entry):
            endpoint.on_outcome(delivery)

    def _too_late(self, endpoint: ConsumerPort, delivery: OutgoingDelivery, settled: bool) -> None:
        """Drop an outcome: the transaction has been rolled back, and the outcome is never
        applied."""
        if isinstance(delivery.remote_state, TransactionalState):
            delivery.remote_state = None
        context = delivery.context
        if settled and isinstance(context, TxnDelivery):
            context.retire(None, True)
        elif settled and isinstance(context, Entry):
            endpoint.on_outcome(delivery)

    def associate(self, endpoint: ConsumerPort, properties: dict[str, object]) -> None:
        """Associate a link with the transaction that the properties of a flow name, if they do
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
            endpoint.refuse(UNKNOWN_ID, "the flow names a transaction that there is not")
            return
        if endpoint.copies:
            bookmark = endpoint.node.bookmark(endpoint)
            if bookmark is None:
                endpoint.refuse(
                    "amqp:not-implemented", "a browser takes nothing, in no transaction either"
                )
                return
            if not transaction.doomed:
                transaction.add(TxnBrowse(endpoint, bookmark))
        transaction.acquirers[endpoint] = None
        endpoint.acquire_under(transaction)


def too_late(transaction: BrokerTransaction) -> Error:
    """Return why a transaction cannot be committed."""
    error = transaction.error
    return Error(condition=ROLLBACK) if error is None else error
