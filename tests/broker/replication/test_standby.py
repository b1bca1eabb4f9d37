"""A standby serves nobody, says who does, and shows the cluster."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pika
import pytest
from pika.exceptions import AMQPConnectionError

import ferrymq
from ferrymq import AuthenticationError, ConnectionClosed
from ferrymq_broker.config import Config
from ferrymq_broker.replication.shared_journal import Lease
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.server.cluster_role import ClusterRole
from ferrymq_broker.server.member_view import MemberView
from tests.support.shared_journal import MemoryDatabase, MemorySharedJournal

LEADER = Lease(3, "one", "amqp://one.example:5671", 9.0, "")
NOBODY = Lease(3, "", "", -1.0, "")


def member_view(lease: Lease) -> MemberView:
    """What the member `two` knows; nobody renews it."""
    loop = asyncio.get_running_loop()
    journal = MemorySharedJournal(MemoryDatabase(loop.time), loop)
    view = MemberView(journal, "two", "c", 3.0, lambda: 0.0, lambda seconds, call: lambda: None)
    view.note(lease)
    return view


def standby(lease: Lease, **settings: object) -> BrokerServer:
    """The server of a standby."""
    view = member_view(lease)
    config = {"listener": [{"url": "amqp://127.0.0.1:0"}], "http": {"url": "http://127.0.0.1:0"}}
    return BrokerServer(
        Config.model_validate(config | settings),
        role=ClusterRole("", view, view.standby_reason, refusal=view.refusal),
    )


def with_user(url: str, user: str) -> str:
    return url.replace("://", f"://{user}@")


async def closed_with(url: str) -> ConnectionClosed:
    """The error with which a connection is closed after it was opened."""
    with pytest.raises(ConnectionClosed) as caught:
        async with (
            ferrymq.connect(url, follow_redirects=False) as client,
            client.sender("orders") as sender,
        ):
            await sender.send(ferrymq.Message(b"x"))
    return caught.value


@pytest.mark.spec("2.8.16")
async def test_clients_are_sent_to_the_leader() -> None:
    async with standby(LEADER) as server:
        found = await closed_with(server.url)
    assert found.error is not None
    assert found.error.condition == "amqp:connection:redirect"
    assert found.error.info == {
        "hostname": "one.example",
        "network-host": "one.example",
        "port": 5671,
    }
    assert "the leader is one at amqp://one.example:5671" in str(found)


@pytest.mark.parametrize("lease", [NOBODY, LEADER._replace(address="")])
async def test_clients_are_only_closed_if_no_address_is_known(lease: Lease) -> None:
    async with standby(lease) as server:
        found = await closed_with(server.url)
    assert found.error is not None
    assert found.error.condition == "amqp:connection:forced"
    assert "this broker is a standby" in str(found)


async def test_only_users_learn_where_the_leader_is() -> None:
    security = {"users": {"alice": "secret"}}
    async with standby(LEADER, security=security) as server:
        with pytest.raises(AuthenticationError):
            async with ferrymq.connect(with_user(server.url, "alice:wrong")):
                pass
        with pytest.raises(ConnectionClosed, match=r"one\.example"):
            async with (
                ferrymq.connect(
                    with_user(server.url, "alice:secret"), follow_redirects=False
                ) as client,
                client.sender("orders"),
            ):
                pass


async def test_clients_of_amqp_0_9_1_are_closed() -> None:
    def connect(port: int) -> None:
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))

    async with standby(LEADER, personality={"name": "rabbitmq"}) as server:
        with pytest.raises(AMQPConnectionError, match=r"\(320\) .* at amqp://one\.example:5671"):
            await asyncio.to_thread(connect, server.port)


async def test_http_shows_the_cluster_and_nothing_else() -> None:
    async with standby(LEADER) as server, aiohttp.ClientSession() as session:
        url = server.monitoring_url

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"{url}{path}") as response:
                return response.status, await response.text()

        assert (await get("/livez"))[0] == 200
        status, text = await get("/readyz")
        assert status == 503
        assert json.loads(text)["reason"] == "standby of one, 0 batches behind"
        status, text = await get("/management/v1/queues")
        assert status == 503
        assert text == "standby of one, 0 batches behind\n"
        status, text = await get("/management/v1/replication/replication")
        assert status == 200, text
        shown = json.loads(text)
        assert (shown["role"], shown["term"], shown["leader"]) == ("standby", 3, "one")
        text = (await get("/metrics"))[1]
        assert 'ferrymq_replication_role{role="standby"} 1.0' in text
        assert "ferrymq_replication_term 3.0" in text
        assert "ferrymq_replication_lease_seconds 9.0" in text
        async with session.put(f"{url}/management/v1/replication/x", json={}) as response:
            assert response.status == 503
