"""basic.get: messages that have come just now, queues that are gone, a broker that shuts down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.rabbitmq.channels_0_9_1.served import Served, serve

DURABLE = pika.BasicProperties(delivery_mode=2)


def test_a_message_is_got_at_once_although_it_waits_for_the_disk(tmp_path: Path) -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        channel.queue_declare("orders", durable=True)
        for number in range(50):
            channel.basic_publish("", "orders", b"%d" % number, DURABLE)
            method, _, body = channel.basic_get("orders", auto_ack=number % 2 == 0)
            assert method is not None and body == b"%d" % number
            if number % 2:
                channel.basic_ack(method.delivery_tag)
        assert channel.queue_declare("orders", passive=True).method.message_count == 0

    serve(work, tmp_path)


def test_a_message_of_a_deleted_queue_takes_no_memory_after_its_return() -> None:
    def work(served: Served) -> None:
        channel, other = served.channel(), served.channel()
        before = served.broker.agenda.held
        for _ in range(3):
            other.queue_declare("orders")
            for _ in range(3):
                other.basic_publish("", "orders", b"x" * 1000)
            assert other.queue_declare("orders", passive=True).method.message_count == 3
            tags = [channel.basic_get("orders")[0].delivery_tag for _ in range(3)]
            other.queue_delete("orders")
            channel.basic_nack(tags[0])
            channel.basic_reject(tags[1], requeue=False)
            channel.basic_recover(requeue=True)
        channel.close()
        other.queue_declare("last")
        assert served.broker.agenda.held == before

    serve(work)


def test_a_broker_that_shuts_down_gives_no_more_messages() -> None:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "personality": {"name": "rabbitmq"},
            "shutdown": {"drain-timeout": 60},
        }
    )

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = BrokerServer(config)
        closing: list[asyncio.Task[None]] = []

        async def begin_close() -> None:
            closing.append(asyncio.create_task(server.close()))
            # It has come as far as the wait for the outcomes.
            await asyncio.sleep(0)

        def work(served: Served) -> None:
            channel, other = served.channel(), served.channel()
            channel.queue_declare("orders")
            for body in (b"1", b"2"):
                channel.basic_publish("", "orders", body)
            method, _, body = channel.basic_get("orders")
            assert method is not None and body == b"1"
            asyncio.run_coroutine_threadsafe(begin_close(), loop).result()
            assert other.basic_get("orders") == (None, None, None)
            channel.basic_ack(method.delivery_tag)
            for each in (channel, other):
                with pytest.raises(ConnectionClosedByBroker):
                    while True:
                        each.connection.process_data_events(60)

        async with server:
            await asyncio.to_thread(work, Served(server))
            await closing[0]

    asyncio.run(main())
