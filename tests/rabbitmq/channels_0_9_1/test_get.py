"""basic.get, by messages that have come just now, and from queues that are gone."""

from __future__ import annotations

from pathlib import Path

import pika

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
