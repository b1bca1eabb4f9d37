"""Ports of links: interfaces for the parts of the broker that do not make links (transactions,
termini that outlive their links, the output of a connection and the credit of the broker).

A port is a base class with the methods that these parts need, and no others. `ConsumerLink`,
`ProducerLink` and `Coordinator` are the links behind the ports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.node import Node, Producer, Refusal

if TYPE_CHECKING:
    from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.sender import SenderLink
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.fences import FenceRecord
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.transactions.transaction import BrokerTransaction
    from ferrymq_broker.transactions.txn_delivery import TxnDelivery
    from ferrymq_broker.transactions.txn_publish import TxnPublish
    from ferrymq_types.unions import Outcome


class ClientConsumer(Consumer):
    """The interface of a consumer over a connection, for the output of the connection."""

    __slots__ = ("closed",)

    def __init__(self, id: i64, copies: bool) -> None:
        super().__init__(id, copies)
        self.closed: bool = False

    def connection_number(self) -> i64:
        """Return the number of the connection."""
        return 0

    def go_on(self) -> None:
        """Continue to send: the client can take messages again."""


class ConsumerPort(ClientConsumer):
    """The interface of a link on which the broker sends messages of `node`.

    `outcomes` are those that the client may use, by their symbols, or None for all. `imposed` is
    the outcome of every delivery, if the client named a default outcome but no outcomes.
    `acquiring` is the transaction in the link's flow state (AMQP 1.0 §4.4.3).
    """

    __slots__ = ("link", "node", "outcomes", "imposed", "acquiring")

    def __init__(
        self,
        id: i64,
        copies: bool,
        link: SenderLink,
        node: Node,
        outcomes: list[str] | None,
        imposed: Outcome | None,
    ) -> None:
        super().__init__(id, copies)
        self.link: SenderLink = link
        self.node: Node = node
        self.outcomes: list[str] | None = outcomes
        self.imposed: Outcome | None = imposed
        self.acquiring: BrokerTransaction | None = None

    # -- for the output of the connection ------------------------------------------------

    def is_held_up(self) -> bool:
        """Return whether the link waits for the session's window, or for the client to settle."""
        return False

    # -- for transactions and for termini ------------------------------------------------

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """Process a disposition of the receiver: a state, a settlement or both."""

    def still_holds(self, entry: Entry) -> bool:
        """Return whether the link still holds a message; false if the lock of the message is
        lost."""
        return True

    def fate(self, lost: bool) -> Outcome:
        """Return the outcome of a message on which the client has not decided."""
        raise NotImplementedError

    def recall(self, delivery: OutgoingDelivery, entry: Entry) -> None:
        """Remember a delivery again that has left its transaction."""

    def forget(self, delivery: OutgoingDelivery) -> None:
        """Forget a delivery that has its outcome, if it was remembered."""

    def enlist(self, holding: TxnDelivery) -> None:
        """Note that a delivery has become part of a transaction."""

    def delist(self, holding: TxnDelivery) -> None:
        """Note that a delivery has left its transaction."""

    def acquire_under(self, transaction: BrokerTransaction | None) -> None:
        """Acquire in this transaction from now on, or in none."""

    def stop_acquiring(self, transaction: BrokerTransaction) -> None:
        """Stop acquiring in a transaction that has been discharged."""

    # -- the end of the link -------------------------------------------------------------

    def refuse(self, condition: str, description: str) -> None:
        """End the link, because the client has sent something that is not allowed."""

    def close(self, lost: bool, closed: bool) -> None:
        """Settle the messages that the link held: it is `lost` with its connection, or `closed` for
        good."""


class ProducerPort(Producer):
    """The interface of a link on which the broker receives messages for `node`, None for the
    anonymous terminus.

    `origin` is the number of the connection. `window` is the credit in messages that the client
    gets as long as there is room. `batches` is whether the client may send batches, also in
    transactions; `batched` is how many more messages than deliveries have come, because of batches.
    """

    __slots__ = ("link", "node", "origin", "window", "closed", "batches", "batched")

    def __init__(self, link: ReceiverLink, node: Node | None, origin: i64) -> None:
        self.link: ReceiverLink = link
        self.node: Node | None = node
        self.origin: i64 = origin
        self.window: i64 = 0
        self.closed: bool = False
        self.batches: bool = False
        self.batched: i64 = 0

    def is_resent(self, delivery: IncomingDelivery) -> bool:
        """Return whether the delivery was accepted on an earlier attachment of the link."""
        return False

    def posting(self, delivery: IncomingDelivery) -> TxnPublish | None:
        """Return the message of an open transaction that came under the tag of this delivery."""
        return None

    def on_posted(self, delivery: IncomingDelivery, posting: TxnPublish) -> None:
        """Remember a message that is part of a transaction."""

    def on_discharged(self, delivery: IncomingDelivery, committed: bool, kept: bool) -> None:
        """Note that the transaction of a message is over; `kept` is whether the result outlives a
        crash."""

    def keeps(self, node: Node, message: BrokerMessage) -> bool:
        """Return whether the node keeps a message through a crash and the terminus of the link is
        remembered."""
        return False

    def count_dropped(self) -> None:
        """Count a message that was dropped."""

    def route(self, message: BrokerMessage) -> Node:
        """Return the node that a message is for. Raises `BrokerError`, `DecodeError`."""
        raise NotImplementedError

    def admitted(self, message: BrokerMessage, node: Node) -> BrokerMessage:
        """Return the message that is published instead of a client's. Raises `BrokerError`."""
        return message

    def refusal_if_full(self, node: Node) -> Refusal | None:
        """Return the reason why the node has no room for a message for which it gave this link no
        credit."""
        return None

    # -- refusals ------------------------------------------------------------------------

    def reject(
        self,
        delivery: IncomingDelivery,
        condition: str,
        description: str,
        info: dict[str, object] | None,
    ) -> None:
        """Reject a message that is malformed or names no address."""

    def outcome_of(self, delivery: IncomingDelivery, refusal: Refusal) -> Outcome | None:
        """Choose the outcome that tells the client of a refusal; None if the client understands
        none."""
        return None

    def end_for(self, delivery: IncomingDelivery, refusal: Refusal) -> None:
        """End the link of a client that cannot be told of a refusal with an outcome."""


class ControlPort(Producer):
    """The interface of a control link, on which transactions are declared and discharged."""

    __slots__ = ()

    def go_on(self, transaction: BrokerTransaction) -> None:
        """Carry out the discharge of a transaction, unless it has to wait."""

    def terminate(self, reason: str) -> None:
        """Roll back all transactions of the link, because the client has broken a rule for one."""

    def touch(self) -> None:
        """At the end of this pass, check whether there is something to tell the client."""

    def pass_fence(self, fence: FenceRecord) -> None:
        """Record the fence of a transaction that is committed."""
