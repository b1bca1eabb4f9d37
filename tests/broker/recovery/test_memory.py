"""Recovery has no more of a store in memory than a broker that runs may have."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Store
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.store.changes import LAST, Changes
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from tests.broker.store.kit import ManualExecutor

MIB = 1 << 20
PAGE_OUT = 2 * MIB
# What all messages of a store have together; what recovery may have at most, of messages and all
# that goes with them.
TOTAL = 30 * MIB
MOST = PAGE_OUT + 8 * MIB


def config(path: Path) -> Config:
    return Config.model_validate(
        {
            "listener": [Listener(url="amqp://127.0.0.1:0")],
            "store": Store(path=path, page_out=PAGE_OUT, segment_bytes=8 * MIB),
            "topic": [{"name": "news"}],
            "queue": [{"name": name} for name in "abc"],
            "exchange": [
                {"name": "all", "routing": "fanout", "binding": [{"to": name} for name in "abc"]}
            ],
            "stream": [{"name": "log"}],
        }
    )


@contextmanager
def counting() -> Iterator[list[int]]:
    """Counts the bytes that are had at most inside the block beside what there was before."""
    gc.collect()
    peak: list[int] = []
    tracemalloc.start()
    try:
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def connected(server: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with (
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        for name in ("one", "two"):
            await management.request("CREATE", "subscription", f"news::{name}", {})
        yield connection


def messages_of(server: BrokerServer) -> dict[str, int]:
    nodes = server.broker.default.nodes
    counts = {name: int(nodes[name].message_count()) for name in ("a", "b", "c", "log")}
    topic = nodes["news"]
    assert isinstance(topic, Topic)
    return counts | {one.name: int(one.queue.message_count()) for one in topic.subscriptions()}


@pytest.mark.parametrize(
    ("address", "size", "expected", "way"),
    [
        ("a", 20_000, ["a"], "plain"),
        ("a", 4 * MIB, ["a"], "plain"),
        ("news", 20_000, ["one", "two"], "plain"),
        ("news", 20_000, ["one", "two"], "transactions"),
        ("all", 20_000, ["a", "b", "c"], "plain"),
        ("log", 20_000, ["log"], "plain"),
    ],
    ids=["queue", "large messages", "topic", "transactions", "exchange", "stream"],
)
async def test_recovery_leaves_on_disk_what_is_too_much(
    tmp_path: Path, address: str, size: int, expected: list[str], way: str
) -> None:
    count = TOTAL // size
    async with BrokerServer(config(tmp_path)) as server, connected(server) as connection:
        sender = await connection.sender(address)
        body = bytes(size)
        for first in range(0, count, 50):
            number = min(50, count - first)
            if way == "transactions":
                async with connection.transaction() as txn:
                    for _ in range(number):
                        await txn.send(sender, Message(body, durable=True))
            else:
                await asyncio.gather(
                    *(sender.send(Message(body, durable=True)) for _ in range(number))
                )
    async with AsyncExitStack() as stack:
        with counting() as peak:
            again = await stack.enter_async_context(BrokerServer(config(tmp_path)))
        found = messages_of(again)
        assert found == {name: count if name in expected else 0 for name in found}
    # A message of its own is had three times while it is made of its record.
    assert peak[0] < MOST + (3 * size if size > MIB else 0)


@pytest.mark.parametrize("way", ["large", "small", "drops"])
def test_a_long_journal_is_applied_part_by_part(tmp_path: Path, way: str) -> None:
    """Nothing of it was applied when the process was killed."""
    executor = ManualExecutor()
    store = DurableStore.open(tmp_path, Changes(), StoreOptions(segment_bytes=64 * MIB))
    changes = store.changes
    store.start(executor, changes.settle, pytest.fail, lambda on: None)
    number = 0
    for _ in range(40):
        for _ in range(15 if way == "large" else 5_000):
            number += 1
            changes.put(5, 1, number, bytes(60_000 if way == "large" else 0))
            if way == "drops":
                changes.drop(5, 1, number)
        store.push()
        assert executor.make(executor.writes)
    assert store.applied == 0
    store._records.close()
    store._journal.close()
    store._folder.unlock()
    with counting() as peak:
        again = DurableStore.open(tmp_path, Changes())
    assert again.changes.stable == 40
    assert again.count() == (0 if way == "drops" else number) + 1
    again.changes.drop_range(5, 1, 0, LAST)
    again.close()
    assert peak[0] < 24 * MIB
