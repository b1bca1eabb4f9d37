"""Acknowledgements of many deliveries at once."""

from __future__ import annotations

from pika.adapters.blocking_connection import BlockingChannel

from tests.rabbitmq.channels_0_9_1.served import Served, serve


def _take(channel: BlockingChannel, count: int) -> list[int]:
    """Publish messages and take them; return the numbers of the deliveries."""
    channel.queue_declare("orders")
    tags = []
    for number in range(count):
        channel.basic_publish("", "orders", b"%d" % number)
        method, _, _ = channel.basic_get("orders")
        assert method is not None
        tags.append(method.delivery_tag)
    return tags


def _left(served: Served) -> list[bytes]:
    """Return the bodies that are in the queue."""
    channel = served.channel()
    found = []
    while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_single_ones_and_all_up_to_one() -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        tags = _take(channel, 8)
        channel.basic_ack(tags[1], multiple=True)
        channel.basic_ack(tags[3])
        channel.basic_ack(tags[4], multiple=True)
        channel.basic_nack(tags[6], requeue=False)
        channel.connection.close()
        assert _left(served) == [b"5", b"7"]

    serve(work)


def test_all_up_to_one_after_a_rollback() -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        tags = _take(channel, 6)
        channel.tx_select()
        channel.basic_ack(tags[4], multiple=True)
        channel.tx_rollback()
        channel.basic_ack(tags[2], multiple=True)
        channel.tx_commit()
        channel.basic_ack(0, multiple=True)
        channel.tx_rollback()
        channel.connection.close()
        assert _left(served) == [b"3", b"4", b"5"]

    serve(work)


def test_the_last_of_many_when_the_others_are_gone() -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        tags = _take(channel, 20)
        for tag in tags[1:18]:
            channel.basic_ack(tag)
        channel.basic_ack(tags[18], multiple=True)
        channel.connection.close()
        assert _left(served) == [b"19"]

    serve(work)
