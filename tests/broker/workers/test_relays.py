"""Connections with TLS and in WebSockets, which the worker that accepts them relays."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from tests.broker.tls.pki import Pki
from tests.broker.workers.several import (
    HOSTS,
    TENANT,
    WorkerBroker,
    descriptors,
    opening,
    wait_until,
)
from tests.raw.frames import AMQP_HEADER, attach_frame, begin_frame, flow_frame, source, target
from tests.raw.process import MIB
from tests.raw.values import string, uint

CONFIG = """
[tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[[listener]]
url = "amqp://127.0.0.1:0"
upgrade-tls = "offered"
[[listener]]
url = "amqps://127.0.0.1:0"
[[listener]]
url = "ws://127.0.0.1:0"
[[listener]]
url = "wss://127.0.0.1:0"
[[listener]]
url = "any://127.0.0.1:0"
{tenant}
"""
# How a client connects, and the place of the listener for it.
TRANSPORTS = {"amqp": 0, "upgrade": 0, "amqps": 1, "ws": 2, "wss": 3}
# With `any` the same listener has all of them.
ANY = 4
# The kinds with the bytes of which the worker that accepts has to do.
RELAYED = [name for name in TRANSPORTS if name != "amqp"]

ways = pytest.mark.parametrize(
    ("acceptor", "server"), [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["00", "01", "10", "11"]
)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """The certificate of the broker."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def config(pki: Pki) -> str:
    """The configuration of the broker, with a listener for each transport."""
    return CONFIG.format(folder=pki.folder, tenant=TENANT)


async def connect(
    broker: WorkerBroker, pki: Pki, how: str, acceptor: int, server: int, listener: int = -1
) -> ferrymq.Connection:
    """Connect in one of the ways, at one worker to the virtual host of the other."""
    listener = TRANSPORTS[how] if listener < 0 else listener
    more: dict[str, Any] = {}
    if how not in ("amqp", "ws"):
        more["ssl"] = pki.trusting()
    scheme = how
    if how == "upgrade":
        scheme = "amqp"
        more["upgrade_tls"] = True
    with broker.accepting(acceptor, listener):
        return await ferrymq.connect(broker.hostname_url(server, scheme, listener), **more)


async def exchange(connection: ferrymq.Connection, address: str, sizes: list[int]) -> None:
    """Send a message of each size, and receive it."""
    sender = await connection.sender(address)
    receiver = await connection.receiver(address)
    for size in sizes:
        await sender.send(Message(body=os.urandom(size)))
        delivery = await receiver.receive(timeout=30)
        body = delivery.message.body
        assert isinstance(body, bytes) and len(body) == size
        await delivery.accept()


@ways
@pytest.mark.parametrize("how", list(TRANSPORTS))
async def test_messages_of_all_sizes(
    broker: WorkerBroker, pki: Pki, address: str, how: str, acceptor: int, server: int
) -> None:
    async with await connect(broker, pki, how, acceptor, server) as connection:
        await exchange(connection, address, [0, 1, 16_384, 16_385, 65_537, 1_000_000])


@ways
@pytest.mark.parametrize("how", ["amqp", "amqps", "ws", "wss"])
async def test_the_listener_that_takes_any_protocol(
    broker: WorkerBroker, pki: Pki, address: str, how: str, acceptor: int, server: int
) -> None:
    async with await connect(broker, pki, how, acceptor, server, ANY) as connection:
        await exchange(connection, address, [1, 100_000])


@pytest.mark.parametrize("how", ["amqps", "wss"])
async def test_large_messages_both_ways(
    broker: WorkerBroker, pki: Pki, address: str, how: str
) -> None:
    """Many more bytes at once than the relay keeps: its memory stays where it was."""
    body = os.urandom(10 * MIB)
    async with await connect(broker, pki, how, 0, 1) as connection:
        await exchange(connection, address, [10 * MIB])
        sender = await connection.sender(address)
        receiver = await connection.receiver(address, credit=4)
        for _ in range(3):
            await sender.send(Message(body=body))
        for _ in range(3):
            delivery = await receiver.receive(timeout=60)
            assert delivery.message.body == body
            await delivery.accept()


@pytest.mark.parametrize("how", ["amqps", "wss"])
async def test_a_client_that_does_not_read(
    broker: WorkerBroker, pki: Pki, address: str, how: str
) -> None:
    """The relay keeps little of what the client does not take; the rest waits in its queue."""
    count, size = 64, MIB
    async with await connect(broker, pki, "amqp", 1, 1) as other:
        sender = await other.sender(address)
        for _ in range(count):
            await sender.send(Message(body=bytes(size)))
        relay = broker.pids[0]
        async with await connect(broker, pki, how, 0, 1) as slow:
            receiver = await slow.receiver(address, credit=0)
            transport = slow._transport.wire._transport  # type: ignore[attr-defined]
            before = memory(relay)
            transport.pause_reading()
            receiver.add_credit(count)
            # What the server can do in this time is far more than the bound.
            await exchange(other, f"{address}-other", [100] * 50)
            await asyncio.sleep(1)
            assert memory(relay) - before < 8 * MIB
            transport.resume_reading()
            for _ in range(count):
                await (await receiver.receive(timeout=30)).accept()


@pytest.mark.parametrize("how", RELAYED)
async def test_the_worker_that_serves_hears_of_the_end(
    broker: WorkerBroker, pki: Pki, how: str
) -> None:
    """A client that is gone without a word."""
    connection = await connect(broker, pki, how, 0, 1)
    name = connection.container_id
    peer = next(
        part.removeprefix("peer=")
        for line in broker.log.splitlines()
        if f"container={name}" in line
        for part in line.split()
        if part.startswith("peer=")
    )
    connection._transport.wire._transport.abort()  # type: ignore[attr-defined]
    await asyncio.to_thread(
        wait_until,
        lambda: any(
            f"peer={peer}" in line and "connection lost" in line and "worker=1" in line
            for line in broker.log.splitlines()
        ),
        "the other worker has not heard of it",
    )
    await connection.close()


def test_no_descriptor_is_left(broker: WorkerBroker, pki: Pki) -> None:
    """After connections that end in all ways: closed, reset, in the middle of the handshake."""
    context = pki.trusting()

    def one(listener: int, how: int) -> None:
        plain = socket.create_connection(("127.0.0.1", broker.ports[listener]), 20)
        raw = context.wrap_socket(plain, server_hostname="127.0.0.1") if listener else plain
        raw.sendall(AMQP_HEADER + opening(HOSTS[1]) + (begin_frame() if how else b""))
        if how == 0:
            raw.recv(8)
        elif how == 1:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()

    for listener in (0, 1):
        one(listener, 0)
    counts = settled(broker)
    for at in range(200):
        one(at % 2, at // 2 % 3)
    wait_until(lambda: settled(broker) <= counts, f"before: {counts}, after: {settled(broker)}")
    broker.check()


def settled(broker: WorkerBroker) -> list[int]:
    """The descriptors of the workers."""
    return [descriptors(pid) for pid in broker.pids]


def memory(pid: int) -> int:
    """What a process has of the machine's memory, in bytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
async def test_a_client_that_never_reads_the_end(
    broker: WorkerBroker, pki: Pki, address: str
) -> None:
    """The server ends the connection for a mistake; the relay does not wait for ever."""
    async with await connect(broker, pki, "amqp", 1, 1) as other:
        sender = await other.sender(address)
        for _ in range(16):
            await sender.send(Message(body=bytes(MIB)))
        before = settled(broker)
        with broker.accepting(0, 1):
            plain = socket.create_connection(("127.0.0.1", broker.ports[1]), 20)
            slow = pki.trusting().wrap_socket(plain, server_hostname="127.0.0.1")
        where = source(string(address))
        attach = attach_frame("r", 0, receiver=True, source=where, target=target())
        credit = flow_frame(uint(0), uint(16), uint(0))
        slow.sendall(AMQP_HEADER + opening(HOSTS[1]) + begin_frame() + attach + credit)
        await exchange(other, f"{address}-other", [100] * 20)
        # A frame that is none.
        slow.sendall(b"\0\0\0\7nothing")
        await asyncio.to_thread(
            wait_until, lambda: settled(broker) <= before, "the relay is still there"
        )
        slow.close()


@pytest.mark.crash
@pytest.mark.parametrize("victim", [0, 1], ids=["that relays", "that serves"])
async def test_a_worker_of_a_relay_is_killed(
    config: str, pki: Pki, address: str, victim: int
) -> None:
    """The client hears of it, and connects again."""
    with WorkerBroker(config) as broker:
        connection = await connect(broker, pki, "amqps", 0, 1)
        await exchange(connection, address, [1])
        await asyncio.to_thread(broker.kill_worker, victim)
        with pytest.raises(ferrymq.ConnectionClosed):
            await connection.wait_closed(timeout=20)
        await asyncio.to_thread(broker.wait_for_worker, victim)
        async with await connect(broker, pki, "amqps", 0, 1) as again:
            await exchange(again, f"{address}-again", [1])
