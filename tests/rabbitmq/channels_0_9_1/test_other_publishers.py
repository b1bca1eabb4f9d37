"""Messages of publishers of AMQP 1.0, as clients of AMQP 0-9-1 get them."""

from __future__ import annotations

import ferrymq.blocking as ferrymq
from ferrymq import Message
from tests.rabbitmq.channels_0_9_1.served import Served, serve


def test_a_priority_of_0_is_one_that_the_publisher_has_set() -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        channel.queue_declare("orders")
        with ferrymq.connect(f"amqp://127.0.0.1:{served.port}") as connection:
            sender = connection.sender("/queues/orders")
            for priority in (0, 5):
                sender.send(Message(b"", priority=priority))
            sender.send(Message(b""))
        found = [channel.basic_get("orders", auto_ack=True)[1].priority for _ in range(3)]
        assert found == [0, 5, None]

    serve(work)
