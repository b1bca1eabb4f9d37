"""Redirects of links (AMQP 1.0 §2.8.18): where the client attaches them, and where it does not."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

import ferrymq
from ferrymq.engine import events
from ferrymq_codec.scalars import UInt
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Error
from tests.client.keeper import POLICY
from tests.client.peer import Handler, Peer, PeerConnection

CERTIFICATE = Path(__file__).with_name("tls") / "localhost.pem"


@pytest.fixture
async def other() -> AsyncIterator[Peer]:
    async with Peer(container_id="other") as server:
        yield server


def moved(port: int, host: str = "127.0.0.1", address: str = "q", **info: object) -> Error:
    about = {"network-host": host, "port": UInt(port), "address": address, **info}
    return Error(condition="amqp:link:redirect", description="not here", info=about)


def redirecting(peer: Peer, error: Error) -> Handler:
    """The peer refuses links to addresses that begin with q."""

    def refuse(connection: PeerConnection, event: events.AttachReceived) -> None:
        attach = event.link.remote_attach
        assert attach is not None
        at = attach.source if event.link.is_sender else attach.target
        if str(cast(Source | Target, at).address).startswith("q"):
            event.link.refuse(error)
        else:
            peer.default(connection, event)

    return refuse


@pytest.mark.spec("2.8.18")
async def test_a_sender_is_attached_where_the_peer_says(peer: Peer, other: Peer) -> None:
    logins: list[object] = []

    def remember(connection: PeerConnection, event: events.AuthenticationRequested) -> None:
        logins.append((event.username, event.password))
        connection.engine.accept_authentication()

    other.on[events.AuthenticationRequested] = remember
    peer.on[events.AttachReceived] = redirecting(peer, moved(other.port, address="there"))
    url = peer.url.replace("//", "//me:secret@")
    async with ferrymq.connect(url, container_id="till-7") as connection:
        sender = await connection.sender("q")
        await sender.send("1")
        assert sender.address == "there"
        await (await connection.sender("here")).send("2")
    assert [m.body for m in other.received["there"]] == ["1"]
    assert [m.body for m in peer.received["here"]] == ["2"]
    assert logins == [("me", "secret")]
    assert (await other.seen(events.OpenReceived)).open.container_id == "till-7"
    # The connection there ends with the one that the program made.
    assert other.count(events.CloseReceived) == 1


@pytest.mark.spec("2.8.18")
async def test_a_receiver_is_attached_where_the_peer_says(peer: Peer, other: Peer) -> None:
    peer.on[events.AttachReceived] = redirecting(peer, moved(other.port))
    other.put("q", "a", "b")
    async with ferrymq.connect(peer.url) as connection, connection.receiver("q") as receiver:
        for body in ("a", "b"):
            delivery = await receiver.receive(timeout=10)
            assert delivery.message.body == body
            await delivery.accept()


async def test_links_to_one_place_share_a_connection(peer: Peer, other: Peer) -> None:
    peer.on[events.AttachReceived] = redirecting(peer, moved(other.port))
    async with ferrymq.connect(peer.url) as connection:
        first = await connection.sender("q")
        second = await connection.sender("q1")
        assert len(other.connections) == 1
        await first.close()
        await second.send("x")
        # After a loss there is a new one.
        other.connection.transport.abort()
        with pytest.raises(ferrymq.ConnectionClosed):
            await second.send("y")
        await (await connection.sender("q")).send("z")
    assert len(other.connections) == 2
    assert [m.body for m in other.received["q"]] == ["x", "z"]


async def test_a_redirected_link_is_restored_where_it_is(peer: Peer, other: Peer) -> None:
    peer.on[events.AttachReceived] = redirecting(peer, moved(other.port))
    async with ferrymq.connect(peer.url, reconnect=POLICY) as connection:
        sender = await connection.sender("q")
        await sender.send("1")
        other.connection.transport.abort()
        await sender.send("2", timeout=10)
    assert len(peer.connections) == 1 and len(other.connections) == 2
    assert [m.body for m in other.received["q"]] == ["1", "2"]


async def test_the_first_url_that_works_is_used(peer: Peer, other: Peer) -> None:
    listed = ["amqps://127.0.0.1:1", "nonsense", "amqp://127.0.0.1:1", other.url]
    peer.on[events.AttachReceived] = redirecting(peer, moved(1, **{"ferrymq:urls": listed}))
    async with ferrymq.connect(peer.url) as connection:
        await (await connection.sender("q")).send("x")
    assert [m.body for m in other.received["q"]] == ["x"]


async def test_a_redirect_to_the_same_broker_needs_no_connection(peer: Peer) -> None:
    peer.on[events.AttachReceived] = redirecting(peer, moved(peer.port, "localhost", "new"))
    async with ferrymq.connect(peer.url) as connection:
        await (await connection.sender("q")).send("x")
    assert len(peer.connections) == 1
    assert [m.body for m in peer.received["new"]] == ["x"]


async def test_brokers_that_redirect_to_one_another_are_left(peer: Peer, other: Peer) -> None:
    peer.on[events.AttachReceived] = redirecting(peer, moved(other.port, "localhost"))
    other.on[events.AttachReceived] = redirecting(other, moved(peer.port, "localhost"))
    async with ferrymq.connect(peer.url) as connection:
        with pytest.raises(ferrymq.LinkDetached) as caught:
            await connection.sender("q")
        assert caught.value.condition == "amqp:link:redirect"
        assert str(caught.value).endswith(
            f"({peer.url} → {other.url} → {peer.url}: the brokers redirect to one another)"
        )
        await connection.sender("here")


@pytest.mark.parametrize("hops", [5, 6])
async def test_five_redirects_are_followed(peer: Peer, hops: int) -> None:
    step = 0

    def on(connection: PeerConnection, event: events.AttachReceived) -> None:
        nonlocal step
        step += 1
        if step <= hops:
            event.link.refuse(moved(peer.port, address=f"q{step}"))
        else:
            peer.default(connection, event)

    peer.on[events.AttachReceived] = on
    async with ferrymq.connect(peer.url) as connection:
        if hops == 5:
            assert (await connection.sender("q")).address == "q5"
        else:
            with pytest.raises(ferrymq.LinkDetached, match="more than 5 redirects"):
                await connection.sender("q")


@pytest.mark.parametrize(
    "info", [{"network-host": None}, {"network-host": "a/b"}, {"port": 0}, {"port": "5672"}]
)
async def test_a_redirect_without_a_place_is_an_error(peer: Peer, info: dict[str, object]) -> None:
    error = moved(5672)
    assert error.info is not None
    error.info.update(info)
    peer.on[events.AttachReceived] = redirecting(peer, error)
    async with ferrymq.connect(peer.url) as connection:
        with pytest.raises(ferrymq.LinkDetached, match="redirect: not here"):
            await connection.sender("q")


async def test_a_place_without_a_broker_is_an_error(peer: Peer, other: Peer) -> None:
    port = other.port
    other.server.close()
    peer.on[events.AttachReceived] = redirecting(peer, moved(port))
    async with ferrymq.connect(peer.url) as connection:
        with pytest.raises(ferrymq.TransportError, match=f":{port}"):
            await connection.sender("q")
        await connection.sender("here")


async def test_redirects_may_be_refused(peer: Peer, other: Peer) -> None:
    peer.on[events.AttachReceived] = redirecting(peer, moved(other.port))
    async with ferrymq.connect(peer.url, follow_redirects=False) as connection:
        with pytest.raises(ferrymq.LinkDetached) as caught:
            await connection.sender("q")
        assert caught.value.condition == "amqp:link:redirect"
    assert other.connections == []


async def test_a_link_of_a_session_stays_in_it(peer: Peer, other: Peer) -> None:
    peer.on[events.AttachReceived] = redirecting(peer, moved(other.port))
    async with ferrymq.connect(peer.url) as connection, connection.session() as session:
        with pytest.raises(ferrymq.LinkDetached, match="redirect"):
            await session.sender("q")
    assert other.connections == []


async def test_a_token_does_not_leave_this_machine_without_tls() -> None:
    async with Peer(sasl_mechanisms=["OAUTHBEARER"]) as peer:
        peer.on[events.AttachReceived] = redirecting(peer, moved(5672, "broker.example"))
        async with ferrymq.connect(peer.url, token="abc") as connection:
            with pytest.raises(ferrymq.LinkDetached, match=r"broker\.example:5672.*anyone"):
                await connection.sender("q")


@pytest.mark.spec("2.8.18")
async def test_the_given_hostname_is_in_the_open_and_in_the_login(peer: Peer, other: Peer) -> None:
    error = moved(other.port, hostname="broker.example")
    peer.on[events.AttachReceived] = redirecting(peer, error)
    async with ferrymq.connect(peer.url) as connection:
        await connection.sender("q")
    assert (await other.seen(events.OpenReceived)).open.hostname == "broker.example"
    assert (await other.seen(events.AuthenticationRequested)).hostname == "broker.example"


@pytest.mark.spec("2.8.18")
async def test_tls_stays_tls_and_verifies_the_given_hostname() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE)
    client = ssl.create_default_context(cafile=str(CERTIFICATE))
    async with (
        Peer(tls=server) as peer,
        Peer(tls=server) as there,
        ferrymq.connect(peer.url, ssl=client) as connection,
    ):
        # The certificate bears the name localhost, and not the address.
        error = moved(there.port, hostname="localhost")
        peer.on[events.AttachReceived] = redirecting(peer, error)
        await (await connection.sender("q")).send("x")
        assert [m.body for m in there.received["q"]] == ["x"]
        error = moved(peer.port, hostname="other.example")
        peer.on[events.AttachReceived] = redirecting(peer, error)
        with pytest.raises(ferrymq.TransportError, match="certificate"):
            await connection.sender("q")
