"""Cases for pika: TLS, virtual hosts, heartbeats, restarts, alarms."""

from __future__ import annotations

import ssl
import time

import pika
from pika.exceptions import (
    AMQPConnectionError,
)

from tests.interop.amqp_0_9_1.pika_client import (
    Properties,
    bodies,
    channel,
    connected,
    declared,
    gone,
    nothing,
    put,
    until,
)
from tests.interop.amqp_0_9_1.place import Place
from tests.interop.features.trial import expect


def tls(at: Place) -> None:
    context = ssl.create_default_context(cafile=at.authority)
    options = pika.SSLOptions(context, "localhost")
    with channel(at, port=at.tls_port, ssl_options=options) as ch:
        put(ch, declared(ch, at.name()), "one")
        expect(bodies(ch, at.name(), 1), ["one"])


def virtual_host(at: Place) -> None:
    with channel(at) as here, channel(at, virtual_host=at.other_host) as there:
        declared(here, at.name())
        declared(there, at.name())
        put(there, at.name(), "one")
        expect(bodies(there, at.name(), 1), ["one"])
        nothing(here, at.name())


def channels(at: Place) -> None:
    with connected(at) as connection:
        opened = [connection.channel() for _ in range(50)]
        declared(opened[0], at.name())
        for number, ch in enumerate(opened):
            put(ch, at.name(), str(number))
        for ch in opened[1:]:
            ch.close()
        expect(sorted(map(int, bodies(opened[0], at.name(), 50))), list(range(50)))
        expect(connection.channel().channel_number, 2)


def heartbeat(at: Place) -> None:
    with connected(at, heartbeat=1) as connection:
        ch = connection.channel()
        # Without heartbeats either side gives up in this time.
        connection.sleep(3.5)
        put(ch, declared(ch, at.name()), "one")
        expect(bodies(ch, at.name(), 1), ["one"])
    with connected(at, heartbeat=1) as connection:
        # This client does not send any: the broker ends the connection.
        time.sleep(4)
        try:
            connection.channel()
        except AMQPConnectionError:
            return
        raise AssertionError("the broker waits for ever")


def restart(at: Place) -> None:
    with channel(at) as ch:
        ch.exchange_declare(at.name(), "topic", durable=True)
        ch.queue_declare(at.name(), durable=True)
        ch.queue_bind(at.name(), at.name(), "a.*")
        ch.queue_declare(at.name("transient"), durable=False)
        ch.confirm_delivery()
        for number in range(20):
            ch.basic_publish(at.name(), "a.b", b"%d" % number, Properties(delivery_mode=2))
        ch.basic_publish(at.name(), "a.b", b"transient", Properties(delivery_mode=1))
    at.restart()
    with connected(at) as connection:
        ch = connection.channel()
        expect(bodies(ch, at.name(), 20), [str(number) for number in range(20)])
        nothing(ch, at.name())
        ch.basic_publish(at.name(), "a.c", b"again")
        expect(bodies(ch, at.name(), 1), ["again"])
        ch.queue_delete(at.name())
        ch.exchange_delete(at.name())
        gone(connection, lambda c: c.queue_declare(at.name("transient"), passive=True))


def blocked(at: Place) -> None:
    with connected(at) as connection:
        told: list[str] = []
        connection.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        ch = connection.channel()
        declared(ch, at.name())
        at.block()
        put(ch, at.name(), "one")
        until(ch, lambda: told == ["blocked"], "the client is told that it is blocked")
        at.unblock()
        until(ch, lambda: told == ["blocked", "unblocked"], "the client may go on")
        expect(bodies(ch, at.name(), 1), ["one"])
