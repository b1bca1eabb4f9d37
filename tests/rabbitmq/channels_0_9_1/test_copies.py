"""Further routing keys of a message: the header CC, and the annotation `x-cc` of AMQP 1.0."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import ferrymq.blocking as ferrymq
from ferrymq import Message
from ferrymq.errors import DeliveryRejected
from tests.rabbitmq.channels_0_9_1.served import Served, serve

COPY = pika.BasicProperties(headers={"CC": ["copy"]})


def bound(channel: BlockingChannel, exchange: str, **queues: str) -> None:
    """Declare an exchange, and queues bound with keys."""
    channel.exchange_declare(exchange)
    for queue, key in queues.items():
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange, key)


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_a_dead_letter_with_its_old_key_is_routed_by_the_copies_too() -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        bound(channel, "letters", dead="first", dead_copy="copy", both="first")
        channel.queue_bind("both", "letters", "copy")
        channel.queue_declare("work", arguments={"x-dead-letter-exchange": "letters"})
        channel.exchange_declare("orders")
        channel.queue_bind("work", "orders", "first")
        channel.basic_publish("orders", "first", b"x", COPY)
        method, _, _ = channel.basic_get("work")
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
        # Dead letters are published after all that came in the same read.
        channel.queue_declare("work", passive=True)
        for queue in ("dead", "dead_copy", "both"):
            assert bodies(channel, queue) == [b"x"]

    serve(work)


@pytest.mark.parametrize("target", ["/exchanges/orders/first", "/exchanges/orders"])
def test_copies_of_a_publisher_of_amqp_1_0(target: str) -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        bound(channel, "orders", one="first", other="copy", both="first")
        channel.queue_bind("both", "orders", "copy")
        with ferrymq.connect(f"amqp://127.0.0.1:{served.port}") as connection:
            sender = connection.sender(target)
            copies = {"x-cc": ["copy", "nowhere"]}
            sender.send(Message(b"x", subject="first", message_annotations=copies))
            with connection.transaction() as transaction:
                message = Message(b"y", subject="first", message_annotations=copies)
                sender.send(message, transaction=transaction)
        for queue in ("one", "other", "both"):
            assert bodies(channel, queue) == [b"x", b"y"]

    serve(work)


def test_copies_of_a_publisher_of_amqp_1_0_need_the_right_too() -> None:
    rules: list[dict[str, object]] = [
        rule
        for who in ("*", "anonymous")
        for rule in (
            {"who": who, "may": "*", "where": ["one", "other", "/exchanges/orders::first"]},
            {"who": who, "may": ["create", "manage"], "where": "/exchanges/orders"},
        )
    ]

    def work(served: Served) -> None:
        channel = served.channel()
        bound(channel, "orders", one="first", other="copy")
        with ferrymq.connect(f"amqp://127.0.0.1:{served.port}") as connection:
            sender = connection.sender("/exchanges/orders/first")
            sender.send(Message(b"x"))
            with pytest.raises(DeliveryRejected, match="not allowed to you"):
                sender.send(Message(b"y", message_annotations={"x-cc": ["copy"]}))
        assert bodies(channel, "one") == [b"x"] and bodies(channel, "other") == []

    serve(work, rules=rules)
