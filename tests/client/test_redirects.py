"""Redirects of connections (AMQP 1.0 §2.8.16): where the client goes, and where it does not."""

from __future__ import annotations

import itertools
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ferrymq
from ferrymq import ReconnectPolicy
from ferrymq.engine import events
from ferrymq_codec.scalars import UInt
from ferrymq_types.transport import Error
from tests.client.keeper import POLICY
from tests.client.peer import Handler, Peer, PeerConnection

CERTIFICATE = Path(__file__).with_name("tls") / "localhost.pem"


@pytest.fixture
async def other() -> AsyncIterator[Peer]:
    async with Peer(container_id="other") as server:
        yield server


def moved(port: int, host: str = "127.0.0.1", **info: object) -> Error:
    about = {"network-host": host, "port": UInt(port), **info}
    return Error(condition="amqp:connection:redirect", description="not here", info=about)


def redirecting(error: Error) -> Handler:
    """The peer closes each connection directly after its open."""

    def close(connection: PeerConnection, _: events.OpenReceived) -> None:
        connection.engine.open()
        connection.engine.close(error)

    return close


@pytest.mark.spec("2.8.16")
async def test_a_redirect_is_followed_with_the_login(peer: Peer, other: Peer) -> None:
    logins: list[object] = []

    def remember(connection: PeerConnection, event: events.AuthenticationRequested) -> None:
        logins.append((event.username, event.password))
        connection.engine.accept_authentication()

    other.on[events.AuthenticationRequested] = remember
    peer.on[events.OpenReceived] = redirecting(moved(other.port))
    url = peer.url.replace("//", "//me:secret@")
    async with ferrymq.connect(url) as connection:
        assert connection.remote_container_id == "other"
        assert str(connection.url) == f"amqp://me@127.0.0.1:{other.port}"
        await (await connection.sender("q")).send("1")
    assert logins == [("me", "secret")]
    assert [m.body for m in other.received["q"]] == ["1"]


@pytest.mark.spec("2.8.16")
async def test_the_given_hostname_is_in_the_open(peer: Peer, other: Peer) -> None:
    peer.on[events.OpenReceived] = redirecting(moved(other.port, hostname="broker.example"))
    async with ferrymq.connect(peer.url):
        pass
    assert (await other.seen(events.OpenReceived)).open.hostname == "broker.example"


@pytest.mark.spec("2.8.16")
async def test_the_given_hostname_is_in_the_login(peer: Peer, other: Peer) -> None:
    peer.on[events.OpenReceived] = redirecting(moved(other.port, hostname="broker.example"))
    async with ferrymq.connect(peer.url):
        pass
    assert (await other.seen(events.AuthenticationRequested)).hostname == "broker.example"


async def test_a_virtual_host_is_kept(peer: Peer, other: Peer) -> None:
    peer.on[events.OpenReceived] = redirecting(moved(other.port, hostname="broker.example"))
    async with ferrymq.connect(f"{peer.url}?hostname=vhost:tenant"):
        pass
    assert (await other.seen(events.OpenReceived)).open.hostname == "vhost:tenant"


@pytest.mark.spec("2.8.16")
async def test_tls_stays_tls_and_verifies_the_given_hostname(other: Peer) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE)
    client = ssl.create_default_context(cafile=str(CERTIFICATE))
    async with Peer(tls=server) as peer, Peer(tls=server, container_id="there") as there:
        # The certificate bears the name localhost, and not the address.
        peer.on[events.OpenReceived] = redirecting(moved(there.port, hostname="localhost"))
        async with ferrymq.connect(peer.url, ssl=client) as connection:
            assert connection.url.scheme == "amqps"
            assert connection.remote_container_id == "there"
        peer.on[events.OpenReceived] = redirecting(moved(there.port, hostname="other.example"))
        with pytest.raises(ferrymq.TransportError, match="certificate"):
            await ferrymq.connect(peer.url, ssl=client)
        # A port without TLS gets no AMQP frame.
        peer.on[events.OpenReceived] = redirecting(moved(other.port))
        with pytest.raises(ferrymq.TransportError):
            await ferrymq.connect(peer.url, ssl=client)
    assert other.count(events.OpenReceived) == 0


async def test_a_token_does_not_leave_this_machine_without_tls() -> None:
    async with Peer(sasl_mechanisms=["OAUTHBEARER"]) as peer:
        peer.on[events.OpenReceived] = redirecting(moved(5672, "broker.example"))
        with pytest.raises(ferrymq.ConnectionClosed, match=r"broker\.example:5672.*token"):
            await ferrymq.connect(peer.url, token="abc")


async def test_nor_does_it_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ferrymq")
    async with (
        Peer(sasl_mechanisms=["OAUTHBEARER"]) as peer,
        ferrymq.connect(peer.url, token="abc", reconnect=POLICY) as connection,
    ):
        await connection.sender("q", name="out")
        peer.connection.engine.close(moved(5672, "broker.example"))
        peer.connection.process()
        await peer.seen(events.AttachReceived, 2)
        assert str(connection.url) == peer.url
    assert "the redirect is not followed: amqp://broker.example:5672: anyone" in caplog.text


