"""A stream whose partitions are on several brokers: processes, and clients nobody here wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import pytest
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection, LinkDetached

import ferrymq
from ferrymq import Message
from tests.interop.broker_process import BrokerProcess
from tests.interop.brokers.process import free_ports
from tests.interop.rhea_client import run
from tests.support.lanes import amount

KEYS = 40


def configured(ports: list[int], number: int, folder: Path) -> str:
    """The configuration of one of the brokers on these ports; each has two partitions."""
    entries = [f"{2 * at}-{2 * at + 1} amqp://127.0.0.1:{port}" for at, port in enumerate(ports)]
    return f"""
    advertise = "amqp://127.0.0.1:{ports[number]}"
    [store]
    path = "{folder / str(number)}"
    [[stream]]
    name = "orders"
    partitions-on = {entries}
    """


def process(ports: list[int], number: int, folder: Path) -> BrokerProcess:
    broker = BrokerProcess(configured(ports, number, folder))
    broker.port = ports[number]
    return broker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    ports, folder = free_ports(2), tmp_path_factory.mktemp("spread")
    with ExitStack() as stack:
        yield [stack.enter_context(process(ports, number, folder)) for number in range(2)]


# -- Proton and rhea ---------------------------------------------------------------------------


@pytest.mark.parametrize("sends", [True, False])
def test_proton_is_told_where_a_partition_is(brokers: list[BrokerProcess], sends: bool) -> None:
    first, second = brokers
    connection = BlockingConnection(first.url, timeout=30)
    try:
        with pytest.raises(LinkDetached) as caught:
            if sends:
                connection.create_sender("orders::3")
            else:
                connection.create_receiver("orders::3")
        condition = caught.value.link.remote_condition
        assert condition.name == "amqp:link:redirect"
        info = condition.info
    finally:
        connection.close()
    assert (info["hostname"], info["network-host"]) == ("127.0.0.1", "127.0.0.1")
    assert (info["port"], info["address"]) == (second.port, "orders::3")
    # What it is told is enough to get there.
    there = BlockingConnection(f"amqp://{info['network-host']}:{int(info['port'])}", timeout=30)
    try:
        there.create_sender(info["address"]).send(ProtonMessage(body="x"))
    finally:
        there.close()


def test_rhea_is_told_where_a_partition_is(brokers: list[BrokerProcess]) -> None:
    first, second = brokers
    result = run(first, "redirected", address="orders::2")
    assert result["condition"] == "amqp:link:redirect"
    assert result["info"]["port"] == second.port
    assert result["info"]["address"] == "orders::2"


# -- our clients --------------------------------------------------------------------------------


async def records(connection: ferrymq.Connection, partition: int, count: int) -> list[object]:
    """The bodies of the first records of a partition, in order."""
    found: list[object] = []
    address = f"orders::{partition}"
    async for chunk in connection.chunk_reader(address, start=0, until=count):
        found += [Message.decode(chunk.payload(at)).body for at in range(len(chunk))]
    return found


async def ends(connection: ferrymq.Connection) -> dict[int, int]:
    """The next offsets of the partitions that a broker has."""
    async with connection.management() as management:
        found = await management.request("RANGES", "stream", body={"names": ["orders"]})
    streams = found.map()["streams"]
    assert isinstance(streams, list)
    return {one["partition"]: one["next-offset"] for one in streams[0]["partitions"]}


@pytest.mark.crash
async def test_brokers_are_killed_and_one_is_added(tmp_path: Path) -> None:
    """Each key stays in order, and no message is lost or comes twice: with senders that deliver
    exactly once, while brokers are killed in turn. Then a third broker adds partitions."""
    rounds = amount(2, 12)
    ports = free_ports(3)
    running = [process(ports[:2], number, tmp_path) for number in range(2)]
    expected: dict[int, list[str]] = {number: ["begin"] for number in range(4)}
    policy = ferrymq.ReconnectPolicy(initial=0.05, maximum=0.2)
    with ExitStack() as stack:
        for broker in running:
            stack.enter_context(broker)
        async with ferrymq.connect(
            running[0].url, container_id="till", reconnect=policy
        ) as connection:
            sender = await connection.partitioned_sender("orders", name="out", exactly_once=True)
            # The first connection to a broker is not made again.
            for number in range(4):
                annotations = {"x-opt-partition": number}
                await sender.send(Message("begin", message_annotations=annotations))
            for turn in range(rounds):
                batch = [(f"key-{number}", f"{turn}:{number}") for number in range(KEYS)]
                sending = asyncio.gather(
                    *(sender.send(Message(body, group_id=key)) for key, body in batch)
                )
                await asyncio.sleep(0)
                broker = running[turn % 2]
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
                await asyncio.wait_for(sending, 60)
                for key, body in batch:
                    expected[crc32(key.encode()) % 4].append(body)
            for number, bodies in expected.items():
                assert await records(connection, number, len(bodies)) == bodies
        # The third broker comes first; then the others learn of it.
        third = stack.enter_context(process(ports, 2, tmp_path))
        for number, broker in enumerate(running):
            broker.stop()
            running[number] = stack.enter_context(process(ports, number, tmp_path))
        async with ferrymq.connect(third.url) as connection:
            sender = await connection.partitioned_sender("orders")
            assert sender.partitions == 6
            await sender.send_many(["x"] * 12)
            for number, bodies in expected.items():
                assert await records(connection, number, len(bodies)) == bodies
        found: dict[int, int] = {}
        for broker in (*running, third):
            async with ferrymq.connect(broker.url) as connection:
                found |= await ends(connection)
        assert found == {n: len(expected.get(n, ())) + 2 for n in range(6)}


def test_a_broker_does_not_start_if_a_partition_would_move(tmp_path: Path) -> None:
    ports = free_ports(2)
    with (
        process(ports, 0, tmp_path) as broker,
        ferrymq.blocking.connect(broker.url) as connection,
    ):
        connection.sender("orders::1").send("x")
    text = configured(ports, 0, tmp_path).replace("0-1 ", "0 ").replace("2-3 ", "1-3 ")
    moved = BrokerProcess(text)
    moved.port = ports[0]
    with pytest.raises(AssertionError, match="did not say"):
        moved.start()
    assert f"with partition 1 at amqp://127.0.0.1:{ports[1]}" in moved.log
