"""What a client without a right learns, and what belongs to another connection."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.rabbitmq.channels_0_9_1.served import Served, serve

RULES: list[dict[str, object]] = [
    {"who": "*", "may": "*", "where": ["open", "/exchanges/amq.topic"]},
    {"who": "anonymous", "may": "*", "where": ["open", "/exchanges/amq.topic"]},
]


def _publish(channel: BlockingChannel, exchange: str) -> None:
    channel.basic_publish(exchange, "key", b"x")
    channel.queue_declare("open", passive=True)


@pytest.mark.parametrize("name", ["amq.fanout", "nowhere"])
def test_a_publisher_without_the_right_does_not_learn_which_exchanges_there_are(name: str) -> None:
    def work(served: Served) -> None:
        served.channel().queue_declare("open")
        for _ in range(2):
            with pytest.raises(ChannelClosedByBroker) as caught:
                _publish(served.channel(), name)
            assert caught.value.reply_code == 403
        _publish(served.channel(), "amq.topic")

    serve(work, rules=RULES)


CALLS: dict[str, Callable[[BlockingChannel], object]] = {
    "declare": lambda channel: channel.queue_declare("mine", exclusive=True),
    "passive": lambda channel: channel.queue_declare("mine", passive=True),
    "bind": lambda channel: channel.queue_bind("mine", "amq.fanout"),
    "unbind": lambda channel: channel.queue_unbind("mine", "amq.fanout", ""),
    "consume": lambda channel: channel.basic_consume("mine", lambda *_: None),
    "get": lambda channel: channel.basic_get("mine"),
    "purge": lambda channel: channel.queue_purge("mine"),
    "delete": lambda channel: channel.queue_delete("mine"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_exclusive_queue_is_for_its_connection_only(call: str) -> None:
    def work(served: Served) -> None:
        owner = served.channel()
        owner.queue_declare("mine", exclusive=True)
        with pytest.raises(ChannelClosedByBroker) as caught:
            CALLS[call](served.channel())
        assert caught.value.reply_code == 405
        CALLS[call](owner)
        owner.connection.close()
        with pytest.raises(ChannelClosedByBroker) as caught:
            served.channel().queue_declare("mine", passive=True)
        assert caught.value.reply_code == 404

    serve(work)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_copies_need_the_right_to_send_too(header: str) -> None:
    def work(served: Served) -> None:
        channel = served.channel()
        channel.queue_declare("open")
        properties = pika.BasicProperties(headers={header: ["secret"]})
        channel.basic_publish("", "open", b"x", properties)
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.queue_declare("open", passive=True)
        assert caught.value.reply_code == 403

    serve(work, rules=RULES)
