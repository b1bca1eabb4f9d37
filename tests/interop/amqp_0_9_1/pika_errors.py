"""Cases for pika: what a client that makes a mistake is told."""

from __future__ import annotations

from typing import Any

from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
)

from tests.interop.amqp_0_9_1.pika_client import (
    connected,
    declared,
    got,
    put,
    refused,
)
from tests.interop.amqp_0_9_1.place import Place


def not_found(at: Place) -> None:
    with connected(at) as connection:
        for call in (
            lambda c: c.basic_get("missing"),
            lambda c: c.basic_consume("missing", lambda *_: None),
            lambda c: c.queue_purge("missing"),
            lambda c: c.queue_bind("missing", "amq.direct", "key"),
            lambda c: c.exchange_bind("missing", "amq.direct", "key"),
        ):
            ch = connection.channel()
            text = refused(404, lambda: call(ch))  # noqa: B023
            assert text.startswith("NOT_FOUND"), text
        ch = connection.channel()
        declared(ch, at.name())
        refused(404, lambda: ch.queue_bind(at.name(), "missing", "key"))
        # The connection and its other channels go on.
        connection.channel().queue_declare(at.name(), passive=True)


def precondition(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        declared(ch, at.name(), x_message_ttl=1000)
        text = refused(406, lambda: declared(ch, at.name(), x_message_ttl=2000))
        assert text.startswith("PRECONDITION_FAILED"), text
        ch = connection.channel()
        refused(406, lambda: ch.exchange_declare("amq.direct", "fanout", durable=True))
        ch = connection.channel()
        ch.exchange_declare(at.name(), "direct", auto_delete=True)
        refused(406, lambda: ch.exchange_declare(at.name(), "direct"))
        connection.channel().exchange_delete(at.name())


def access_refused(at: Place) -> None:
    with connected(at, login=(at.guest, at.password)) as connection:
        ch = connection.channel()
        put(ch, "open", "one")
        for call in (
            lambda c: c.queue_declare(at.name()),
            lambda c: c.exchange_declare(at.name(), "fanout"),
            lambda c: c.queue_delete("open"),
            lambda c: c.queue_bind("open", "amq.fanout", ""),
            lambda c: _publish_and_ask(c, "amq.fanout"),
        ):
            ch = connection.channel()
            text = refused(403, lambda: call(ch))  # noqa: B023
            assert text.startswith("ACCESS_REFUSED"), text
        ch = connection.channel()
        ch.queue_purge("open")


def _publish_and_ask(ch: BlockingChannel, exchange: str) -> None:
    ch.basic_publish(exchange, "", b"")
    ch.basic_qos(prefetch_count=1)


def unknown_tag(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        put(ch, declared(ch, at.name()), "one")
        tag = got(ch, at.name())[0].delivery_tag
        ch.basic_ack(tag)
        ch.basic_ack(tag)
        refused(406, lambda: ch.basic_qos(prefetch_count=1))
        ch = connection.channel()
        ch.basic_reject(7)
        refused(406, lambda: ch.basic_qos(prefetch_count=1))


def _not_connected(at: Place, **more: Any) -> str:
    try:
        with connected(at, **more):
            pass
    except AMQPConnectionError as error:
        return f"{type(error).__name__} {error!r}"
    raise AssertionError("it was not refused")


def wrong_password(at: Place) -> None:
    text = _not_connected(at, login=(at.user, "wrong"))
    assert "403" in text, text


def wrong_host(at: Place) -> None:
    text = _not_connected(at, virtual_host="missing")
    assert "530" in text, text
