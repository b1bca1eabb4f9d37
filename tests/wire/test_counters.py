"""Counters of the running broker against an own count: traffic, transactions, expiry, restarts."""

from __future__ import annotations

from urllib.request import urlopen

import pytest

import ferrymq
from ferrymq import Message
from tests.raw.process import PATIENCE, Broker

QUEUE = ("queue", "work")
DEAD = ("queue", "dead")
TOPIC = ("topic", "news")
SUBSCRIPTION = ("subscription", "news::reader/kept")
COUNTERS = (
    "published", "delivered", "accepted", "rejected", "modified", "released", "refused",
    "expirations", "overflowed", "dead_lettered", "dropped",
)  # fmt: skip


CONFIG = """
[http]
url = "http://127.0.0.1:0"
[store]
path = "store"

[[queue]]
name = "dead"
[[queue]]
name = "work"
dead-letter = "dead"
[[topic]]
name = "news"
[topic.subscription]
max-length = 3
overflow = "dead-letter"
dead-letter = "dead"
"""


class Count:
    """An own count of what happened since the broker was started."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], dict[str, int]] = {}

    def add(self, place: tuple[str, str], **counters: int) -> None:
        """So much happened there."""
        counts = self.of.setdefault(place, dict.fromkeys(COUNTERS, 0))
        for name, by in counters.items():
            counts[name] += by


def scrape(broker: Broker, path: str) -> dict[str, float]:
    """What the broker shows, by series."""
    with urlopen(f"{broker.monitoring}{path}", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
    return {series: float(value) for series, value in pairs}


def compare(broker: Broker, count: Count) -> None:
    """Compare each node and subscription, and the sums of each kind."""
    nodes, sums = scrape(broker, "/metrics/nodes"), scrape(broker, "/metrics")
    kinds: dict[str, dict[str, int]] = {}
    for (kind, address), counters in count.of.items():
        of_kind = kinds.setdefault(kind, dict.fromkeys(COUNTERS, 0))
        for name, expected in counters.items():
            of_kind[name] += expected
            found = [
                value
                for series, value in nodes.items()
                if series.startswith(f"ferrymq_messages_{name}_total{{")
                and f'address="{address}"' in series
                and f'type="{kind}"' in series
            ]
            # A topic and a stream have not all of them.
            assert found == [expected] or (not found and not expected), (kind, address, name)
    for kind, counters in kinds.items():
        for name, expected in counters.items():
            found = [
                value
                for series, value in sums.items()
                if series.startswith(f"ferrymq_messages_{name}_total{{")
                and f'type="{kind}"' in series
            ]
            assert found == [expected] or (not found and not expected), (kind, name)


async def work(url: str, count: Count) -> None:
    """Do a little of everything, and count it."""
    async with ferrymq.connect(url, container_id="reader") as connection:
        kept = await connection.receiver("news", name="kept", durable=True, credit=0)
        await kept.detach()
        sender = await connection.sender("work")
        for number in range(6):
            await sender.send(Message(body=number, durable=number % 2 == 0))
        async with connection.receiver("work") as receiver:
            first = [await receiver.receive() for _ in range(6)]
            await first[0].reject()
            await first[1].release()
            await first[2].modify(delivery_failed=True)
            for delivery in first[3:]:
                await delivery.accept()
            # What was released and modified comes again.
            for _ in range(2):
                await (await receiver.receive()).accept()
        count.add(
            QUEUE, published=6, delivered=8, accepted=5, rejected=1, released=1, modified=1,
            dead_lettered=1,
        )  # fmt: skip
        count.add(DEAD, published=1)
        async with connection.transaction() as transaction:
            await sender.send(Message(body="kept"), transaction=transaction)
        count.add(QUEUE, published=1)
        transaction = await connection.transaction()
        await sender.send(Message(body="not kept"), transaction=transaction)
        await transaction.rollback()
        await sender.send(Message(body="late", ttl=0.001))
        count.add(QUEUE, published=1, expirations=1, dead_lettered=1)
        count.add(DEAD, published=1)
        news = await connection.sender("news")
        for number in range(5):
            await news.send(Message(body=number, durable=True))
        count.add(TOPIC, published=5)
        count.add(SUBSCRIPTION, published=5, overflowed=2, dead_lettered=2)
        count.add(DEAD, published=2)


async def read_on(url: str, count: Count) -> None:
    """Take what the subscription has kept."""
    async with ferrymq.connect(url, container_id="reader") as connection:
        kept = await connection.receiver("news", name="kept", durable=True)
        for number in (2, 3, 4):
            delivery = await kept.receive()
            assert delivery.message.body == number
            await delivery.accept()
        await kept.detach()
        count.add(SUBSCRIPTION, delivered=3, accepted=3)


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_counters_begin_at_0_and_count_what_happens(end: str) -> None:
    with Broker(CONFIG) as broker:
        count = Count()
        for _ in range(2):
            await work(broker.url, count)
            # It goes by a timer.
            while not any(
                series.startswith("ferrymq_messages_expirations_total") and value
                for series, value in scrape(broker, "/metrics").items()
            ):
                pass
            compare(broker, count)
            (broker.kill if end == "killed" else broker.stop)()
            broker.start()
            count = Count()
            for place in (QUEUE, DEAD, TOPIC, SUBSCRIPTION):
                count.add(place)
            compare(broker, count)
            await read_on(broker.url, count)
            compare(broker, count)
        broker.check()
