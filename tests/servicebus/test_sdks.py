"""The vendor's SDKs for Python, unmodified, on a broker with the personality."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

servicebus = pytest.importorskip("azure.servicebus")
exceptions = pytest.importorskip("azure.servicebus.exceptions")
eventhub = pytest.importorskip("azure.eventhub")

pytestmark = pytest.mark.interop

CONFIG = {
    "listener": [{"url": "amqp://127.0.0.1:0"}],
    "personality": {
        "name": "azure",
        "queue": [
            {"name": "Sessions", "requires-session": True},
            {"name": "Closed", "status": "Disabled"},
            {"name": "Short", "default-message-time-to-live": "1h"},
        ],
        "topic": [{"name": "News", "subscription": [{"name": "Audit"}]}],
        "hub": [{"name": "Clicks", "partition-count": 2}],
    },
}
WAIT = 5


def run(use: Callable[[str], None]) -> None:
    """Call a function with the connection string of a broker, in a thread of its own."""

    async def serve() -> None:
        async with BrokerServer(Config.model_validate(CONFIG)) as server:
            await asyncio.to_thread(
                use,
                f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName=any;"
                "SharedAccessKey=any;UseDevelopmentEmulator=true;",
            )

    asyncio.run(serve())


def with_bus(use: Callable[[Any], None]) -> None:
    def connect(text: str) -> None:
        with servicebus.ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            use(client)

    run(connect)


def send(client: Any, queue: str, *messages: Any) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages))


def take(receiver: Any, count: int = 1) -> Any:
    taken = receiver.receive_messages(count, WAIT)
    assert len(taken) == count
    return taken


def test_a_disabled_queue() -> None:
    def use(client: Any) -> None:
        with pytest.raises(exceptions.MessagingEntityDisabledError):
            send(client, "closed", servicebus.ServiceBusMessage("a"))
        with pytest.raises(exceptions.MessagingEntityDisabledError):
            client.get_queue_receiver("closed").receive_messages(1, WAIT)

    with_bus(use)


def test_times_and_numbers() -> None:
    def use(client: Any) -> None:
        send(client, "Short", servicebus.ServiceBusMessage("a"))
        with client.get_queue_receiver("short") as receiver:
            (message,) = take(receiver)
            assert message.time_to_live.total_seconds() == 3600
            assert message.expires_at_utc == message.enqueued_time_utc + message.time_to_live
            receiver.dead_letter_message(message, reason="bad")
        sub_queue = servicebus.ServiceBusSubQueue.DEAD_LETTER
        with client.get_queue_receiver("short", sub_queue=sub_queue) as receiver:
            (letter,) = take(receiver)
            assert letter.enqueued_sequence_number == 1
            assert (letter.dead_letter_source, letter.dead_letter_reason) == ("Short", "bad")

    with_bus(use)


def test_a_queue() -> None:
    def use(client: Any) -> None:
        message = servicebus.ServiceBusMessage
        send(client, "orders", *(message(body, application_properties={"n": 1}) for body in "abcd"))
        with client.get_queue_receiver("ORDERS") as receiver:
            done, back, later, dead = take(receiver, 4)
            assert [str(one) for one in (done, back, later, dead)] == list("abcd")
            assert done.application_properties == {b"n": 1} and done.delivery_count == 0
            assert done.enqueued_time_utc <= done.locked_until_utc
            assert done.sequence_number < back.sequence_number
            receiver.complete_message(done)
            receiver.abandon_message(back)
            receiver.defer_message(later)
            receiver.dead_letter_message(dead, reason="bad", error_description="no good")
            (again,) = take(receiver)
            assert (str(again), again.delivery_count) == ("b", 1)
            assert receiver.renew_message_lock(again) > again.enqueued_time_utc
            receiver.complete_message(again)
            (deferred,) = receiver.receive_deferred_messages([later.sequence_number])
            receiver.complete_message(deferred)
        sub_queue = servicebus.ServiceBusSubQueue.DEAD_LETTER
        with client.get_queue_receiver("orders", sub_queue=sub_queue) as receiver:
            (letter,) = take(receiver)
            assert str(letter) == "d" and letter.dead_letter_source == "orders"
            told = (letter.dead_letter_reason, letter.dead_letter_error_description)
            assert told == ("bad", "no good")
            receiver.complete_message(letter)

    with_bus(use)


def test_sessions() -> None:
    def use(client: Any) -> None:
        message = servicebus.ServiceBusMessage
        send(client, "sessions", message("1", session_id="a"), message("2", session_id="b"))
        with client.get_queue_receiver("sessions", session_id="a") as receiver:
            (one,) = take(receiver)
            receiver.session.set_state("half")
            assert receiver.session.get_state() == b"half"
            assert receiver.session.renew_lock() >= receiver.session.locked_until_utc
            with pytest.raises(exceptions.SessionCannotBeLockedError):
                client.get_queue_receiver("sessions", session_id="a").__enter__()
            receiver.complete_message(one)
        following = servicebus.NEXT_AVAILABLE_SESSION
        with client.get_queue_receiver("sessions", session_id=following) as receiver:
            (two,) = take(receiver)
            assert receiver.session.session_id == "b" and str(two) == "2"
            receiver.complete_message(two)

    with_bus(use)


def test_a_topic() -> None:
    def use(client: Any) -> None:
        with client.get_topic_sender("news") as sender:
            sender.send_messages(servicebus.ServiceBusMessage("one", subject="x"))
        with client.get_subscription_receiver("news", "audit") as receiver:
            (one,) = take(receiver)
            assert (str(one), one.subject) == ("one", "x")
            receiver.complete_message(one)

    with_bus(use)


def test_an_event_hub() -> None:
    def use(text: str) -> None:
        made = eventhub.EventHubProducerClient.from_connection_string(text, eventhub_name="clicks")
        with made as producer:
            assert producer.get_partition_ids() == ["0", "1"]
            batch = producer.create_batch(partition_key="k")
            batch.add(eventhub.EventData("1"))
            batch.add(eventhub.EventData("2"))
            producer.send_batch(batch)
            batch = producer.create_batch(partition_id="0")
            batch.add(eventhub.EventData("3"))
            producer.send_batch(batch)
            assert producer.get_partition_properties("0")["last_enqueued_offset"] == "0"
        consumer = eventhub.EventHubConsumerClient.from_connection_string(
            text, consumer_group="$Default", eventhub_name="clicks"
        )
        found: dict[str, tuple[Any, ...]] = {}
        enough = threading.Event()

        def on_event(partition: Any, event: Any) -> None:
            said = (partition.partition_id, event.offset, event.sequence_number)
            found[event.body_as_str()] = (*said, event.partition_key)
            if len(found) == 3:
                enough.set()

        reading = threading.Thread(
            target=consumer.receive, args=(on_event,), kwargs={"starting_position": "-1"}
        )
        reading.start()
        assert enough.wait(3 * WAIT)
        consumer.close()
        reading.join(3 * WAIT)
        keyed = found["1"][0]
        assert found["1"] == (keyed, found["1"][1], int(found["1"][1]), b"k")
        assert found["2"][0] == keyed and found["2"][2] == found["1"][2] + 1
        assert found["3"][0] == "0" and isinstance(found["3"][1], str)

    run(use)
