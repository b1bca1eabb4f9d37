"""The vendor's SDK for Python asks the management of an entity.

The personality is a small one of this test: addresses and services only. Messages are sent by the
project's own client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ferrymq
from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Int
from ferrymq_servicebus.management import entity_service

servicebus = pytest.importorskip("azure.servicebus")
exceptions = pytest.importorskip("azure.servicebus.exceptions")

pytestmark = pytest.mark.interop

MANAGEMENT = "/$management"


class Addresses(Personality):
    """URLs are cut to their paths, and entities have their management."""

    def __init__(self, space: AddressSpace) -> None:
        self.space = space

    def native(self, address: str) -> str:
        return address.split("/", 3)[3] if "://" in address else address

    def entity_of_service(self, address: str) -> str:
        return address.removesuffix(MANAGEMENT) if address.endswith("/" + MANAGEMENT[1:]) else ""

    def service(self, address: str) -> ServiceNode | None:
        entity = self.entity_of_service(address)
        return entity_service(self.space, address, entity) if entity else None


def accept(request: Request) -> Response:
    """Accept any token."""
    return Response({"status-code": Int(202), "status-description": "Accepted"})


def run(use: Callable[[Any], None], *bodies: str, policy: QueuePolicy) -> None:
    """Let a client of the SDK use a queue "q" with messages that have these bodies."""

    async def serve() -> None:
        config = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
        async with BrokerServer(config) as server:
            space = next(iter(server.broker.hosts.values()))
            space.personality = Addresses(space)
            space.insert_service(ServiceNode("$cbs", space, accept))
            space.create("q", policy)
            async with ferrymq.connect(server.url) as connection:
                sender = await connection.sender("q")
                for body in bodies:
                    await sender.send(ferrymq.Message(body=body.encode(), group_id=body))
            port = server.url.rpartition(":")[2]
            await asyncio.to_thread(ask, port)

    def ask(port: str) -> None:
        text = (
            f"Endpoint=sb://localhost:{port};SharedAccessKeyName=key;SharedAccessKey=c2VjcmV0;"
            "UseDevelopmentEmulator=true;"
        )
        with servicebus.ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            use(client)

    asyncio.run(asyncio.wait_for(serve(), 60))


LOCKING = QueuePolicy(lock_duration=60_000, deferral=True)


def test_messages_are_peeked_renewed_deferred_and_settled() -> None:
    def use(client: Any) -> None:
        with client.get_queue_receiver("q") as receiver:
            peeked = receiver.peek_messages(5)
            assert [(str(one), one.sequence_number) for one in peeked] == [
                ("0", 1), ("1", 2), ("2", 3),
            ]  # fmt: skip
            messages = receiver.receive_messages(max_message_count=3, max_wait_time=5)
            left = receiver.renew_message_lock(messages[0]) - datetime.now(UTC)
            assert timedelta(seconds=50) < left <= timedelta(seconds=61)
            for message in messages:
                receiver.defer_message(message)
            deferred = receiver.receive_deferred_messages([1, 2])
            assert [str(one) for one in deferred] == ["0", "1"]
            assert all(one.state == servicebus.ServiceBusMessageState.DEFERRED for one in deferred)
            receiver.complete_message(deferred[0])
            receiver.dead_letter_message(deferred[1], reason="bad", error_description="why")
            with pytest.raises(exceptions.MessageNotFoundError):
                receiver.receive_deferred_messages([1])
            (third,) = receiver.receive_deferred_messages([3])
            receiver.abandon_message(third)
            (third,) = receiver.receive_deferred_messages([3])
            receiver.complete_message(third)
            assert receiver.peek_messages(5) == []

    run(use, "0", "1", "2", policy=LOCKING)


def test_messages_are_scheduled_and_cancelled() -> None:
    def use(client: Any) -> None:
        due = datetime.now(UTC) + timedelta(hours=1)
        sender, receiver = client.get_queue_sender("q"), client.get_queue_receiver("q")
        with sender, receiver:
            messages = [servicebus.ServiceBusMessage(body) for body in ("a", "b")]
            first, second = sender.schedule_messages(messages, due)
            sender.cancel_scheduled_messages(first)
            (peeked,) = receiver.peek_messages(5)
            assert str(peeked) == "b" and peeked.sequence_number == second
            assert peeked.state == servicebus.ServiceBusMessageState.SCHEDULED
            with pytest.raises(exceptions.MessageNotFoundError):
                sender.cancel_scheduled_messages(first)

    run(use, policy=LOCKING)


def test_sessions_are_listed() -> None:
    def use(client: Any) -> None:
        assert list(client.list_queue_sessions("q")) == ["x", "y"]

    run(use, "y", "x", policy=QueuePolicy(sessions=True))
