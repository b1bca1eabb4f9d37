"""Azure's SDKs for Python and Node, unmodified, on plain nodes: send, receive, settle.

These SDKs use the URL of an entity as its address. Without anything that maps such addresses, a
queue of that name is made, which serves sender and receiver alike.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.aio import EventHubProducerClient as AsyncEventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from ferrymq import blocking
from tests.interop.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

# Seconds. A send that is not settled waits for a minute, and fails here.
PATIENCE = 20

NODE = Path(__file__).parent / "azure"

CONFIG = """
[personality]
name = "azure"

[security]
anonymous = true

[[security.shared-access-key]]
name = "all"
primary = "bm90aGluZyB0aGF0IGlzIHNlY3JldA=="
may = ["send", "receive", "browse", "create"]
where = "*"

[[rule]]
who = "*"
may = ["send", "receive", "create"]
where = "*"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    process = BrokerProcess(CONFIG)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def access(broker: BrokerProcess) -> str:
    """The connection string."""
    return (
        f"Endpoint=sb://127.0.0.1:{broker.port};SharedAccessKeyName=all;"
        "SharedAccessKey=bm90aGluZyB0aGF0IGlzIHNlY3JldA==;UseDevelopmentEmulator=true;"
    )


def test_service_bus(access: str) -> None:
    with ServiceBusClient.from_connection_string(access, retry_total=0) as client:
        with client.get_queue_sender("sync") as sender:
            sender.send_messages(ServiceBusMessage("one"), timeout=PATIENCE)
        with client.get_queue_receiver("sync", max_wait_time=PATIENCE) as receiver:
            (message,) = receiver.receive_messages(1)
            assert b"".join(message.body) == b"one"
            receiver.complete_message(message)
            assert receiver.receive_messages(1, max_wait_time=1) == []


async def test_service_bus_with_asyncio(access: str) -> None:
    async with asyncio.timeout(3 * PATIENCE):
        async with AsyncServiceBusClient.from_connection_string(access, retry_total=0) as client:
            async with client.get_queue_sender("async") as sender:
                await sender.send_messages(ServiceBusMessage("one"), timeout=PATIENCE)
            async with client.get_queue_receiver("async", max_wait_time=PATIENCE) as receiver:
                (message,) = await receiver.receive_messages(1)
                assert b"".join(message.body) == b"one"
                await receiver.complete_message(message)
                assert await receiver.receive_messages(1, max_wait_time=1) == []


@pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules").is_dir(),
    reason="Node or its packages are missing: npm ci --prefix tests/interop/azure",
)
def test_service_bus_with_node(access: str) -> None:
    given = {"connection": access, "queue": "node", "body": "one", "seconds": PATIENCE}
    done = subprocess.run(
        ["node", "run.js"],
        cwd=NODE,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"body": "one", "left": 0}


def test_event_hubs(broker: BrokerProcess, access: str) -> None:
    with EventHubProducerClient.from_connection_string(
        access, eventhub_name="hub", retry_total=0
    ) as producer:
        producer.send_event(EventData("one"), timeout=PATIENCE)
    assert received(broker, "hub") == [b"one"]


async def test_event_hubs_with_asyncio(broker: BrokerProcess, access: str) -> None:
    async with asyncio.timeout(3 * PATIENCE):
        async with AsyncEventHubProducerClient.from_connection_string(
            access, eventhub_name="async-hub", retry_total=0
        ) as producer:
            await producer.send_event(EventData("one"), timeout=PATIENCE)
    assert await asyncio.to_thread(received, broker, "async-hub") == [b"one"]


def received(broker: BrokerProcess, hub: str) -> list[object]:
    """What arrived at the address that the SDK uses for a hub."""
    address = re.sub("^amqp:", "amqps:", f"{broker.url}/{hub}")
    with blocking.connect(broker.url) as connection:
        receiver = connection.receiver(address)
        message = receiver.receive(timeout=PATIENCE)
        message.accept()
        return [message.message.body]
