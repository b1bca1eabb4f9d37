"""Queues that end with their last consumer."""

from __future__ import annotations

import pika
import pytest

from tests.rabbitmq.channels_0_9_1.served import Served, serve


def test_a_queue_without_consumers_so_far_stays_when_its_messages_are_got() -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        channel.queue_declare("orders", auto_delete=True)
        channel.basic_publish("", "orders", b"one")
        method, _, _ = channel.basic_get("orders")
        channel.basic_reject(method.delivery_tag, requeue=False)
        # Each call is a round trip: the broker has had its turns.
        for _ in range(3):
            assert channel.queue_declare("orders", passive=True).method.message_count == 0
        tag = channel.basic_consume("orders", lambda *_: None)
        channel.basic_cancel(tag)
        served.channel().queue_declare("others", auto_delete=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
            channel.queue_declare("orders", passive=True)

    serve(work)
