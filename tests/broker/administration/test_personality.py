"""The personality as it is installed: administration and messages over one port."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from ferrymq_broker.config.model import Config
from ferrymq_broker.server import BrokerServer, personalities
from tests.broker.tls.conftest import pki as pki
from tests.broker.tls.pki import Pki


async def test_one_port_for_the_sdk(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of messages speaks AMQP without TLS, the one of administration HTTPS."""
    found = [EntryPoint("azure", "ferrymq_servicebus:AZURE", personalities.GROUP)]
    monkeypatch.setattr(personalities, "entry_points", lambda group: found)
    config = Config.model_validate(
        {
            "listener": [{"url": "any://127.0.0.1:0"}],
            "tls": pki.tls(),
            "personality": {"name": "azure"},
        }
    )

    def work(port: int) -> None:
        text = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=any;SharedAccessKey=a2V5;"
        administration = ServiceBusAdministrationClient.from_connection_string(
            text, connection_verify=str(pki.path("ca")), retry_total=0
        )
        administration.create_topic("News")
        administration.create_subscription("news", "audit", max_delivery_count=2)
        with pytest.raises(ResourceExistsError):
            administration.create_queue("NEWS")
        client = ServiceBusClient.from_connection_string(
            f"{text}UseDevelopmentEmulator=true;", retry_total=0
        )
        with client, client.get_topic_sender("News") as sender:
            sender.send_messages(ServiceBusMessage("one"), timeout=20)
            counts = administration.get_subscription_runtime_properties("News", "audit")
            assert counts.active_message_count == 1
            with client.get_subscription_receiver("News", "audit", max_wait_time=20) as receiver:
                (message,) = receiver.receive_messages(1)
                assert b"".join(message.body) == b"one"
                receiver.dead_letter_message(message, reason="no use")
        counts = administration.get_subscription_runtime_properties("News", "audit")
        assert (counts.active_message_count, counts.dead_letter_message_count) == (0, 1)

    async with asyncio.timeout(90), BrokerServer(config) as server:
        await asyncio.to_thread(work, server.port)
