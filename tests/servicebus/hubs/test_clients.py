"""Event hubs with the vendor's clients for Python, unmodified."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_servicebus.partition_hash import partition_of_hub

eventhub = pytest.importorskip("azure.eventhub")
exceptions = pytest.importorskip("azure.eventhub.exceptions")

pytestmark = pytest.mark.interop

HUB = {"name": "Clicks", "partition-count": 4, "consumer-groups": ["Audit"]}
WAIT = 15


def run(*uses: Callable[[str], None], **settings: object) -> None:
    """Call each function with the connection string of one broker, all at the same time."""
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "personality": {"name": "azure", "hub": [HUB], **settings},
        }
    )

    async def serve() -> None:
        async with BrokerServer(config) as server:
            text = (
                f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName=any;"
                "SharedAccessKey=any;UseDevelopmentEmulator=true;"
            )
            await asyncio.gather(*(asyncio.to_thread(use, text) for use in uses))

    asyncio.run(serve())


def producer(text: str, hub: str = "clicks", **options: object) -> Any:
    return eventhub.EventHubProducerClient.from_connection_string(
        text, eventhub_name=hub, retry_total=0, **options
    )


def consumer(text: str, group: str = "$Default", hub: str = "clicks", **options: object) -> Any:
    return eventhub.EventHubConsumerClient.from_connection_string(
        text, consumer_group=group, eventhub_name=hub, retry_total=0, **options
    )


def read(
    client: Any, count: int, partition: str | None = None, start: object = "-1", **more: Any
) -> list[Any]:
    """Receive events until there are so many."""
    events: list[Any] = []
    errors: list[BaseException] = []

    def on_event(context: Any, event: Any) -> None:
        events.append((context, event))
        if len(events) == count:
            threading.Thread(target=client.close).start()

    timer = threading.Timer(WAIT, client.close)
    timer.start()
    client.receive(
        on_event=on_event,
        on_error=lambda context, error: errors.append(error),
        partition_id=partition,
        starting_position=start,
        **more,
    )
    timer.cancel()
    assert len(events) == count, errors
    return events


def test_positions_and_runtime_metrics() -> None:
    begun = datetime.now(UTC)

    def use(text: str) -> None:
        with producer(text) as client:
            client.send_batch([eventhub.EventData(str(n)) for n in range(5)], partition_id="1")

        def bodies(start: object, inclusive: bool, expected: str) -> str:
            found = read(
                consumer(text), len(expected), "1", start, starting_position_inclusive=inclusive
            )
            return "".join(event.body_as_str() for _, event in found)

        positions = (
            ("-1", False, "01234"),
            ("2", False, "34"),
            ("2", True, "234"),
            (2, False, "34"),
            (begun - timedelta(seconds=5), False, "01234"),
        )
        with ThreadPoolExecutor(len(positions)) as threads:
            found = list(threads.map(lambda asked: bodies(*asked), positions))
        assert found == [expected for _, _, expected in positions]
        (context, event), *_ = read(
            consumer(text, "audit"), 5, "1", track_last_enqueued_event_properties=True
        )
        assert (event.offset, event.sequence_number) == ("0", 0)
        told = context.last_enqueued_event_properties
        assert (told["sequence_number"], told["offset"]) == (4, "4")
        for time in (told["enqueued_time"], told["retrieval_time"]):
            assert abs(time - datetime.now(UTC)) < timedelta(minutes=1)

    run(use)


def test_keys_choose_the_partition_of_the_service() -> None:
    def use(text: str) -> None:
        keys = [f"key-{number}" for number in range(8)]
        with producer(text) as client:
            for key in keys:
                client.send_batch([eventhub.EventData(key)], partition_key=key)
        found = read(consumer(text), len(keys))
        for context, event in found:
            key = event.body_as_str()
            assert event.partition_key == key.encode()
            assert int(context.partition_id) == partition_of_hub(key.encode(), 4)

    run(use)


def test_a_higher_epoch_takes_the_place() -> None:
    def use(text: str) -> None:
        ended = threading.Event()
        first, second = consumer(text), consumer(text)
        reading = threading.Thread(
            target=first.receive,
            kwargs={
                "on_event": lambda context, event: None,
                "on_error": lambda context, error: ended.set(),
                "partition_id": "0",
                "owner_level": 1,
            },
        )
        reading.start()
        with producer(text) as client:
            client.send_batch([eventhub.EventData("one")], partition_id="0")
        read(second, 1, "0", owner_level=2)
        assert ended.wait(WAIT)
        first.close()
        reading.join(WAIT)

    run(use)


def test_hubs_made_by_use_and_groups_that_are_not_there() -> None:
    def made(text: str) -> None:
        with producer(text, "New") as client:
            assert client.get_eventhub_properties()["partition_ids"] == ["0", "1", "2", "3"]
            client.send_batch([eventhub.EventData("one")])
        with consumer(text, "any", "new") as client:
            ((_, event),) = read(client, 1)
            assert event.body_as_str() == "one"

    def missing(text: str) -> None:
        refused = threading.Event()
        client = consumer(text, "nobody")
        reading = threading.Thread(
            target=client.receive,
            kwargs={
                "on_event": lambda context, event: None,
                "on_error": lambda context, error: refused.set(),
                "partition_id": "0",
            },
        )
        reading.start()
        assert refused.wait(WAIT)
        client.close()
        reading.join(WAIT)

    run(made, missing, **{"create-entities": "event-hubs"})
