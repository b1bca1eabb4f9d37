"""What a transaction controller does, in a test."""

from __future__ import annotations

import itertools

from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.session import Session
from ferrymq_types.messaging import Accepted, AmqpValue, Data, Rejected, Source
from ferrymq_types.transactions import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
)
from ferrymq_types.transport import Disposition, Role, SenderSettleMode
from ferrymq_types.unions import Outcome, Section
from tests.broker.harness import Client, Endpoint, Receiver, Sender, encode
from tests.support.script import On, parse

ACCEPTED = Accepted()
ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TIMEOUT = "amqp:transaction:timeout"

_names = itertools.count()


class Controller(Endpoint):
    """A control link."""

    def __init__(
        self,
        client: Client,
        *,
        session: Session | None = None,
        source: Source | None = None,
        capabilities: list[str] | None = None,
        snd: SenderSettleMode = SenderSettleMode.MIXED,
    ) -> None:
        link = (session or client.session).attach_sender(
            f"control-{next(_names)}",
            target=Coordinator(capabilities=capabilities),
            source=source,
            snd_settle_mode=snd,
        )
        super().__init__(client, link)
        self.link = link
        client.links[link] = self
        self.net.run()

    @property
    def target(self) -> Coordinator:
        """The coordinator as the broker answered it."""
        attach = self.link.remote_attach
        assert attach is not None and isinstance(attach.target, Coordinator)
        return attach.target

    def tell(self, *sections: Section, settled: bool = False) -> OutgoingDelivery:
        """Send the coordinator a message."""
        delivery = self.link.send(encode(*sections), settled=settled)
        self.net.run()
        return delivery

    def declare(self) -> bytes:
        """A new transaction."""
        delivery = self.tell(AmqpValue(value=Declare()))
        assert delivery.remote_settled and isinstance(delivery.remote_state, Declared)
        return delivery.remote_state.txn_id

    def discharge(self, txn: bytes, fail: bool | None = False) -> OutgoingDelivery:
        """Ask for the end of a transaction."""
        return self.tell(AmqpValue(value=Discharge(txn_id=txn, fail=fail)))

    def commit(self, txn: bytes) -> None:
        """Commit, which succeeds."""
        delivery = self.discharge(txn)
        assert delivery.remote_settled and delivery.remote_state == ACCEPTED

    def roll_back(self, txn: bytes) -> None:
        """Roll back, which succeeds."""
        delivery = self.discharge(txn, True)
        assert delivery.remote_settled and delivery.remote_state == ACCEPTED

    def refused(self, txn: bytes) -> str:
        """Try to commit; why that is refused, condition and description."""
        return reason(self.discharge(txn))


def reason(delivery: OutgoingDelivery) -> str:
    """Why the broker rejected a delivery."""
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    return f"{state.error.condition}: {state.error.description}"


def post(
    sender: Sender, txn: bytes, *bodies: bytes, settled: bool = False
) -> list[OutgoingDelivery]:
    """Send messages in a transaction."""
    return [post_sections(sender, txn, Data(value=body), settled=settled) for body in bodies]


def post_sections(
    sender: Sender, txn: bytes, *sections: Section, settled: bool = False
) -> OutgoingDelivery:
    """Send one message made of these sections in a transaction."""
    return sender.send_encoded(
        encode(*sections), settled=settled, state=TransactionalState(txn_id=txn)
    )


def retire(
    receiver: Receiver,
    txn: bytes,
    *deliveries: IncomingDelivery,
    outcome: Outcome | None = ACCEPTED,
    settled: bool = False,
) -> None:
    """Give deliveries an outcome in a transaction."""
    state = TransactionalState(txn_id=txn, outcome=outcome)
    for delivery in deliveries:
        if settled:
            delivery.settle(state)
        else:
            delivery.update(state)
    receiver.net.run()


def retire_range(
    receiver: Receiver,
    txn: bytes,
    deliveries: list[IncomingDelivery],
    outcome: Outcome = ACCEPTED,
    settled: bool = False,
) -> None:
    """Give neighbours an outcome in a transaction, in one disposition."""
    session = deliveries[0].link.session
    session._send(
        Disposition(
            role=Role.RECEIVER,
            first=deliveries[0].id,
            last=deliveries[-1].id,
            settled=settled,
            state=TransactionalState(txn_id=txn, outcome=outcome),
        )
    )
    receiver.net.run()


def acquire(receiver: Receiver, txn: bytes, credit: int, drain: bool = False) -> None:
    """Take messages in a transaction."""
    receiver.link.set_credit(credit, drain=drain, properties={"txn-id": txn})
    receiver.net.run()


def provisional(delivery: OutgoingDelivery | IncomingDelivery, txn: bytes) -> Outcome | None:
    """The outcome that a delivery of the transaction has so far; it is not settled."""
    assert not delivery.remote_settled
    state = delivery.remote_state
    assert isinstance(state, TransactionalState) and state.txn_id == txn
    return state.outcome


def frames(client: Client) -> list[tuple[str, On]]:
    """What went over the wire since `client.wire` was set: who sent it, and what."""
    assert client.wire is not None
    return [
        ("client" if ours else "broker", frame)
        for ours, data in client.wire
        for frame in parse(data)
        if isinstance(frame, On)
    ]