async def test_brokers_that_redirect_to_one_another_are_left(peer: Peer, other: Peer) -> None:
    peer.on[events.OpenReceived] = redirecting(moved(other.port, "localhost"))
    other.on[events.OpenReceived] = redirecting(moved(peer.port, "localhost"))
    with pytest.raises(ferrymq.ConnectionClosed) as caught:
        await ferrymq.connect(peer.url)
    assert str(caught.value) == (
        f"{peer.url} → {other.url} → {peer.url}: the brokers redirect to one another"
    )
    assert len(peer.connections) == len(other.connections) == 1


@pytest.mark.parametrize("hops", [5, 6])
async def test_five_redirects_are_followed(hops: int) -> None:
    peers = [Peer(container_id=str(number)) for number in range(hops + 1)]
    for one in peers:
        await one.__aenter__()
    try:
        for one, following in itertools.pairwise(peers):
            one.on[events.OpenReceived] = redirecting(moved(following.port))
        if hops == 5:
            async with ferrymq.connect(peers[0].url) as connection:
                assert connection.remote_container_id == "5"
        else:
            with pytest.raises(ferrymq.ConnectionClosed, match="more than 5 redirects"):
                await ferrymq.connect(peers[0].url)
            assert peers[6].connections == []
    finally:
        for one in peers:
            await one.__aexit__()


@pytest.mark.parametrize(
    "info",
    [
        {"network-host": None},
        {"network-host": ""},
        {"network-host": "a/b"},
        {"network-host": "a b"},
        {"network-host": 7},
        {"port": 0},
        {"port": "5672"},
    ],
)
async def test_a_redirect_without_an_address_is_an_error(
    peer: Peer, info: dict[str, object]
) -> None:
    error = moved(5672)
    assert error.info is not None
    error.info.update(info)
    peer.on[events.OpenReceived] = redirecting(error)
    with pytest.raises(ferrymq.ConnectionClosed, match="redirect: not here"):
        await ferrymq.connect(peer.url)


async def test_redirects_may_be_refused(peer: Peer, other: Peer) -> None:
    peer.on[events.OpenReceived] = redirecting(moved(other.port))
    with pytest.raises(ferrymq.ConnectionClosed) as caught:
        await ferrymq.connect(peer.url, follow_redirects=False)
    assert caught.value.condition == "amqp:connection:redirect"
    assert other.connections == []


async def test_a_broker_that_moves_is_followed(peer: Peer, other: Peer) -> None:
    async with ferrymq.connect(peer.url, reconnect=POLICY) as connection:
        sender = await connection.sender("q", name="out")
        await sender.send("1")
        peer.connection.engine.close(moved(other.port))
        peer.connection.process()
        await other.seen(events.AttachReceived)
        await sender.send("2", timeout=10)
        assert connection.remote_container_id == "other"
        # When it is lost, the last address is tried first, and then the URL.
        other.server.close()
        other.connection.transport.abort()
        await peer.seen(events.AttachReceived, 2)
        await sender.send("3", timeout=10)
    assert len(peer.connections) == 2
    assert [m.body for m in peer.received["q"]] == ["1", "3"]
    assert [m.body for m in other.received["q"]] == ["2"]


@pytest.mark.parametrize(
    "moment", [events.OpenReceived, events.BeginReceived, events.AttachReceived]
)
async def test_a_redirect_while_restoring_is_followed(
    peer: Peer, other: Peer, moment: type[events.Event]
) -> None:
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    policy = ReconnectPolicy(initial=1, random=lambda: 1.0, sleep=sleep)
    async with ferrymq.connect(peer.url, reconnect=policy) as connection:
        sender = await connection.sender("q", name="out")

        def redirect(peer_connection: PeerConnection, event: events.Event) -> None:
            peer.default(peer_connection, event)
            peer_connection.engine.close(moved(other.port))

        peer.on[moment] = redirect
        peer.connection.transport.abort()
        await other.seen(events.AttachReceived)
        await sender.send("x", timeout=10)
    assert asked == [1]
    assert [m.body for m in other.received["q"]] == ["x"]


async def test_without_reconnecting_a_later_redirect_is_an_error(peer: Peer, other: Peer) -> None:
    async with ferrymq.connect(peer.url) as connection:
        peer.connection.engine.close(moved(other.port))
        peer.connection.process()
        with pytest.raises(ferrymq.ConnectionClosed, match="redirect"):
            await connection.wait_closed(timeout=10)
    assert other.connections == []


async def test_the_url_of_the_list_has_its_own_login(peer: Peer, other: Peer) -> None:
    users: list[object] = []

    def remember(connection: PeerConnection, event: events.AuthenticationRequested) -> None:
        users.append(event.username)
        connection.engine.accept_authentication()

    other.on[events.AuthenticationRequested] = remember
    peer.on[events.OpenReceived] = redirecting(moved(other.port, "localhost"))
    urls = [url.replace("//", f"//{user}:x@") for url, user in ((peer.url, "a"), (other.url, "b"))]
    async with ferrymq.connect(urls, reconnect=ReconnectPolicy()):
        pass
    assert users == ["b"]
