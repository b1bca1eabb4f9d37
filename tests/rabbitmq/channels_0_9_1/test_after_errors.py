"""What a client has sent after the method that closed its channel."""

from __future__ import annotations

from ferrymq_types_0_9_1.basic import BasicConsume, BasicGet, BasicPublish
from ferrymq_types_0_9_1.queue import QueueDeclare
from ferrymq_types_0_9_1.tx import TxCommit, TxSelect
from tests.hostile.client_0_9_1 import Client091
from tests.rabbitmq.channels_0_9_1.served import Served, serve
from tests.rabbitmq.engine_0_9_1.client import body, frame, header, publication

BAD = (
    frame(1, BasicPublish(exchange="nowhere", routing_key="orders")) + header(1, 1) + body(1, b"x")
)


def _count(served: Served) -> int:
    """Return how many messages are ready."""
    declared = served.channel().queue_declare("orders", passive=True)
    return int(declared.method.message_count)


def test_nothing_is_published_or_taken_after_an_error() -> None:
    def work(served: Served) -> None:
        with Client091(served.port) as client:
            client.send(
                QueueDeclare(queue="orders"),
                publication(1, b"before", "orders"),
                BAD,
                publication(1, b"after", "orders") * 3,
                BasicGet(queue="orders", no_ack=True),
                BasicConsume(queue="orders", no_ack=True),
            )
            assert client.until("channel.close").reply_code == 404
        assert _count(served) == 1

    serve(work)


def test_a_transaction_is_not_committed_after_an_error() -> None:
    def work(served: Served) -> None:
        with Client091(served.port) as client:
            client.send(
                QueueDeclare(queue="orders"),
                TxSelect(),
                publication(1, b"one", "orders"),
                BAD,
                publication(1, b"two", "orders"),
                TxCommit(),
            )
            assert client.until("channel.close").reply_code == 404
        assert _count(served) == 0

    serve(work)


def test_an_error_that_ends_the_connection_ends_all_of_it() -> None:
    def work(served: Served) -> None:
        with Client091(served.port) as client:
            client.send(
                QueueDeclare(queue="orders"),
                frame(1, BasicPublish(routing_key="orders", immediate=True))
                + header(1, 1)
                + body(1, b"x"),
                publication(1, b"after", "orders"),
            )
            assert client.until("connection.close").reply_code == 540
        assert _count(served) == 0

    serve(work)
