"""Where a consumer of a stream begins (`x-stream-offset`)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ConnectionClosedByBroker

from tests.rabbitmq.channels_0_9_1.served import Served, serve

STREAM = {"x-queue-type": "stream"}


def _stream(served: Served) -> BlockingChannel:
    channel = served.channel()
    channel.queue_declare("log", durable=True, arguments=STREAM)
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", "log", b"%d" % number)
    channel.basic_qos(prefetch_count=10)
    return channel


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("first", [b"0", b"1", b"2", b"end"]),
        ("last", [b"2", b"end"]),
        ("next", [b"end"]),
        (1, [b"1", b"2", b"end"]),
        (3, [b"end"]),
        (1000, [b"end"]),
        ("5m", [b"0", b"1", b"2", b"end"]),
        ("7D", [b"0", b"1", b"2", b"end"]),
        (datetime(2020, 1, 1, tzinfo=UTC), [b"0", b"1", b"2", b"end"]),
        (datetime(2120, 1, 1, tzinfo=UTC), [b"end"]),
    ],
)
def test_a_consumer_begins_at(offset: object, expected: list[bytes]) -> None:
    def work(served: Served) -> None:
        channel = _stream(served)
        came: list[bytes] = []

        def on_message(_: BlockingChannel, method: object, __: object, body: bytes) -> None:
            came.append(body)
            channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

        channel.basic_consume("log", on_message, arguments={"x-stream-offset": offset})
        channel.basic_publish("", "log", b"end")
        while not came or came[-1] != b"end":
            channel.connection.process_data_events(1)
        assert came == expected

    serve(work)


def test_a_prefetch_and_acknowledgements_are_needed() -> None:
    def work(served: Served) -> None:
        _stream(served)
        for auto_ack, code, fault in (
            (False, 406, ChannelClosedByBroker),
            (True, 540, AMQPConnectionError),
        ):
            channel = served.channel()
            with pytest.raises(fault) as caught:
                channel.basic_consume("log", lambda *_: None, auto_ack=auto_ack)
            if isinstance(caught.value, ChannelClosedByBroker | ConnectionClosedByBroker):
                assert caught.value.reply_code == code

    serve(work)


@pytest.mark.parametrize("offset", ["soon", -1, True, "5 minutes"])
def test_other_places_are_refused(offset: object) -> None:
    def work(served: Served) -> None:
        channel = _stream(served)
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.basic_consume("log", lambda *_: None, arguments={"x-stream-offset": offset})
        assert caught.value.reply_code == 406

    serve(work)
