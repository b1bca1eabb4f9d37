"""Members of a cluster: elections, losses of the lease, and what becomes of the messages."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import ferrymq
from ferrymq import ConnectionClosed, Message
from tests.broker.replication.lasting_producer import LastingProducer
from tests.broker.replication.member_cluster import LEASE, member_cluster


async def send(url: str, *bodies: bytes) -> None:
    async with ferrymq.connect(url) as client, client.sender("orders") as sender:
        for body in bodies:
            await sender.send(Message(body, durable=True))


async def receive(url: str, count: int) -> list[bytes]:
    found = []
    async with ferrymq.connect(url) as client, client.receiver("orders") as receiver:
        for _ in range(count):
            delivery = await receiver.receive()
            found.append(delivery.message.body)
            await delivery.accept()
    return found


async def test_the_first_member_becomes_the_leader_and_serves(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        assert (await one.get("/readyz"))[0] == 200
        await send(one.url, b"a", b"b")
        assert cluster.database.last().term == 1
        shown = json.loads((await one.get("/management/v1/replication/replication"))[1])
        assert (shown["role"], shown["term"], shown["elections"]) == ("leader", 1, 1)


async def test_a_stop_gives_the_lease_to_another_at_once(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        two = await cluster.start("two")
        await send(one.url, b"a", b"b")
        await cluster.stop("one")
        await cluster.leads("two")
        assert await receive(two.url, 2) == [b"a", b"b"]
        assert cluster.database.last().term == 2


async def test_a_leader_that_is_cut_off_is_suspended_and_goes_on(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        async with ferrymq.connect(one.url) as client, client.sender("orders") as sender:
            await sender.send(Message(b"a", durable=True))
            one.journal.reachable = False
            await sender.send(Message(b"b"))
            await cluster.time.advance(LEASE)
            assert one.role == "suspended"
            sending = asyncio.create_task(sender.send(Message(b"c")))
            await cluster.time.turn()
            assert (await one.get("/readyz"))[0] == 503
            assert (await one.get("/management/v1/queues"))[0] == 503
            assert not sending.done()
            one.journal.reachable = True
            await cluster.time.until(sending.done, seconds=LEASE)
            await sending
        assert (one.role, cluster.database.term) == ("leader", 1)
        assert (await one.get("/readyz"))[0] == 200
        shown = json.loads((await one.get("/management/v1/replication/replication"))[1])
        assert shown["suspended-seconds"] > 0


async def test_another_takes_over_from_a_leader_that_is_cut_off(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        two = await cluster.start("two")
        await send(one.url, b"a", b"b")
        async with (
            ferrymq.connect(one.url, reconnect=False, follow_redirects=False) as client,
            client.sender("orders") as sender,
        ):
            one.journal.reachable = False
            durable = asyncio.create_task(sender.send(Message(b"c", durable=True)))
            await cluster.time.advance(LEASE * 1.5)
            late = asyncio.create_task(sender.send(Message(b"d")))
            await cluster.leads("two")
            one.journal.reachable = True
            await cluster.time.until(lambda: one.role == "standby", seconds=LEASE)
            ends = await asyncio.gather(durable, late, return_exceptions=True)
        assert [type(end) for end in ends] == [ConnectionClosed, ConnectionClosed]
        assert await receive(two.url, 2) == [b"a", b"b"]
        await redirected(one.url, two.url)


async def redirected(url: str, leader: str) -> None:
    """Check that a standby sends its clients to the leader."""
    with pytest.raises(ConnectionClosed) as caught:
        async with (
            ferrymq.connect(url, follow_redirects=False) as client,
            client.sender("orders"),
        ):
            pass
    assert caught.value.error is not None
    assert leader in str(caught.value.error.description)


async def test_a_planned_switch_over(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        two = await cluster.start("two")
        await cluster.time.advance(LEASE / 3)
        await send(one.url, b"a", b"b")
        async with (
            ferrymq.connect(one.url, reconnect=False, follow_redirects=False) as client,
            client.receiver("orders") as receiver,
        ):
            assert (await receiver.receive()).message.body == b"a"
            cluster.database.name_successor("two")
            with pytest.raises(ConnectionClosed) as caught:
                while True:
                    await receiver.receive()
        assert caught.value.error is not None
        assert caught.value.error.condition == "amqp:connection:redirect"
        assert two.url in str(caught.value.error.description)
        await cluster.leads("two")
        assert await receive(two.url, 2) == [b"a", b"b"]
        await cluster.time.until(lambda: one.role == "standby")
        await redirected(one.url, two.url)


async def test_a_fence_ends_the_term(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        await send(one.url, b"a")
        cluster.database.fence()
        await cluster.time.until(lambda: one.role == "standby")
        await cluster.time.until(lambda: cluster.database.term == 3, seconds=10 * LEASE)
        await cluster.leads("one")
        assert await receive(one.url, 1) == [b"a"]


async def test_what_is_read_again_counts_for_the_next_leader(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        two = await cluster.start("two")
        cluster.declare("two", "read-as-a-standby")
        assert "read-as-a-standby" not in two.nodes
        cluster.declare("one", "read-as-the-leader")
        assert "read-as-the-leader" in one.nodes
        await cluster.stop("one")
        await cluster.leads("two")
        assert two.nodes >= {"read-as-a-standby", "read-as-the-leader"}


async def test_ports_stay(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        url = one.server.monitoring_url
        await cluster.leads("one")
        assert one.server.monitoring_url == url


async def test_the_open_tells_the_cluster_and_the_term(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        async with ferrymq.connect(one.url) as client:
            properties = client.remote_properties
        assert properties["ferrymq:cluster"] == cluster.database.cluster
        assert properties["ferrymq:term"] == 1
        assert "ferrymq:broker-id" not in properties


async def test_producers_get_no_credit_while_nothing_can_be_appended(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        async with ferrymq.connect(one.url) as client, client.sender("orders") as sender:
            one.journal.reachable = False
            appends = one.journal.appends
            sending = asyncio.create_task(sender.send(Message(b"a", durable=True)))
            await cluster.time.until(lambda: one.journal.appends > appends)
            await cluster.time.until(lambda: one.alarms, seconds=LEASE / 2)
            assert one.alarms == {"replication"}
            assert (one.role, sending.done()) == ("leader", False)
            one.journal.reachable = True
            await cluster.time.until(sending.done, seconds=2.0)
            await sending
        assert one.alarms == set()


async def test_the_end_of_a_suspended_leader_does_not_wait_for_clients(tmp_path: Path) -> None:
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        async with (
            ferrymq.connect(one.url, reconnect=False, follow_redirects=False) as client,
            client.receiver("orders") as receiver,
        ):
            one.journal.reachable = False
            await cluster.time.advance(LEASE)
            with pytest.raises(ConnectionClosed, match="this broker stops"):
                await asyncio.gather(cluster.stop("one"), receiver.receive())


@pytest.mark.parametrize("gated", [True, False])
async def test_an_old_leader_sends_nothing(tmp_path: Path, gated: bool) -> None:
    """Without the gate for output this test sees what the gate prevents."""
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        await cluster.start("two")
        await send(one.url, b"a")
        async with ferrymq.connect(one.url, reconnect=False, follow_redirects=False) as client:
            one.journal.reachable = False
            if not gated:
                one.server.server.broker.output.gate = None
            await cluster.time.advance(LEASE + 1.0)
            await cluster.leads("two")
            received = one.bytes_received()
            late = asyncio.create_task(receive_from(client))
            # The old leader gets the client's frames before it learns of the new one.
            await cluster.time.until(
                late.done if not gated else lambda: one.bytes_received() > received
            )
            one.journal.reachable = True
            await cluster.time.until(lambda: one.role == "standby", seconds=LEASE)
            end = (await asyncio.gather(late, return_exceptions=True))[0]
    assert isinstance(end, ConnectionClosed) if gated else end == b"a"


async def receive_from(client: ferrymq.Connection) -> bytes:
    async with client.receiver("orders") as receiver:
        body: bytes = (await receiver.receive()).message.body
        return body


async def test_exactly_once_over_a_switch_over_and_a_loss(tmp_path: Path) -> None:
    """A client with all URLs goes on by itself; nothing is lost, and nothing doubled."""
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        two = await cluster.start("two")
        producer = LastingProducer([one.url, two.url])
        sent = producer.sent
        producing = asyncio.create_task(producer.run())
        await cluster.time.until(lambda: producing.done() or len(sent) > 20)
        cluster.database.name_successor("two")
        await cluster.leads("two")
        count = len(sent)
        await cluster.time.until(lambda: len(sent) > count + 20)
        await cluster.time.until(lambda: one.role == "standby")
        two.journal.reachable = False
        await cluster.time.until(lambda: one.role == "leader", seconds=LEASE * 2)
        two.journal.reachable = True
        await cluster.time.until(lambda: two.role == "standby", seconds=LEASE)
        count = len(sent)
        await cluster.time.until(lambda: len(sent) > count + 20)
        producer.is_over = True
        await producing
        assert await receive(one.url, len(sent)) == sent
        assert cluster.database.term == 3
