"""What the client verifies of a coordinator, which is a scripted peer (AMQP 1.0 §4.5)."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.errors import LinkDetached, TransactionError, TransactionInDoubt
from ferrymq_types.messaging import Accepted, Source
from ferrymq_types.transactions import Coordinator, Declared, TransactionalState
from tests.client.peer import Peer, PeerConnection

LOCAL = "amqp:local-transactions"
MANY = "amqp:multi-txns-per-ssn"


def coordinate(peer: Peer, capabilities: list[str] | None) -> None:
    """Have the peer accept control links, and answer every message on them with `declared`."""

    def attached(connection: PeerConnection, event: events.AttachReceived) -> None:
        link = event.link
        assert isinstance(link, ReceiverLink)
        connection.links[link.name] = link
        asked = link.remote_attach
        assert asked is not None
        if isinstance(asked.target, Coordinator):
            link.accept(source=Source(), target=Coordinator(capabilities=capabilities))
        else:
            link.accept()
        link.set_credit(100)

    def arrived(connection: PeerConnection, event: events.DeliveryReceived) -> None:
        asked = event.link.remote_attach
        assert asked is not None
        if isinstance(asked.target, Coordinator):
            event.delivery.settle(Declared(txn_id=b"one"))
        else:
            event.delivery.update(TransactionalState(txn_id=b"other", outcome=Accepted()))

    peer.on[events.AttachReceived] = attached
    peer.on[events.DeliveryReceived] = arrived


@pytest.mark.spec("4.5.1")
@pytest.mark.parametrize("capabilities", [None, [], ["com.example:unknown"], [MANY]], ids=str)
async def test_a_coordinator_without_local_transactions_is_refused(
    peer: Peer, connection: ferrymq.Connection, capabilities: list[str] | None
) -> None:
    coordinate(peer, capabilities)
    with pytest.raises(LinkDetached, match=f"does not offer {LOCAL}"):
        await connection.transaction()


@pytest.mark.spec("4.5.7")
async def test_one_transaction_at_a_time_where_the_coordinator_allows_no_more(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    coordinate(peer, [LOCAL])
    await connection.transaction()
    with pytest.raises(TransactionError, match="one transaction at a time"):
        await connection.transaction()


@pytest.mark.spec("4.3")
async def test_declared_is_no_answer_to_a_commit(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    coordinate(peer, [LOCAL, MANY])
    transaction = await connection.transaction()
    with pytest.raises(TransactionInDoubt, match="answered the commit with"):
        await transaction.commit()
    assert not transaction.active


@pytest.mark.spec("4.4.1")
async def test_an_outcome_that_names_another_transaction_ends_the_link(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    coordinate(peer, [LOCAL, MANY])
    transaction = await connection.transaction()
    sender = await connection.sender("orders")
    with pytest.raises(LinkDetached, match="names a transaction"):
        await sender.send(Message("a"), transaction=transaction)
    event = await peer.seen(events.DetachReceived)
    assert event.error is not None and event.error.condition == "amqp:illegal-state"
