"""Rules in a running broker, as a client over a socket finds them."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import DeliveryRejected, LinkDetached, Message
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

CONFIG = """
[[listener]]
url = "amqp://127.0.0.1:0"

[security.users]
ann = "a"
bob = "b"

[security.groups]
takers = ["bob"]

[[queue]]
name = "orders"

[[rule]]
who = "user:ann"
may = "send"
where = ["orders", "inbox.*"]

[[rule]]
who = "group:takers"
may = ["receive", "create"]
where = ["orders", "inbox.{user}"]
"""


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    async with BrokerServer(Config.model_validate(tomllib.loads(CONFIG))) as server:
        yield server


def url(server: BrokerServer, user: str) -> str:
    return server.url.replace("//", f"//{user}:{user[0]}@")


async def test_users_and_groups_do_what_is_theirs(server: BrokerServer) -> None:
    async with (
        ferrymq.connect(url(server, "ann")) as ann,
        ferrymq.connect(url(server, "bob")) as bob,
    ):
        inbox = await bob.receiver("inbox.bob")
        orders = await bob.receiver("orders")
        anywhere = await ann.sender(None)
        await anywhere.send(Message(body="hello", to="inbox.bob"))
        await (await ann.sender("orders")).send(Message(body="an order"))
        async with await inbox.receive(timeout=30) as delivery:
            assert delivery.message.body == "hello"
        assert (await orders.receive(timeout=30)).message.body == "an order"
        for address in ("inbox.ann", "missing"):
            with pytest.raises(LinkDetached) as refused:
                await bob.receiver(address)
            assert refused.value.condition == "amqp:unauthorized-access"
        with pytest.raises(DeliveryRejected) as rejected:
            await anywhere.send(Message(body="hello", to="missing"))
        assert rejected.value.error is not None
        assert rejected.value.error.condition == "amqp:unauthorized-access"
        # What was refused cost nothing else.
        await anywhere.send(Message(body="again", to="inbox.bob"))
        assert (await inbox.receive(timeout=30)).message.body == "again"
