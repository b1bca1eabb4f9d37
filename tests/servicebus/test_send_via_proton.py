"""Proton sends through one entity to another, in a transaction and without."""

from __future__ import annotations

import asyncio

import pytest
from proton import Event, Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, LinkOption, Transaction
from proton.utils import BlockingConnection

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.servicebus.kit import DESTINATION

pytestmark = pytest.mark.interop

CONFIG = {
    "listener": [{"url": "amqp://127.0.0.1:0"}],
    "personality": {"name": "azure", "queue": [{"name": "via"}, {"name": "dest"}]},
}


class _Via(LinkOption):
    def apply(self, link: object) -> None:
        link.properties = {symbol(DESTINATION): "dest"}  # type: ignore[attr-defined]


class _Mover(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Takes a message from `via` and sends an answer through it, in a transaction that ends as it
    is told to."""

    def __init__(self, url: str, commits: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url = url
        self.commits = commits
        self.transaction: Transaction | None = None
        self.granted: object = None

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(self.url, reconnect=False)
        self.container = event.container
        self.receiver = event.container.create_receiver(self.connection, "via")
        self.sender = event.container.create_sender(
            self.connection, "via", name="mover", options=_Via()
        )
        event.container.declare_transaction(self.connection, handler=self)

    def on_link_opened(self, event: Event) -> None:
        if event.link == self.sender:
            self.granted = event.link.remote_properties

    def on_transaction_declared(self, event: Event) -> None:
        self.transaction = event.transaction
        self.receiver.flow(1)

    def on_message(self, event: Event) -> None:
        assert self.transaction is not None
        self.transaction.accept(event.delivery)
        self.transaction.send(self.sender, Message(body="answer"))
        if self.commits:
            self.transaction.commit()
        else:
            self.transaction.abort()

    def on_transaction_committed(self, event: Event) -> None:
        self.connection.close()

    def on_transaction_aborted(self, event: Event) -> None:
        self.connection.close()


@pytest.mark.parametrize("commits", [True, False])
async def test_a_transaction(commits: bool) -> None:
    async with BrokerServer(Config.model_validate(CONFIG)) as server:
        url = f"amqp://127.0.0.1:{server.port}"
        mover = _Mover(url, commits)

        def work() -> None:
            connection = BlockingConnection(url, timeout=20)
            connection.create_sender("via").send(Message(body="task"))
            Container(mover).run()
            connection.close()

        await asyncio.to_thread(work)
        assert mover.granted == {symbol(DESTINATION): "dest"}
        nodes = server.broker.default.nodes
        assert nodes["dest"].message_count() == commits
        assert nodes["via"].message_count() == (not commits)


async def test_without_a_transaction() -> None:
    async with BrokerServer(Config.model_validate(CONFIG)) as server:

        def work() -> object:
            connection = BlockingConnection(f"amqp://127.0.0.1:{server.port}", timeout=20)
            connection.create_sender("via", options=_Via()).send(Message(body="a"))
            body = connection.create_receiver("dest").receive(timeout=20).body
            connection.close()
            return body

        assert await asyncio.to_thread(work) == "a"
