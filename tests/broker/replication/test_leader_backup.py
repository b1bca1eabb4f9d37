"""A backup of a leader is the store of a single broker, with everything that was acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import ferrymq
from ferrymq import Message
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.tables import ENTRY
from tests.broker.replication.member_cluster import member_cluster
from tests.broker.test_backups import backup


async def test_a_backup_while_messages_come(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")
        async with ferrymq.connect(one.url) as client, client.sender("orders") as sender:
            for number in range(50):
                await sender.send(Message(b"%d" % number, durable=True))

            async def go_on() -> None:
                for number in range(50, 100):
                    await sender.send(Message(b"%d" % number, durable=True))

            going = asyncio.ensure_future(go_on())
            async with client.management() as management:
                state = await backup(management, target)
            await going
    assert state["state"] == "done", state
    store = DurableStore.open(target, Changes())
    assert 50 <= sum(1 for _ in store.scan(ENTRY)) <= 100
    store.close()
