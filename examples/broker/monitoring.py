"""Metrics and health over HTTP: `python examples/broker/monitoring.py`."""

from __future__ import annotations

import asyncio
from urllib.request import urlopen

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Http, Listener
from ferrymq_broker.server import BrokerServer

CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")], http=Http(url="http://127.0.0.1:0"))


def get(url: str) -> str:
    """Return the body of an HTTP response."""
    with urlopen(url, timeout=5) as response:
        text: str = response.read().decode()
        return text


async def main() -> None:
    """Publish three messages, take one, and read the broker's metrics."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        assert server.monitoring is not None
        url = server.monitoring.url
        sender = await connection.sender("orders")
        await sender.send_many(Message(body=text) for text in ("coffee", "tea", "cake"))
        async with connection.receiver("orders", credit=0) as receiver:
            receiver.add_credit(1)
            await (await receiver.receive(timeout=5)).accept()
        print(await asyncio.to_thread(get, f"{url}/readyz"))
        metrics = await asyncio.to_thread(get, f"{url}/metrics/nodes")
        for line in metrics.splitlines():
            if 'orders"' in line and "_created" not in line and not line.endswith(" 0.0"):
                print(line)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# {"ready": true, "reason": "", "alarms": []}
# ferrymq_messages_published_total{virtual_host="default",type="queue",address="orders"} 3.0
# ferrymq_messages_delivered_total{virtual_host="default",type="queue",address="orders"} 1.0
# ferrymq_messages_accepted_total{virtual_host="default",type="queue",address="orders"} 1.0
# ferrymq_node_available{virtual_host="default",type="queue",address="orders"} 2.0
# ferrymq_node_bytes{virtual_host="default",type="queue",address="orders"} 17.0
# ferrymq_node_producers{virtual_host="default",type="queue",address="orders"} 1.0
