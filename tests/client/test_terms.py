"""What the client asks of the peer's termini, and that it looks at what it got (§2.6.3, §3.5.3)."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq.engine import events
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq_codec import Array
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.filters import NoLocalFilter, SelectorFilter
from ferrymq_types.messaging import Accepted, Data, DeleteOnClose, Properties, Source, Target
from tests.client.peer import Peer, PeerConnection

CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"


def answer_with(peer: Peer, **named: Any) -> None:
    """Have the peer accept links with these fields in its attach."""

    def accept(connection: PeerConnection, event: events.AttachReceived) -> None:
        connection.links[event.link.name] = event.link  # type: ignore[assignment]
        event.link.accept(**named)

    peer.on[events.AttachReceived] = accept


async def detach_of(peer: Peer) -> events.DetachReceived:
    """How the client took the link back."""
    return await peer.seen(events.DetachReceived)


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize(
    "applied", [None, {}, {"other": NoLocalFilter()}, {"selector": NoLocalFilter()}]
)
async def test_a_filter_that_the_peer_does_not_apply_ends_the_link(
    peer: Peer, connection: ferrymq.Connection, applied: dict[str, object] | None
) -> None:
    answer_with(peer, source=Source(address="orders", filter=applied))
    with pytest.raises(ferrymq.LinkDetached, match="does not apply the filter mine") as caught:
        await connection.receiver("orders", filters={"mine": NoLocalFilter()})
    assert caught.value.error is not None
    event = await detach_of(peer)
    assert event.closed and event.error is not None
    assert event.error.condition == "amqp:precondition-failed"
    # Not a single message was asked for.
    assert peer.count(events.CreditReceived) == 0


@pytest.mark.spec("3.5.3")
async def test_a_filter_may_come_back_with_another_value(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    answer_with(peer, source=Source(address="orders", filter={"mine": SelectorFilter("chosen")}))
    receiver = await connection.receiver("orders", filters={"mine": None})
    assert receiver.source is not None and receiver.source.filter is not None
    assert receiver.source.filter["mine"]


@pytest.mark.spec("2.6.3")
async def test_copies_were_asked_for() -> None:
    async with (
        Peer(properties={"product": "ferrymq"}) as peer,
        ferrymq.connect(peer.url) as connection,
    ):
        answer_with(peer, source=Source(address="orders", distribution_mode="move"))
        with pytest.raises(ferrymq.LinkDetached, match="moves messages"):
            await connection.receiver("orders", mode="copy")
        assert (await detach_of(peer)).closed
        answer_with(peer, source=Source(address="orders", distribution_mode="copy"))
        assert not (await connection.receiver("orders", mode="copy")).closed


@pytest.mark.spec("2.6.3")
async def test_a_dynamic_node_has_an_address(peer: Peer, connection: ferrymq.Connection) -> None:
    answer_with(peer, source=Source(dynamic=True), target=Target(dynamic=True))
    with pytest.raises(ferrymq.LinkDetached, match="dynamic source"):
        await connection.receiver(None, dynamic=True)
    with pytest.raises(ferrymq.LinkDetached, match="dynamic target"):
        await connection.sender(None, dynamic=True)


@pytest.mark.spec("3.5.8")
@pytest.mark.parametrize("filter", ["a = 1", Symbol("a"), 5])
async def test_filters_are_described_values(connection: ferrymq.Connection, filter: object) -> None:
    with pytest.raises(ValueError, match="not a described value"):
        await connection.receiver("orders", filters={"mine": filter})
    described = Described(Symbol("example:filter"), "a = 1")
    assert await connection.receiver("orders", filters={"mine": described, "none": None})


@pytest.mark.spec("3.5.3")
async def test_node_properties_are_for_dynamic_nodes(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    properties: dict[str, object] = {"lifetime-policy": DeleteOnClose()}
    with pytest.raises(ValueError, match="dynamic nodes alone"):
        await connection.receiver("orders", dynamic_node_properties=properties)
    with pytest.raises(ValueError, match="dynamic nodes alone"):
        await connection.sender("orders", dynamic_node_properties=properties)
    await connection.receiver(None, dynamic=True, dynamic_node_properties=properties)
    attach = (await peer.seen(events.AttachReceived)).link.remote_attach
    assert attach is not None and attach.source is not None
    assert set(attach.source.dynamic_node_properties or {}) == {"lifetime-policy"}


@pytest.mark.spec("3.5.3")
async def test_a_receiver_names_the_outcomes_it_uses(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    await connection.receiver("orders")
    attach = (await peer.seen(events.AttachReceived)).link.remote_attach
    assert attach is not None and attach.source is not None
    assert set(attach.source.outcomes or []) == {
        "amqp:accepted:list",
        "amqp:rejected:list",
        "amqp:released:list",
        "amqp:modified:list",
    }


@pytest.mark.spec("2.6.3")
async def test_of_a_source_the_sender_decides_and_of_a_target_the_receiver(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    answer_with(
        peer,
        source=Source(address="queue://orders", distribution_mode="copy"),
        target=Target(address="orders::all", timeout=7),
    )
    receiver = await connection.receiver("orders")
    assert receiver.source == Source(address="queue://orders", distribution_mode="copy")
    sender = await connection.sender("orders")
    assert sender.target == Target(address="orders::all", timeout=7)


@pytest.mark.spec("5.2.1")
async def test_tls_from_the_first_octet_names_the_server_that_is_wanted() -> None:
    asked: list[str | None] = []
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(CERTIFICATE)
    server.sni_callback = lambda _, name, __: asked.append(name)
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    async with (
        Peer(tls=server) as other,
        ferrymq.connect(other.url, ssl=trusting) as connection,
    ):
        await connection.session()
        sent = (await other.seen(events.OpenReceived)).open
    assert asked == [sent.hostname] == ["localhost"]


@pytest.mark.spec("2.7.1")
async def test_the_anonymous_node_is_used_only_where_it_is_offered(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    with pytest.raises(ferrymq.LinkDetached, match="offers no ANONYMOUS-RELAY"):
        await connection.sender(None)
    # Nothing was sent for it.
    await connection.session()
    assert peer.count(events.AttachReceived) == 0
    async with (
        Peer(offered_capabilities=["ANONYMOUS-RELAY"]) as other,
        ferrymq.connect(other.url) as second,
    ):
        sent = (await other.seen(events.OpenReceived)).open
        assert "ANONYMOUS-RELAY" in (sent.desired_capabilities or [])
        sender = await second.sender(None)
        await sender.send(ferrymq.Message(b"x", to="orders"))
        assert [message.to for message in other.received[None]] == ["orders"]


@pytest.mark.spec("2.7.3")
async def test_nothing_is_desired_or_offered_unasked(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    await connection.receiver("orders")
    attach = (await peer.seen(events.AttachReceived)).link.remote_attach
    assert attach is not None
    assert attach.offered_capabilities is None and attach.desired_capabilities is None
    begin = (await peer.seen(events.BeginReceived)).session.remote_begin
    assert begin is not None
    assert begin.offered_capabilities is None and begin.desired_capabilities is None


@pytest.mark.spec("pairing-2.1.1")
async def test_the_client_neither_wants_nor_offers_pairs(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    sent = (await peer.seen(events.OpenReceived)).open
    assert LINK_PAIR not in [*(sent.offered_capabilities or []), *(sent.desired_capabilities or [])]


def test_sections_that_are_missing_are_empty() -> None:
    message = ferrymq.Message.decode(b"\x00\x53\x75\xa0\x01x")
    assert message.message_annotations == {} and message.delivery_annotations == {}
    assert message.body_sections == [Data(b"x")] and message.properties in (None, Properties())


@pytest.mark.spec("3.5.9")
@pytest.mark.parametrize(
    "properties",
    [
        {"lifetime-policy": "delete-on-close"},
        {"lifetime-policy": Accepted()},
        {"supported-dist-modes": "move"},
        {"supported-dist-modes": Symbol("throw")},
        {"supported-dist-modes": Array("string", ["move"])},
    ],
    ids=str,
)
async def test_node_properties_are_checked_at_both_ends(
    peer: Peer, connection: ferrymq.Connection, properties: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="dynamic_node_properties"):
        await connection.receiver(None, dynamic=True, dynamic_node_properties=properties)
    with pytest.raises(ValueError, match="dynamic_node_properties"):
        await connection.sender(None, dynamic=True, dynamic_node_properties=properties)
    answer_with(
        peer,
        source=Source(address="made", dynamic=True, dynamic_node_properties=properties),
        target=Target(address="made", dynamic=True, dynamic_node_properties=properties),
    )
    with pytest.raises(ferrymq.LinkDetached, match="node properties of the peer"):
        await connection.receiver(None, dynamic=True)
    with pytest.raises(ferrymq.LinkDetached, match="node properties of the peer"):
        await connection.sender(None, dynamic=True)


@pytest.mark.spec("3.5.9")
async def test_empty_node_properties_are_none(connection: ferrymq.Connection) -> None:
    await connection.receiver("orders", dynamic_node_properties={})
    await connection.sender("orders", dynamic_node_properties={})


@pytest.mark.spec("3.5.8")
async def test_a_null_filter_is_no_filter(peer: Peer, connection: ferrymq.Connection) -> None:
    answer_with(peer, source=Source(address="orders"))
    receiver = await connection.receiver("orders", filters={"mine": None})
    assert not receiver.closed
    # Where one was asked for, null in the answer says that it is not there.
    answer_with(peer, source=Source(address="orders", filter={"mine": None}))
    mine = Described(Symbol("example:filter"), "a = 1")
    with pytest.raises(ferrymq.LinkDetached, match="does not apply the filter mine"):
        await connection.receiver("orders", filters={"mine": mine})


@pytest.mark.spec("3.5.3")
async def test_an_outcome_that_the_source_does_not_grant_is_refused(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    answer_with(peer, source=Source(address="orders", outcomes=["amqp:accepted:list"]))
    receiver = await connection.receiver("orders", credit=0)
    link = peer.connection.links[receiver.name]
    peer.put("orders", "a", "b")
    receiver.add_credit(2)
    delivery = await receiver.receive()
    for give in (delivery.reject, delivery.release, delivery.modify):
        with pytest.raises(ferrymq.LocalProtocolError, match="does not grant the outcome"):
            await give()
    assert not delivery.settled and link.usable
    await delivery.accept()
    # What is handed back is left to the default outcome.
    await receiver.close()
    outcome = await peer.seen(events.OutcomeReceived, 2)
    assert outcome.delivery.remote_settled and outcome.delivery.remote_state is None
