"""The class tx: what RabbitMQ's page on broker semantics says of it, and what the broker adds."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.rabbitmq.channels_0_9_1.served import Served, serve


def _count(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def _begun(served: Served, *bodies: bytes) -> tuple[BlockingChannel, BlockingChannel]:
    """Return a channel in a transaction, and one beside it; the queue ``q`` has these messages."""
    channel, other = served.channel(), served.channel()
    other.queue_declare("q")
    for body in bodies:
        other.basic_publish("", "q", body)
    assert _count(other, "q") == len(bodies)
    channel.tx_select()
    return channel, other


def test_messages_are_there_with_the_commit(tmp_path: Path) -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served)
        other.queue_declare("r", durable=True)
        other.queue_bind("r", "amq.fanout")
        for exchange, key in (("", "q"), ("amq.fanout", ""), ("", "r")):
            channel.basic_publish(exchange, key, b"x", pika.BasicProperties(delivery_mode=2))
        assert (_count(channel, "q"), _count(other, "r")) == (0, 0)
        channel.tx_commit()
        assert (_count(other, "q"), _count(other, "r")) == (1, 2)

    serve(work, tmp_path)


def test_a_rollback_forgets_messages_and_keeps_deliveries() -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served, b"a", b"b", b"c")
        tags = [channel.basic_get("q")[0].delivery_tag for _ in range(3)]
        channel.basic_publish("", "q", b"d")
        channel.basic_ack(tags[1])
        channel.basic_nack(tags[0])
        channel.tx_rollback()
        # Nothing has returned: the client settles the deliveries in the next transaction.
        assert _count(other, "q") == 0
        channel.basic_ack(tags[2], multiple=True)
        channel.tx_commit()
        channel.close()
        assert _count(other, "q") == 0

    serve(work)


@pytest.mark.parametrize("requeue", [True, False])
def test_rejections_are_part_of_it(requeue: bool) -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served, b"a")
        tag = channel.basic_get("q")[0].delivery_tag
        channel.basic_reject(tag, requeue=requeue)
        assert _count(channel, "q") == 0
        channel.tx_commit()
        assert _count(other, "q") == (1 if requeue else 0)

    serve(work)


def test_declarations_and_gets_are_not_part_of_it() -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served, b"a")
        channel.queue_declare("made")
        assert channel.basic_get("q", auto_ack=True)[2] == b"a"
        channel.tx_rollback()
        assert (_count(other, "made"), _count(other, "q")) == (0, 0)

    serve(work)


@pytest.mark.parametrize("unknown", ["exchange", "tag", "settled"])
def test_faults_are_found_at_once(unknown: str) -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served, b"a")
        channel.basic_publish("", "q", b"b")
        if unknown == "exchange":
            channel.basic_publish("nowhere", "q", b"c")
        else:
            tag = channel.basic_get("q")[0].delivery_tag
            channel.basic_ack(tag)
            channel.basic_ack(tag if unknown == "settled" else 77)
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.queue_declare("q", passive=True)
        assert caught.value.reply_code == (404 if unknown == "exchange" else 406)
        # The channel has ended without a commit: the delivery returns.
        assert _count(other, "q") == 1

    serve(work)


def test_a_message_that_goes_nowhere_is_returned_before_the_answer() -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served)
        returned: list[bytes] = []
        channel.add_on_return_callback(lambda *told: returned.append(told[3]))
        channel.basic_publish("", "nowhere", b"x", mandatory=True)
        channel.basic_publish("", "nowhere", b"y")
        channel.basic_publish("", "q", b"z")
        _count(channel, "q")
        assert returned == []
        channel.tx_commit()
        channel.connection.process_data_events(0)
        assert returned == [b"x"]
        assert _count(other, "q") == 1

    serve(work)


def test_a_full_queue_refuses_all_of_it() -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served, b"a")
        full = {"x-max-length": 2, "x-overflow": "reject-publish"}
        other.queue_declare("full", arguments=full)
        tag = channel.basic_get("q")[0].delivery_tag
        channel.basic_ack(tag)
        channel.basic_publish("", "q", b"x")
        for _ in range(3):
            channel.basic_publish("", "full", b"x")
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.tx_commit()
        assert caught.value.reply_code == 406
        assert (_count(other, "full"), _count(other, "q")) == (0, 1)
        # No room is kept for what was refused.
        again = served.channel()
        again.tx_select()
        again.basic_publish("", "full", b"x")
        again.basic_publish("", "full", b"x")
        again.tx_commit()
        assert _count(other, "full") == 2

    serve(work)


@pytest.mark.parametrize("end", ["tx_commit", "tx_rollback", "close"])
def test_its_messages_count_as_memory_until_its_end(end: str) -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served)
        before = served.broker.agenda.held
        channel.basic_publish("", "q", b"x" * 5000)
        channel.basic_publish("", "nowhere", b"x" * 5000)
        assert _count(channel, "q") == 0
        assert served.broker.agenda.held > before + 10_000
        getattr(channel, end)()
        other.queue_purge("q")
        assert served.broker.agenda.held == before

    serve(work)


def test_deliveries_of_a_cancelled_consumer_stay_part_of_it() -> None:
    def work(served: Served) -> None:
        channel, other = _begun(served, b"a", b"b")
        came: list[int] = []

        def on_message(_: object, method: pika.spec.Basic.Deliver, *__: object) -> None:
            came.append(method.delivery_tag)

        tag = channel.basic_consume("q", on_message)
        while len(came) < 2:
            channel.connection.process_data_events(1)
        channel.basic_ack(came[0])
        channel.basic_cancel(tag)
        channel.tx_commit()
        channel.close()
        assert _count(other, "q") == 1

    serve(work)
