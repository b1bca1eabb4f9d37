"""Several URLs of one broker: which one is tried when, and that they are one broker."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy, blocking
from ferrymq.engine import events
from ferrymq.testing import LocalBroker
from ferrymq_types.security import SaslCode
from ferrymq_types.transport import Error
from tests.client.pauses import Pauses
from tests.client.peer import Handler, Peer, PeerConnection


@pytest.fixture
def policy(pauses: Pauses) -> ReconnectPolicy:
    return ReconnectPolicy(
        initial=1, factor=2, maximum=5, attempts=5, random=lambda: 1.0, sleep=pauses
    )


@pytest.fixture
async def other() -> AsyncIterator[Peer]:
    async with Peer(container_id="other") as server:
        yield server


def stop(peer: Peer) -> None:
    """Nothing listens there any longer, and its connections are lost."""
    peer.server.close()
    for connection in peer.connections:
        connection.transport.abort()


def refusing(condition: str) -> Handler:
    """The peer closes each connection directly after its open."""

    def close(connection: PeerConnection, _: events.OpenReceived) -> None:
        connection.engine.open()
        connection.engine.close(Error(condition=condition, description="not now"))

    return close


# ── The first attempt ──────────────────────────────────────────────────────────────────────────


async def test_the_first_url_that_works_is_used(peer: Peer, other: Peer) -> None:
    async with ferrymq.connect([peer.url, other.url]) as connection:
        assert str(connection.url) == peer.url
        assert connection.remote_container_id == "peer"
    assert other.connections == []


@pytest.mark.parametrize("form", ["list", "text"])
async def test_the_next_url_is_tried(peer: Peer, other: Peer, form: str) -> None:
    stop(peer)
    urls = [peer.url, other.url]
    async with ferrymq.connect(urls if form == "list" else ",".join(urls)) as connection:
        assert str(connection.url) == other.url
        await (await connection.sender("q")).send("1")
    assert [m.body for m in other.received["q"]] == ["1"]


def test_the_next_url_is_tried_by_the_blocking_client() -> None:
    with socket.socket() as unused, LocalBroker() as broker:
        # Nothing listens at this port.
        unused.bind(("127.0.0.1", 0))
        first = f"amqp://127.0.0.1:{unused.getsockname()[1]}"
        with blocking.connect([first, broker.url]) as connection:
            connection.sender("q").send("x")
            assert str(connection.url) == broker.url
            assert connection.options.reconnect is True


async def test_a_broker_that_does_not_serve_is_left(peer: Peer, other: Peer) -> None:
    peer.on[events.OpenReceived] = refusing("amqp:connection:forced")
    async with ferrymq.connect([peer.url, other.url]) as connection:
        assert connection.remote_container_id == "other"


async def test_the_urls_share_the_time(peer: Peer, other: Peer) -> None:
    peer.on[events.OpenReceived] = lambda *_: None
    other.on[events.OpenReceived] = lambda *_: None
    with pytest.raises(TimeoutError) as caught:
        await ferrymq.connect([peer.url, other.url], timeout=0.02)
    # Each has half of what was left when its turn came, and the last one all of it.
    assert re.search(f"broker {peer.url} .* within 0.01 s", str(caught.value))
    assert f"broker {other.url} " in str(caught.value)


async def test_the_error_has_all_reasons_and_no_password(peer: Peer, other: Peer) -> None:
    stop(peer)
    other.on[events.OpenReceived] = refusing("amqp:not-allowed")
    first = peer.url.replace("//", "//me:secret@")
    with pytest.raises(ferrymq.TransportError) as caught:
        await ferrymq.connect([first, other.url])
    shown = str(caught.value)
    assert f"none of the URLs works: cannot connect to {peer.url.replace('//', '//me@')}" in shown
    assert f"{other.url}: the peer closed the connection: amqp:not-allowed: not now" in shown
    assert "secret" not in shown


async def test_a_refused_login_ends_it(peer: Peer, other: Peer) -> None:
    peer.on[events.AuthenticationRequested] = lambda c, _: c.engine.reject_authentication(
        SaslCode.AUTH
    )
    with pytest.raises(ferrymq.AuthenticationError):
        await ferrymq.connect([peer.url, other.url])
    assert other.connections == []


async def test_it_reconnects_by_default(peer: Peer, other: Peer) -> None:
    urls = [peer.url, other.url]
    async with ferrymq.connect(urls) as connection:
        assert connection.recovery is not None
    async with ferrymq.connect(urls, reconnect=False) as connection:
        assert connection.recovery is None
    async with ferrymq.connect(urls[:1]) as connection:
        assert connection.recovery is None


# ── After a loss ───────────────────────────────────────────────────────────────────────────────


async def test_links_move_to_the_other_url(
    peer: Peer, other: Peer, policy: ReconnectPolicy, pauses: Pauses
) -> None:
    async with ferrymq.connect([peer.url, other.url], reconnect=policy) as connection:
        sender = await connection.sender("q", name="out")
        receiver = await connection.receiver("work", name="in")
        await sender.send("1")
        other.put("work", "moved")
        stop(peer)
        assert (await receiver.receive(timeout=10)).message.body == "moved"
        await sender.send("2")
        assert str(connection.url) == other.url
    assert [m.body for m in other.received["q"]] == ["2"]
    assert pauses.asked == [1]


async def test_the_url_that_worked_last_is_tried_first(
    peer: Peer, other: Peer, policy: ReconnectPolicy
) -> None:
    stop(peer)
    async with ferrymq.connect([peer.url, other.url], reconnect=policy) as connection:
        # The first one is there again.
        await peer.listen_again()
        sender = await connection.sender("q", name="out")
        other.connection.transport.abort()
        await other.seen(events.AttachReceived, 2)
        await sender.send("1", timeout=10)
        assert str(connection.url) == other.url
    assert peer.connections == []


async def test_pauses_grow_with_rounds_not_with_urls(
    peer: Peer, other: Peer, policy: ReconnectPolicy, pauses: Pauses
) -> None:
    tries: list[str] = []

    def refuse(name: str) -> Handler:
        def handle(connection: PeerConnection, event: events.OpenReceived) -> None:
            tries.append(name)
            if len(tries) == 6:
                peer.default(connection, event)
            else:
                connection.transport.abort()

        return handle

    async with ferrymq.connect([peer.url, other.url], reconnect=policy) as connection:
        sender = await connection.sender("q", name="out")
        peer.on[events.OpenReceived] = refuse("peer")
        other.on[events.OpenReceived] = refuse("other")
        peer.connection.transport.abort()
        await other.seen(events.AttachReceived)
        await sender.send("1", timeout=10)
    assert tries == ["peer", "other"] * 3
    assert pauses.asked == [1, 2, 4]


async def test_it_is_given_up_after_so_many_rounds(
    peer: Peer, other: Peer, policy: ReconnectPolicy, pauses: Pauses
) -> None:
    async with ferrymq.connect([peer.url, other.url], reconnect=policy) as connection:
        stop(peer)
        stop(other)
        with pytest.raises(ferrymq.ConnectionClosed) as caught:
            await connection.wait_closed(timeout=10)
    assert len(pauses.asked) == 5
    assert peer.url in str(caught.value.__cause__) and other.url in str(caught.value.__cause__)


async def test_a_broker_that_loses_the_links_again_is_left(
    peer: Peer, other: Peer, policy: ReconnectPolicy, pauses: Pauses
) -> None:
    async with ferrymq.connect([peer.url, other.url], reconnect=policy) as connection:
        sender = await connection.sender("q", name="out")
        peer.on[events.AttachReceived] = lambda c, _: c.transport.abort()
        peer.connection.transport.abort()
        await other.seen(events.AttachReceived)
        await sender.send("1", timeout=10)
    assert pauses.asked == [1]


# ── One broker or two ──────────────────────────────────────────────────────────────────────────

ONE = "6fdb2f2e-47a0-4f0b-9f4e-1c8c1d9f0c01"
TWO = "6fdb2f2e-47a0-4f0b-9f4e-1c8c1d9f0c02"


@pytest.mark.parametrize("properties", [{"ferrymq:cluster": ONE}, None, {"ferrymq:cluster": 7}])
async def test_members_of_a_cluster_are_one_broker(
    policy: ReconnectPolicy, properties: dict[str, object] | None
) -> None:
    async with (
        Peer(properties={"ferrymq:cluster": ONE}) as peer,
        Peer(properties=properties) as other,
        ferrymq.connect([peer.url, other.url], reconnect=policy) as connection,
    ):
        sender = await connection.sender("q", name="out")
        stop(peer)
        await other.seen(events.AttachReceived)
        await sender.send("1", timeout=10)


async def test_another_cluster_is_refused_after_a_loss(policy: ReconnectPolicy) -> None:
    async with (
        Peer(properties={"ferrymq:cluster": ONE}) as peer,
        Peer(properties={"ferrymq:cluster": TWO}) as other,
        ferrymq.connect([peer.url, other.url], reconnect=policy, container_id="me") as connection,
    ):
        sender = await connection.sender("q", name="out", durable=True)
        peer.on[events.DeliveryReceived] = lambda *_: None
        sending = asyncio.create_task(sender.send("1"))
        await peer.seen(events.DeliveryReceived)
        stop(peer)
        async with asyncio.timeout(10):
            with pytest.raises(ferrymq.ConnectionClosed) as caught:
                await sending
        shown = str(caught.value)
        for part in (peer.url, other.url, ONE, TWO):
            assert part in shown
        assert connection.closed
        # Nothing was compared with the wrong broker.
        assert other.count(events.AttachReceived) == 0


async def test_another_cluster_is_refused_while_connecting() -> None:
    async with (
        Peer(properties={"ferrymq:cluster": ONE}) as peer,
        Peer(properties={"ferrymq:cluster": TWO}) as other,
    ):
        peer.on[events.OpenReceived] = refusing("amqp:connection:forced")
        with pytest.raises(ferrymq.ConnectionClosed, match=f"{TWO}.*{ONE}"):
            await ferrymq.connect([peer.url, other.url])


# ── Workers ────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_takes_several_urls(peer: Peer, other: Peer) -> None:
    stop(peer)
    other.put("work", "one")
    handled: list[object] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        handled.append(delivery.message.body)
        worker.stop()

    worker = ferrymq.Worker([peer.url, other.url], "work", handle)
    async with asyncio.timeout(10):
        await worker.run()
    assert handled == ["one"]


async def test_a_send_is_repeated_at_the_other_url(
    peer: Peer, other: Peer, policy: ReconnectPolicy
) -> None:
    """Without a durable terminus, as the policy says: at least once."""
    async with ferrymq.connect([peer.url, other.url], reconnect=policy) as connection:
        sender = await connection.sender("q", name="out")
        peer.on[events.DeliveryReceived] = lambda *_: None
        sending = asyncio.create_task(sender.send(Message("in doubt")))
        await peer.seen(events.DeliveryReceived)
        stop(peer)
        async with asyncio.timeout(10):
            await sending
    assert [m.body for m in other.received["q"]] == ["in doubt"]
