"""Aliases, redirects, no address, other hosts: `python examples/broker/addresses.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import DeliveryRejected, LinkDetached, Message
from ferrymq_broker.config import Alias, Config, Listener, Nodes, Queue, Redirect, VirtualHost
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    nodes=Nodes(auto_create=False),
    queue=[Queue(name="orders"), Queue(pattern="jobs.*", max_length=10)],
    alias=[Alias(name="bestellungen", to="orders")],
    redirect=[Redirect(name="archive", host="archive.example")],
    virtual_host=[VirtualHost(name="test", queue=[Queue(name="orders")])],
)


async def take(connection: ferrymq.Connection, address: str) -> object:
    """Return the body of the next message at an address."""
    async with connection.receiver(address) as receiver:
        delivery = await receiver.receive(timeout=5)
        await delivery.accept()
        return delivery.message.body


async def main() -> None:
    """Find nodes by all kinds of addresses, and try addresses without a node."""
    # By default the client would follow the redirect of "archive".
    async with (
        BrokerServer(CONFIG) as server,
        ferrymq.connect(server.url, follow_redirects=False) as connection,
    ):
        alias = await connection.sender("bestellungen")
        await alias.send(Message(body="by an alias"))
        print("orders:", await take(connection, "orders"))

        anywhere = await connection.sender(None)
        await anywhere.send(Message(body="made by a pattern", to="jobs.1"))
        print("jobs.1:", await take(connection, "jobs.1"))
        try:
            await anywhere.send(Message(body="lost", to="nowhere"))
        except DeliveryRejected as rejected:
            print("nowhere:", rejected.error and rejected.error.condition)

        try:
            await connection.sender("archive")
        except LinkDetached as refused:
            info = (refused.error and refused.error.info) or {}
            print("archive:", refused.condition, info["network-host"], info["port"])

        async with ferrymq.connect(server.url, hostname="vhost:test") as test:
            for place, text in ((test, "of the host test"), (connection, "of the default host")):
                sender = await place.sender("orders")
                await sender.send(Message(body=text))
            print("orders:", await take(connection, "orders"))
            print("orders:", await take(test, "orders"))


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# orders: by an alias
# jobs.1: made by a pattern
# nowhere: amqp:not-found
# archive: amqp:link:redirect archive.example 5672
# orders: of the default host
# orders: of the host test
