"""Who holds messages of AMQP 0-9-1: channels are shown as sessions, and consumers as links."""

from __future__ import annotations

import pika

from ferrymq import ManagementError, blocking
from tests.rabbitmq.channels_0_9_1.served import Served, serve


def test_channels_and_consumers_tell_what_they_hold() -> None:
    def work(served: Served) -> None:
        connection = served.connect()
        channel = connection.channel()
        channel.queue_declare("orders")
        channel.basic_qos(prefetch_count=5)
        channel.basic_consume("orders", lambda *_: None, consumer_tag="taker")
        for _ in range(7):
            channel.basic_publish("", "orders", b"x")
        channel.queue_declare("orders", passive=True)
        other = served.channel()
        assert other.basic_get("orders")[0] is not None
        with (
            blocking.connect(f"amqp://127.0.0.1:{served.port}") as client,
            client.management() as management,
        ):
            shown = {row["name"]: row for row in management.query("connection")}
            row = next(each for each in shown.values() if each["consumers"] == 1)
            assert (row["protocol"], row["channels"]) == ("AMQP 0-9-1", 1)
            assert (row["unsettled"], row["messages-received"], row["messages-sent"]) == (5, 7, 5)
            assert str(row["product"]).startswith("Pika") and row["mechanism"] == "PLAIN"
            number = row["name"]
            (session,) = [
                each for each in management.query("session") if each["connection"] == number
            ]
            assert session["identity"] == f"{number}/1"
            assert (session["unsettled"], session["prefetch"]) == (5, 5)
            listed = management.request("LIST-LINKS", "queue", "orders", {}).map()
            (link,) = listed["links"]  # type: ignore[misc]
            assert link["identity"] == f"{number}/1/receiver/taker"
            assert (link["unsettled"], link["credit"], link["prefetch"]) == (5, 0, 5)
            # That of basic.get.
            assert listed["elsewhere"] == 1
            management.request("DELETE", "link", str(link["identity"]), {"reason": "stuck"})
            cancelled: list[object] = []
            channel.add_on_cancel_callback(cancelled.append)
            while not cancelled:
                connection.process_data_events(time_limit=5)
            assert isinstance(cancelled[0], pika.frame.Method)
            assert management.read("queue", "orders")["available"] == 6
            assert listed["total"] == 1
            try:
                management.read("link", str(link["identity"]))
            except ManagementError as error:
                assert error.status == 404
            # An acknowledgement that comes too late changes nothing.
            channel.basic_ack(5, multiple=True)
            assert channel.queue_declare("orders", passive=True).method.message_count == 6

    serve(work)


def test_a_publisher_above_its_rate_is_not_read_for_a_while() -> None:
    def work(served: Served) -> None:
        served.broker.rate_limits.messages = 100
        channel = served.channel()
        channel.queue_declare("orders")
        for _ in range(130):
            channel.basic_publish("", "orders", b"x")
        # It is answered when the time is over.
        assert channel.queue_declare("orders", passive=True).method.message_count == 130
        assert served.broker.counters.throttles >= 1

    serve(work)
