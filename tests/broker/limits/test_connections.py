"""How many connections there may be: of all, of an address, of a user; none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ferrymq.engine.sasl import Anonymous, Plain
from ferrymq_broker.config.limits import Limits
from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.model import Config
from ferrymq_broker.server.server import BrokerServer
from tests.broker.harness import Client, Network
from tests.support.known_users import KnownUsers

LOCAL = Listener(url="amqp://127.0.0.1:0")
HEADER = b"AMQP\x00\x01\x00\x00"


@asynccontextmanager
async def serving(**limits: int) -> AsyncIterator[BrokerServer]:
    async with BrokerServer(Config(listener=[LOCAL], limits=Limits(**limits))) as server:
        yield server


async def _greet(server: BrokerServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HEADER)
    return reader, writer


async def _is_let_in(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(8) == HEADER
    except ConnectionError:
        return False


async def _until_empty(server: BrokerServer) -> None:
    async with asyncio.timeout(20):
        while len(server.connection_limits) or server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("key", ["connections", "connections_per_address"])
async def test_one_too_many_is_closed_at_once(key: str) -> None:
    async with serving(**{key: 2}) as server:
        first, second = await _greet(server), await _greet(server)
        assert await _is_let_in(first[0]) and await _is_let_in(second[0])
        third = await _greet(server)
        assert not await _is_let_in(third[0])
        counters = server.broker.counters
        assert counters.connections_refused_total == (key == "connections")
        assert counters.connections_refused_address == (key != "connections")
        # When one has gone, there is a place.
        first[1].close()
        async with asyncio.timeout(20):
            while True:
                reader, writer = await _greet(server)
                if await _is_let_in(reader):
                    break
                writer.close()
        for one in (second[1], third[1], writer):
            one.close()
        await _until_empty(server)
        assert server.connection_limits.of("127.0.0.1") == 0


async def test_no_place_is_lost_wherever_a_connection_ends() -> None:
    """After every byte of a beginning, by a reset or in order, and by the broker's own time-out."""
    beginning = HEADER + b"\0\0\0\x15\x02\0\0\0\0\x53\x10\xc0\x08\x01\xa1\x05hello"
    async with serving(handshake_timeout=1) as server:
        for length in range(len(beginning) + 1):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(beginning[:length])
            await writer.drain()
            if length % 2:
                writer.transport.abort()
            else:
                writer.close()
        _, silent = await asyncio.open_connection("127.0.0.1", server.port)
        await _until_empty(server)
        silent.close()


async def test_without_a_limit() -> None:
    async with serving(connections=0, connections_per_address=0) as server:
        many = [await _greet(server) for _ in range(50)]
        assert all([await _is_let_in(reader) for reader, _ in many])
        for _, writer in many:
            writer.close()


def _users(limit: int) -> Network:
    net = Network(authenticator=KnownUsers({"ann": "a", "bob": "b"}, False, True))
    net.broker.users.limit = limit
    return net


def test_users_have_a_limit_of_their_own() -> None:
    net = _users(2)
    counts = net.broker.users
    first = net.connect(sasl=Plain("ann", "a"))
    net.connect(sasl=Plain("ann", "a"))
    net.connect(sasl=Plain("bob", "b"))
    refused = Client(net, sasl=Plain("ann", "a"))
    refused.engine.open()
    net.run()
    assert refused.closed_with is not None
    assert refused.closed_with.condition == "amqp:resource-limit-exceeded"
    assert net.broker.counters.connections_refused_user == 1
    assert (counts.of("ann"), counts.of("bob")) == (2, 1)
    # A place is free when a connection is gone, by a close or without one.
    first.lose()
    assert counts.of("ann") == 1
    again = net.connect(sasl=Plain("ann", "a"))
    assert counts.of("ann") == 2
    again.close()
    assert counts.of("ann") == 1


def test_who_has_no_name_is_nobody() -> None:
    net = _users(1)
    for _ in range(5):
        net.connect(sasl=Anonymous())
    assert not net.broker.counters.connections_refused_user


def test_logins_under_way_do_not_count() -> None:
    """Ten that have logged in, and none that has opened: the first that do get in."""
    net = _users(2)
    clients = [Client(net, sasl=Plain("ann", "a")) for _ in range(10)]
    net.run()
    assert net.broker.users.of("ann") == 0
    for client in clients:
        client.engine.open()
    net.run()
    assert [client.closed_with is None for client in clients] == [True] * 2 + [False] * 8
    for client in clients:
        client.lose()
    assert net.broker.users.of("ann") == 0
