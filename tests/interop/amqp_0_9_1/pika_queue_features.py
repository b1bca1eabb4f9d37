"""Cases for pika: dead letters, limits, priorities, streams."""

from __future__ import annotations

import datetime
import time

from tests.interop.amqp_0_9_1.pika_client import (
    all_came,
    bodies,
    channel,
    connected,
    declared,
    gone,
    got,
    nothing,
    put,
    refused,
    watch,
)
from tests.interop.amqp_0_9_1.place import Place
from tests.interop.features.trial import expect


def dead_letter(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name("dead"))
        declared(
            ch,
            at.name(),
            x_dead_letter_exchange="",
            x_dead_letter_routing_key=at.name("dead"),
        )
        put(ch, at.name(), "one", headers={"own": 1})
        ch.basic_reject(got(ch, at.name())[0].delivery_tag, requeue=False)
        method, props, body = got(ch, at.name("dead"))
        expect((body, method.redelivered), (b"one", False))
        expect((method.exchange, method.routing_key), ("", at.name("dead")))
        death = props.headers["x-death"][0]
        assert isinstance(death.pop("time"), datetime.datetime), "the time is missing"
        expect(
            death,
            {
                "count": 1,
                "reason": "rejected",
                "queue": at.name(),
                "exchange": "",
                "routing-keys": [at.name()],
            },
        )
        expect(props.headers["x-first-death-reason"], "rejected")
        expect(props.headers["x-first-death-queue"], at.name())
        expect(props.headers["x-first-death-exchange"], "")
        expect(props.headers["own"], 1)


def message_ttl(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name("dead"))
        to_dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": at.name("dead")}
        declared(ch, at.name(), x_message_ttl=50, **to_dead)
        declared(ch, at.name("plain"), **to_dead)
        put(ch, at.name(), "one")
        _, props, _ = got(ch, at.name("dead"))
        expect(props.headers["x-death"][0]["reason"], "expired")
        put(ch, at.name("plain"), "two", expiration="50")
        _, props, body = got(ch, at.name("dead"))
        expect((body, props.expiration), (b"two", None))
        expect(props.headers["x-death"][0]["original-expiration"], "50")
        nothing(ch, at.name())
        nothing(ch, at.name("plain"))


def expires(at: Place) -> None:
    with connected(at) as connection:
        connection.channel().queue_declare(at.name(), arguments={"x-expires": 100})
        time.sleep(0.2)
        gone(connection, lambda c: c.queue_declare(at.name(), passive=True))


def max_length(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name("dead"))
        declared(
            ch,
            at.name(),
            x_max_length=2,
            x_dead_letter_exchange="",
            x_dead_letter_routing_key=at.name("dead"),
        )
        ch.confirm_delivery()
        put(ch, at.name(), "one", "two", "three")
        expect(bodies(ch, at.name(), 2), ["two", "three"])
        _, props, body = got(ch, at.name("dead"))
        expect((body, props.headers["x-death"][0]["reason"]), (b"one", "maxlen"))
        declared(ch, at.name("bytes"), x_max_length_bytes=1000)
        put(ch, at.name("bytes"), "1" * 600, "2" * 600)
        expect(bodies(ch, at.name("bytes"), 1), ["2" * 600])


def priority(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name(), x_max_priority=10)
        ch.confirm_delivery()
        for number in (1, 5, 3, 9, 5):
            put(ch, at.name(), str(number), priority=number)
        put(ch, at.name(), "none")
        expect(bodies(ch, at.name(), 6), ["9", "5", "5", "3", "1", "none"])


def delivery_limit(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name("dead"))
        arguments = {
            "x-queue-type": "quorum",
            "x-delivery-limit": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": at.name("dead"),
        }
        ch.queue_declare(at.name(), durable=True, arguments=arguments)
        ch.confirm_delivery()
        put(ch, at.name(), "one")
        counts = []
        for _ in range(3):
            method, props, _ = got(ch, at.name())
            counts.append((props.headers or {}).get("x-delivery-count", 0))
            ch.basic_nack(method.delivery_tag, requeue=True)
        expect(counts, [0, 1, 2])
        _, props, _ = got(ch, at.name("dead"))
        expect(props.headers["x-death"][0]["reason"], "delivery_limit")
        ch.queue_delete(at.name())


def stream(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        ch.queue_declare(at.name(), durable=True, arguments={"x-queue-type": "stream"})
        ch.confirm_delivery()
        put(ch, at.name(), *(str(number) for number in range(10)))
        for position, wanted in (("first", 0), (4, 4), ("next", 10)):
            reader = connection.channel()
            reader.basic_qos(prefetch_count=20)
            came, _ = watch(reader, at.name(), arguments={"x-stream-offset": position})
            if position == "next":
                put(ch, at.name(), "10")
            last = 11 if position == "next" else 10
            all_came(reader, came, last - wanted)
            expect([each[2] for each in came], [b"%d" % each for each in range(wanted, last)])
            offsets = [each[1].headers["x-stream-offset"] for each in came]
            expect(offsets, list(range(wanted, last)))
            # pika gives back what it has when a channel ends, which streams do not have.
            reader.basic_ack(0, multiple=True)
            reader.close()
        reader = connection.channel()
        refused(406, lambda: watch(reader, at.name()))  # without prefetch
        ch.queue_delete(at.name())
