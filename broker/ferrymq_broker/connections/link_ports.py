"""Ports of links, for the parts of the broker that do not make links: transactions, termini that
outlive their links, the output of a connection and the credit of the broker.

A port is a base class with what these need of a link, and nothing else. `ConsumerLink`,
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


class ConsumerPort(Consumer):
    """A link on which the broker sends messages of `node`.

    `outcomes` are those that the client may use, by their symbols, or None for all there are.
    `imposed` is the outcome of every delivery, if the client named a default outcome and no
    outcomes. `acquiring` is the transaction that the link's flow state names (AMQP 1.0 §4.4.3).
    """

    __slots__ = ("link", "node", "outcomes", "imposed", "closed", "acquiring")

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
        self.link = link
        self.node = node
        self.outcomes = outcomes
        self.imposed = imposed
        self.closed = False
        self.acquiring: BrokerTransaction | None = None

    # -- for the output of the connection ------------------------------------------------

    def go_on(self) -> None:
        """Send on: the client may take messages again."""

    def is_held_up(self) -> bool:
        """Return whether the link waits for the session's window, or for the client to settle."""
        return False

    # -- for transactions and for termini ------------------------------------------------

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """Act on what the receiver told of a delivery: its state, its settlement or both."""

    def fate(self, lost: bool) -> Outcome:
        """Return what becomes of a message that the client has not decided on."""
        raise NotImplementedError

    def recall(self, delivery: OutgoingDelivery, entry: Entry) -> None:
        """Remember a delivery again that is part of no transaction any longer."""

    def forget(self, delivery: OutgoingDelivery) -> None:
        """Forget a delivery that may be remembered: it has its outcome."""

    def enlist(self, holding: TxnDelivery) -> None:
        """Take note that a delivery has become part of a transaction."""

    def delist(self, holding: TxnDelivery) -> None:
        """Take note that a delivery is part of a transaction no longer."""

    def acquire_under(self, transaction: BrokerTransaction | None) -> None:
        """Acquire in this transaction from now on, or in none."""

    def stop_acquiring(self, transaction: BrokerTransaction) -> None:
        """Acquire in a transaction no longer that has been discharged."""

    # -- its end -------------------------------------------------------------------------

    def refuse(self, condition: str, description: str) -> None:
        """End the link: the client states what it may not."""

    def close(self, lost: bool, closed: bool) -> None:
        """Settle what the link held: it is `lost` with its connection, or `closed` for good."""


class ProducerPort(Producer):
    """A link on which the broker receives messages for `node`, None for the anonymous terminus.

    `origin` is the number of the connection. `window` is the credit that the client is kept
    supplied with as long as there is room, in messages.
    """

    __slots__ = ("link", "node", "origin", "window", "closed")

    def __init__(self, link: ReceiverLink, node: Node | None, origin: i64) -> None:
        self.link = link
        self.node = node
        self.origin: i64 = origin
        self.window: i64 = 0
        self.closed = False

    def is_resent(self, delivery: IncomingDelivery) -> bool:
        """Return whether the delivery was accepted on an earlier attachment of the link."""
        return False

    def posting(self, delivery: IncomingDelivery) -> TxnPublish | None:
        """Return the message that was posted under the tag of a delivery before, and is not
        committed yet."""
        return None

    def on_posted(self, delivery: IncomingDelivery, posting: TxnPublish) -> None:
        """Remember a message that is posted in a transaction."""

    def on_discharged(self, delivery: IncomingDelivery, committed: bool, kept: bool) -> None:
        """Take note that the transaction of a posted message is over; `kept` is whether what has
        become of the message outlives a crash."""

    def keeps(self, node: Node, message: BrokerMessage) -> bool:
        """Return whether the node keeps a message through a crash, and the link is remembered."""
        return False

    def count_dropped(self) -> None:
        """Count a message that was dropped."""

    def route(self, message: BrokerMessage) -> Node:
        """Return the node that a message is for. Raises `BrokerError`, `DecodeError`."""
        raise NotImplementedError

    def refusal_if_full(self, node: Node) -> Refusal | None:
        """Return why a node that has promised this link nothing has no room for a message."""
        return None

    # -- refusals ------------------------------------------------------------------------

    def reject(
        self,
        delivery: IncomingDelivery,
        condition: str,
        description: str,
        info: dict[str, object] | None,
    ) -> None:
        """Reject a message that is malformed, or names no place to go."""

    def outcome_of(self, delivery: IncomingDelivery, refusal: Refusal) -> Outcome | None:
        """Choose the outcome that tells the client of a refusal; None if it agreed to none."""
        return None

    def end_for(self, delivery: IncomingDelivery, refusal: Refusal) -> None:
        """End the link of a client that cannot be told of a refusal with an outcome."""


class ControlPort(Producer):
    """A control link, on which transactions are declared and discharged."""

    __slots__ = ()

    def go_on(self, transaction: BrokerTransaction) -> None:
        """Do what the discharge of a transaction asks for, unless it has to wait."""

    def terminate(self, reason: str) -> None:
        """Roll back all transactions of the link: the client has broken a rule about one."""

    def touch(self) -> None:
        """Look at the end of this pass whether there is something to tell the client."""

    def pass_fence(self, fence: FenceRecord) -> None:
        """Record the fence of a transaction that is committed."""
