"""Cases for pika: tx, request and reply, both protocols together."""

from __future__ import annotations

from typing import Any

import ferrymq
from ferrymq import blocking
from tests.interop.amqp_0_9_1.pika_client import (
    Properties,
    all_came,
    bodies,
    channel,
    connected,
    declared,
    got,
    nothing,
    put,
    refused,
    watch,
)
from tests.interop.amqp_0_9_1.pika_publishing import PROPERTIES
from tests.interop.amqp_0_9_1.place import WATCH, Place
from tests.interop.features.trial import expect


def tx_commit(at: Place) -> None:
    with connected(at) as connection:
        ch, other = connection.channel(), connection.channel()
        put(other, declared(other, at.name()), "old")
        ch.tx_select()
        ch.basic_ack(got(ch, at.name())[0].delivery_tag)
        put(ch, at.name(), "one", "two")
        other.connection.process_data_events(WATCH)
        nothing(other, at.name())
        ch.tx_commit()
        expect(bodies(other, at.name(), 2), ["one", "two"])
        put(ch, at.name(), "three")
        ch.tx_commit()
        expect(bodies(other, at.name(), 1), ["three"])


def tx_rollback(at: Place) -> None:
    with connected(at) as connection:
        ch, other = connection.channel(), connection.channel()
        put(other, declared(other, at.name()), "old")
        ch.tx_select()
        old = got(ch, at.name())
        ch.basic_ack(old[0].delivery_tag)
        put(ch, at.name(), "one")
        ch.tx_rollback()
        nothing(other, at.name())
        # The acknowledgement is undone, too: the channel still has the delivery.
        ch.basic_nack(old[0].delivery_tag, requeue=True)
        ch.tx_commit()
        expect(got(other, at.name())[2], b"old")
        third = connection.channel()
        refused(406, third.tx_commit)


def rpc(at: Place) -> None:
    with connected(at) as connection:
        server, client = connection.channel(), connection.channel()
        declared(server, at.name())

        def on_request(_: object, method: Any, props: Any, body: bytes) -> None:
            answer = Properties(correlation_id=props.correlation_id)
            server.basic_publish("", props.reply_to, body.upper(), answer)
            server.basic_ack(method.delivery_tag)

        server.basic_consume(at.name(), on_request)
        inbox = client.queue_declare("", exclusive=True).method.queue
        came, _ = watch(client, inbox, auto_ack=True)
        put(client, at.name(), "one", reply_to=inbox, correlation_id="1")
        all_came(client, came, 1)
        expect((came[0][1].correlation_id, came[0][2]), ("1", b"ONE"))


def direct_reply_to(at: Place) -> None:
    with connected(at) as connection:
        server, client = connection.channel(), connection.channel()
        declared(server, at.name())
        came, _ = watch(client, "amq.rabbitmq.reply-to", auto_ack=True)
        put(client, at.name(), "one", reply_to="amq.rabbitmq.reply-to", correlation_id="1")
        _, props, _ = got(server, at.name())
        assert props.reply_to.startswith("amq.rabbitmq.reply-to."), props.reply_to
        with channel(at) as other:
            put(other, props.reply_to, "answer", correlation_id="1")
            all_came(client, came, 1)
        expect((came[0][1].correlation_id, came[0][2]), ("1", b"answer"))
        third = connection.channel()
        refused(406, lambda: watch(third, "amq.rabbitmq.reply-to"))
        fourth = connection.channel()
        put(fourth, at.name(), "two", reply_to="amq.rabbitmq.reply-to")
        refused(406, lambda: fourth.queue_declare("", exclusive=True))


def two_protocols(at: Place) -> None:
    address = at.address.replace("{}", at.name())
    with channel(at) as ch, blocking.connect(at.amqp_1_0) as connection:
        ch.queue_declare(at.name())
        given = {**PROPERTIES, "headers": {"color": "red", "size": 3}}
        put(ch, at.name(), "from 0-9-1", **given)
        receiver = connection.receiver(address)
        delivery = receiver.receive()
        message = delivery.message
        data = message.body if isinstance(message.body, bytes) else b"".join(message.body)
        expect(data, b"from 0-9-1")
        assert message.properties is not None and message.header is not None
        expect(str(message.properties.content_type), "application/json")
        expect(message.properties.correlation_id, "c-1")
        expect(message.properties.message_id, "m-1")
        expect((message.header.durable, message.header.priority), (True, 5))
        application = dict(message.application_properties or {})
        expect({name: application[name] for name in ("color", "size")}, {"color": "red", "size": 3})
        delivery.accept()
        receiver.close()
        sender = connection.sender(address)
        sender.send(
            ferrymq.Message(
                body=b"from 1.0",
                durable=True,
                priority=7,
                message_id="m-2",
                correlation_id="c-2",
                content_type="text/plain",
                application_properties={"color": "blue", "size": 4, "deep": True},
            )
        )
        method, props, body = got(ch, at.name())
        expect((body, method.routing_key), (b"from 1.0", at.name()))
        expect((props.delivery_mode, props.priority), (2, 7))
        expect((props.message_id, props.correlation_id), ("m-2", "c-2"))
        expect(props.content_type, "text/plain")
        expect(
            {name: props.headers[name] for name in ("color", "size")}, {"color": "blue", "size": 4}
        )
        ch.queue_delete(at.name())
