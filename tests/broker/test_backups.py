"""Backups of a broker that runs: all that was acknowledged before, nothing torn, nobody waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ferrymq
from ferrymq import ManagementClient, Message
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq_broker.config import Config, Listener, Store, VirtualHost
from ferrymq_broker.management.errors import ManagementError
from ferrymq_broker.server import BrokerServer

# Small, so that there are many, and some are applied and used again meanwhile.
SEGMENT = 64 * 1024


def config(path: Path | None) -> Config:
    return Config(
        listener=[Listener(url="amqp://127.0.0.1:0")],
        store=Store(path=path, segment_bytes=SEGMENT),
        virtual_host=[VirtualHost(name="tenant")],
    )


async def messages_in(path: Path) -> list[object]:
    """The bodies in the queue of a store, in their order."""
    async with BrokerServer(config(path)) as server, ferrymq.connect(server.url) as connection:
        queue = server.broker.default.find("q")
        assert queue is not None
        count = queue.describe()["available"]
        assert isinstance(count, int)
        receiver = await connection.receiver("q", credit=1000)
        found = []
        for _ in range(count):
            delivery = await receiver.receive(timeout=10)
            found.append(delivery.message.body)
            await delivery.accept()
        return found


async def backup(management: ManagementClient, target: Path) -> dict[str, object]:
    """Make one and wait for it."""
    await management.request("BACKUP", "store", "store", {"target": str(target)})
    async with asyncio.timeout(20):
        while True:
            state = (await management.read("store", "store"))["backup"]
            assert isinstance(state, dict)
            if state["state"] != "running":
                return state
            await asyncio.sleep(0.001)


async def test_backups_under_load(tmp_path: Path) -> None:
    acknowledged = 0
    stop = asyncio.Event()
    # Set as often as a large message was acknowledged.
    further = asyncio.Event()

    async def produce(connection: ferrymq.Connection) -> None:
        nonlocal acknowledged
        sender = await connection.sender("q")
        number = 0
        while not stop.is_set():
            for future in [
                sender.send_nowait(Message(body=number + more, durable=True)) for more in range(50)
            ]:
                await future
                acknowledged += 1
            number += 50
            # What is large fills segments.
            await sender.send(Message(body=b"x" * 20_000, durable=True))
            further.set()

    known: list[tuple[Path, int, int]] = []
    async with (
        BrokerServer(config(tmp_path / "data")) as server,
        ferrymq.connect(server.url) as producing,
        ferrymq.connect(server.url, desired_capabilities=[LINK_PAIR]) as asking,
        asking.management() as management,
    ):
        producer = asyncio.create_task(produce(producing))
        for number in range(5):
            # Some segments further on.
            wanted = acknowledged + 500
            while acknowledged < wanted:
                further.clear()
                await further.wait()
            target = tmp_path / f"backup-{number}"
            before = acknowledged
            state = await backup(management, target)
            assert state["state"] == "done", state
            known.append((target, before, acknowledged))
        stop.set()
        await producer
        assert server.broker.store is not None and server.broker.store.applied > 0
    for target, before, after in known:
        bodies = [body for body in await messages_in(target) if isinstance(body, int)]
        assert bodies == list(range(len(bodies)))
        # Those under way when it ended may be in it or not.
        assert before <= len(bodies) <= after + 50


async def test_what_cannot_be_backed_up(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    async with (
        BrokerServer(config(tmp_path / "data")) as server,
        ferrymq.connect(server.url, desired_capabilities=[LINK_PAIR]) as connection,
        connection.management() as management,
    ):
        for target, reason in (
            ("relative", "not an absolute path"),
            (str(tmp_path / "full"), "is not empty"),
        ):
            with pytest.raises(ManagementError, match=reason):
                await management.request("BACKUP", "store", "store", {"target": target})
        with pytest.raises(ManagementError, match="target is missing"):
            await management.request("BACKUP", "store", "store", {})
        state = await backup(management, Path("/proc/nowhere"))
        assert state["state"] == "failed" and state["reason"]
        # One that failed is in nobody's way.
        assert (await backup(management, tmp_path / "good"))["state"] == "done"


async def test_tenants_have_nothing_to_do_with_the_disk(tmp_path: Path) -> None:
    async with (
        BrokerServer(config(tmp_path / "data")) as server,
        ferrymq.connect(
            server.url, hostname="vhost:tenant", desired_capabilities=[LINK_PAIR]
        ) as connection,
        connection.management() as management,
    ):
        with pytest.raises(ManagementError, match="unknown entity type 'store'"):
            await management.read("store", "store")
