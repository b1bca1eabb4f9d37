"""Deliveries that are acquired or retired in a transaction (AMQP 1.0 §4.4.2–3).

A client may give an outcome in a transaction to a delivery that it holds (retire). Messages that it
gets while the flow state of the link names a transaction are acquired in it. Both cases are the
same here: a delivery that is part of a transaction, `acquired` in it or not, with an `outcome` or
none so far. Meanwhile this object is the `context` of the delivery, instead of the entry.

The link may go before the discharge. An outcome that was given remains, and is applied when the
transaction is committed: JMS sessions close consumers before they commit. Without an outcome, or
after a rollback, the message is treated like any other that a lost link held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.connections.outcomes import (
    REJECTED,
    RELEASED,
    apply_outcome,
)
from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.transactions.txn_work import TxnWork
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq.engine.delivery import OutgoingDelivery
    from ferrymq_broker.connections.link_ports import ConsumerPort
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.transactions.transaction import BrokerTransaction
    from ferrymq_types.unions import DeliveryState, Outcome


@final
class TxnDelivery(TxnWork):
    """A delivery of `transaction`. `entry` is None for a delivery to a browser, which holds
    nothing.

    `settled` is whether the client has settled it, or it was sent settled (`presettled`), so that
    the client can say no more about it. `holder` holds the entry: the link or, once that is gone
    (`orphaned`), an object in its place. Then `fate` is the outcome if the client gave none.
    """

    __slots__ = (
        "transaction",
        "endpoint",
        "delivery",
        "node",
        "entry",
        "holder",
        "acquired",
        "outcome",
        "told",
        "settled",
        "presettled",
        "orphaned",
        "fate",
        "over",
    )

    def __init__(
        self,
        transaction: BrokerTransaction,
        endpoint: ConsumerPort,
        delivery: OutgoingDelivery,
        entry: Entry | None,
        acquired: bool,
    ) -> None:
        self.transaction: BrokerTransaction = transaction
        self.endpoint: ConsumerPort = endpoint
        self.delivery: OutgoingDelivery = delivery
        self.node: Node = endpoint.node
        self.entry = entry
        self.holder: Consumer = endpoint
        self.acquired: bool = acquired
        self.outcome: Outcome | None = None
        self.told: Outcome | None = None
        self.settled: bool = delivery.settled
        self.presettled: bool = delivery.settled
        self.orphaned: bool = False
        self.fate: Outcome | None = None
        # Whether the outcome has been applied to the message.
        self.over: bool = False
        delivery.context = self
        if entry is not None:
            entry.enlisted = True
        endpoint.enlist(self)

    def retire(
        self, state: DeliveryState | None, settled: bool, told: DeliveryState | None = None
    ) -> None:
        """Note the outcome that the client wants, and the one that it has `told`, if that is
        another. The last one before the discharge counts."""
        if not self.settled and isinstance(state, Accepted | Released | Rejected | Modified):
            self.outcome = state
            self.told = state
            if isinstance(told, Accepted | Released | Rejected | Modified):
                self.told = told
        if settled:
            self.settled = True

    def orphan(self, fate: Outcome) -> None:
        """Hold the message in place of the link, which is gone."""
        self.orphaned = True
        self.fate = fate
        entry = self.entry
        if entry is not None:
            stand_in = Consumer(self.endpoint.id, False)
            stand_in.known_as = self.endpoint.known_as
            self.node.hand_over(entry, self.holder, stand_in)
            self.holder = stand_in

    def is_sending(self) -> bool:
        """Return whether the window of the session holds back a part of an acquired message."""
        return self.acquired and not self.orphaned and not self.delivery.sent

    # -- the end -------------------------------------------------------------------------------

    def commit(self) -> None:
        """Apply the outcome, if there is one; otherwise the delivery is held like any other."""
        entry = self.entry
        outcome = self.outcome
        if self.presettled and entry is not None:
            self._leave()
            self.over = True
            if outcome is None:
                self.node.remove(self.holder, entry)
            else:
                self._apply(entry, outcome)
        elif outcome is not None or self.settled or self.orphaned:
            self._finish(self._default(False) if outcome is None else outcome)
        else:
            self._return_to_link()

    def roll_back(self, lost: bool) -> None:
        """Return an acquired message to its place; a retired one is held again."""
        self.outcome = None
        if self.acquired:
            fate = self.fate
            if fate is None:
                fate = self.endpoint.fate(True) if lost else RELEASED
            self.outcome = fate
            self._finish(fate)
        elif self.orphaned and self._stays_locked():
            # The message stays locked, as others do whose link is gone.
            self._leave()
        elif self.settled or self.orphaned:
            self._finish(self._default(lost))
        else:
            self._return_to_link()

    def settle(self, committed: bool) -> None:
        """Settle a delivery that has an outcome, unless the client has settled it."""
        delivery = self.delivery
        if not self.over or self.orphaned or delivery.settled:
            return
        outcome = self.outcome
        if delivery.remote_settled or outcome is None:
            delivery.settle()
        elif self.acquired and not committed:
            # The outcome is not the client's own, so the client has to confirm it first (AMQP 1.0
            # §2.6.12).
            delivery.update(outcome)
        else:
            # The confirmation repeats the outcome, but not the details that the client sent.
            told = outcome if self.told is None else self.told
            delivery.settle(REJECTED if isinstance(told, Rejected) else told)

    def _default(self, lost: bool) -> Outcome:
        fate = self.fate
        return self.endpoint.fate(lost) if fate is None else fate

    def _finish(self, outcome: Outcome) -> None:
        """Apply the outcome to the message."""
        self._leave()
        self.over = True
        entry = self.entry
        if entry is not None:
            self._apply(entry, outcome)

    def _apply(self, entry: Entry, outcome: Outcome) -> None:
        self.entry = None
        if self.node.deleted:
            # The queue to which the message would return is deleted.
            self.node.remove(self.holder, entry)
        else:
            apply_outcome(self.node, self.holder, entry, outcome)
        self.endpoint.forget(self.delivery)

    def _return_to_link(self) -> None:
        """Give the delivery back the context that it had before the transaction."""
        self.endpoint.delist(self)
        delivery = self.delivery
        entry = self.entry
        delivery.context = entry
        if entry is not None:
            self.node.decided(self.holder, entry)
            self.endpoint.recall(delivery, entry)
        if isinstance(delivery.remote_state, TransactionalState):
            delivery.remote_state = None

    def _leave(self) -> None:
        """Remove the delivery from the transaction."""
        self.delivery.context = None
        entry = self.entry
        if entry is not None:
            self.node.decided(self.holder, entry)
        self.endpoint.delist(self)

    def _stays_locked(self) -> bool:
        entry = self.entry
        return entry is not None and entry.lock_deadline != 0 and not self.node.deleted


@final
class TxnBrowse(TxnWork):
    """The messages that a browsing link has been shown in a transaction.

    After a rollback the link is shown them again.
    """

    __slots__ = ("endpoint", "bookmark")

    def __init__(self, endpoint: ConsumerPort, bookmark: list[int]) -> None:
        self.endpoint: ConsumerPort = endpoint
        self.bookmark: list[int] = bookmark

    def roll_back(self, lost: bool) -> None:
        """Move the link back to where it began."""
        endpoint = self.endpoint
        if not endpoint.closed:
            endpoint.node.rewind(endpoint, self.bookmark)
