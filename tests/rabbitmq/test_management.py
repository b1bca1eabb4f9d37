"""The personality with our own client: requests, addresses and what they are refused for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, rabbitmq
from ferrymq_broker.config import Config
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.server import BrokerServer


def config(**more: object) -> Config:
    return Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "personality": {"name": "rabbitmq"},
            "queue": [{"name": "configured", "max-length": 5}],
            "virtual-host": [{"name": "shop"}],
            **more,
        }
    )


@asynccontextmanager
async def connected(
    settings: Config, **options: Any
) -> AsyncIterator[tuple[ferrymq.Connection, rabbitmq.Management]]:
    async with BrokerServer(settings) as server:
        url = f"amqp://127.0.0.1:{server.port}"
        async with (
            ferrymq.connect(url, timeout=10, **options) as connection,
            rabbitmq.management(connection) as management,
        ):
            yield connection, management


async def body_in(connection: ferrymq.Connection, queue: str) -> object:
    async with connection.receiver(rabbitmq.queue_address(queue)) as receiver:
        delivery = await receiver.receive(timeout=10)
        await delivery.accept()
        return delivery.message.body


def test_what_the_broker_says_it_is() -> None:
    async def use() -> None:
        async with connected(config()) as (connection, _):
            told = connection.remote_properties
            assert (told["product"], told["version"]) == ("RabbitMQ", "4.2.0")
            assert str(told["platform"]).startswith("ferrymq/")

    asyncio.run(use())


def test_the_version_can_be_set() -> None:
    with pytest.raises(ConfigError, match="version: 4 is no text"):
        asyncio.run(_start({"name": "rabbitmq", "version": 4}))
    with pytest.raises(ConfigError, match="unknown key 'vesion'"):
        asyncio.run(_start({"name": "rabbitmq", "vesion": "4.1.0"}))


async def _start(personality: dict[str, object]) -> None:
    async with BrokerServer(config(personality=personality)):
        pass


def test_queues_and_their_statuses() -> None:
    async def use() -> None:
        async with connected(config()) as (_, management):
            info = await management.declare_queue("my queue", type="quorum", delivery_limit=5)
            assert (info.name, info.type, info.vhost) == ("my queue", "quorum", "/")
            assert info.arguments == {"x-queue-type": "quorum", "x-delivery-limit": 5}
            assert await management.declare_queue("my queue", type="quorum", delivery_limit=5)
            with pytest.raises(rabbitmq.PreconditionFailed, match="delivery-limit = 5, not 6"):
                await management.declare_queue("my queue", type="quorum", delivery_limit=6)
            with pytest.raises(rabbitmq.PreconditionFailed, match="x-foo: there is no such"):
                await management.declare_queue("other", arguments={"x-foo": 1})
            with pytest.raises(rabbitmq.AccessRefused, match="reserved"):
                await management.declare_queue("amq.mine")
            with pytest.raises(rabbitmq.BadRequest, match="a::b"):
                await management.declare_queue("a::b")
            with pytest.raises(rabbitmq.NotFound):
                await management.get_queue("nope")
            with pytest.raises(rabbitmq.NotFound):
                await management.purge_queue("nope")
            assert await management.delete_queue("nope") == 0
            # Limits that the configuration sets count more than what clients say.
            assert (await management.declare_queue("configured")).type == "classic"

    asyncio.run(use())


def test_bindings_with_arguments() -> None:
    async def use() -> None:
        async with connected(config()) as (connection, management):
            await management.declare_queue("q")
            await management.declare_exchange("h", type="headers")
            await management.bind("h", queue="q", arguments={"x-match": "any", "a": 1, "b": 2})
            await management.bind("h", queue="q", arguments={"a": 3})
            bindings = await management.bindings("h", queue="q")
            assert [one.arguments for one in bindings] == [
                {"x-match": "any", "a": 1, "b": 2},
                {"a": 3},
            ]
            sender = await connection.sender(rabbitmq.exchange_address("h"))
            await sender.send(Message(body="one", application_properties={"b": 2}))
            assert await body_in(connection, "q") == "one"
            await management.unbind("h", queue="q", arguments={"a": 3})
            assert len(await management.bindings("h", queue="q")) == 1

    asyncio.run(use())


def test_predeclared_exchanges() -> None:
    async def use() -> None:
        async with connected(config()) as (connection, management):
            await management.declare_queue("q")
            for name, type in (
                ("amq.direct", "direct"),
                ("amq.fanout", "fanout"),
                ("amq.topic", "topic"),
                ("amq.headers", "headers"),
                ("amq.match", "headers"),
            ):
                await management.declare_exchange(name, type=type)
                await management.bind(name, queue="q", key="k")
                sender = await connection.sender(rabbitmq.exchange_address(name, "k"))
                await sender.send(Message(body=name))
                assert await body_in(connection, "q") == name
            with pytest.raises(rabbitmq.AccessRefused):
                await management.delete_exchange("amq.topic")
            with pytest.raises(rabbitmq.AccessRefused):
                await management.declare_exchange("amq.mine", type="topic")

    asyncio.run(use())


def test_an_internal_exchange_takes_nothing_from_clients() -> None:
    async def use() -> None:
        async with connected(config()) as (connection, management):
            await management.declare_queue("q")
            await management.declare_exchange("inner", type="fanout", internal=True)
            await management.declare_exchange("outer", type="fanout")
            await management.bind("inner", queue="q")
            await management.bind("outer", exchange="inner")
            sender = await connection.sender(rabbitmq.exchange_address("inner"))
            with pytest.raises(ferrymq.DeliveryRejected, match="internal"):
                await sender.send(Message(body=b"1"))
            sender = await connection.sender(rabbitmq.exchange_address("outer"))
            await sender.send(Message(body="2"))
            assert await body_in(connection, "q") == "2"

    asyncio.run(use())


def test_routing_keys_of_any_characters() -> None:
    """They are percent-encoded in addresses."""

    async def use() -> None:
        async with connected(config()) as (connection, management):
            await management.declare_queue("q")
            await management.declare_exchange("x/y", type="direct")
            for key in ("App::Event", "a/b", "ü %", "x"):
                await management.bind("x/y", queue="q", key=key)
                sender = await connection.sender(rabbitmq.exchange_address("x/y", key))
                await sender.send(Message(body=key))
                assert await body_in(connection, "q") == key

    asyncio.run(use())


@pytest.mark.parametrize(
    "address", ["/queues/", "/queues/a/b", "/exchanges/", "/exchanges/x/k/l", "/queues/%ff"]
)
def test_malformed_addresses(address: str) -> None:
    async def use() -> None:
        async with connected(config()) as (connection, _):
            with pytest.raises(ferrymq.AmqpError, match="malformed"):
                await connection.sender(address)

    asyncio.run(use())


def test_a_node_is_not_made_by_use() -> None:
    async def use() -> None:
        async with connected(config()) as (connection, _):
            with pytest.raises(ferrymq.AmqpError, match="auto-create is off"):
                await connection.sender(rabbitmq.queue_address("new"))

    asyncio.run(use())


def test_a_virtual_host() -> None:
    async def use() -> None:
        settings = config()
        async with connected(settings, hostname=rabbitmq.vhost("shop")) as (_, management):
            assert (await management.declare_queue("q")).vhost == "shop"
        async with connected(settings, hostname=rabbitmq.vhost("/")) as (_, management):
            assert (await management.declare_queue("q")).vhost == "/"

    asyncio.run(use())


def test_rights_are_checked_for_each_request() -> None:
    rules = [
        {"who": "*", "where": ["mine*", "/exchanges/mine*"], "may": "*"},
    ]

    async def use() -> None:
        async with connected(config(rule=rules)) as (_, management):
            await management.declare_queue("mine.q")
            await management.declare_exchange("mine.x", type="fanout")
            await management.bind("mine.x", queue="mine.q")
            for refused in (
                management.declare_queue("q"),
                management.declare_exchange("x", type="fanout"),
                management.delete_queue("q"),
                management.get_queue("configured"),
                management.bind("amq.fanout", queue="mine.q"),
            ):
                with pytest.raises(rabbitmq.AccessRefused):
                    await refused

    asyncio.run(use())


def test_declared_nodes_survive_a_restart(tmp_path: Path) -> None:
    settings = config(store={"path": str(tmp_path / "store")})

    async def use() -> None:
        async with connected(settings) as (connection, management):
            await management.declare_queue("q", type="quorum")
            await management.declare_exchange("x", type="fanout")
            await management.bind("x", queue="q")
            sender = await connection.sender(rabbitmq.exchange_address("x"))
            await sender.send(Message(body="kept"))
        async with connected(settings) as (connection, management):
            assert (await management.get_queue("q")).type == "quorum"
            assert await body_in(connection, "q") == "kept"

    asyncio.run(use())
