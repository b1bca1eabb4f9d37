"""Cases for pika: queues, exchanges and bindings."""

from __future__ import annotations

import time
from typing import Any

from pika.exceptions import (
    ChannelClosedByBroker,
)

from tests.interop.amqp_0_9_1.pika_client import (
    Properties,
    bodies,
    channel,
    connected,
    declared,
    gone,
    got,
    nothing,
    put,
    refused,
    until,
    watch,
)
from tests.interop.amqp_0_9_1.place import PATIENCE, Place
from tests.interop.features.trial import expect


def queue_declare(at: Place) -> None:
    with channel(at) as ch:
        ok = ch.queue_declare(at.name(), durable=True).method
        expect((ok.queue, ok.message_count, ok.consumer_count), (at.name(), 0, 0))
        put(ch, at.name(), "one", "two", "three")
        watch(ch, at.name(), auto_ack=False)
        ch.basic_qos(prefetch_count=1)
        with connected(at) as other:
            second = other.channel()
            until(
                ch,
                lambda: second.queue_declare(at.name(), durable=True).method.consumer_count == 1,
                "the count of consumers",
            )
        ch.close()
        ch = ch.connection.channel()
        until(
            ch,
            lambda: ch.queue_declare(at.name(), passive=True).method.message_count == 3,
            "three messages",
        )
        expect(ch.queue_purge(at.name()).method.message_count, 3)
        put(ch, at.name(), "four")
        expect(ch.queue_delete(at.name()).method.message_count, 1)
        expect(ch.queue_delete(at.name()).method.message_count, 0)


def queue_arguments(at: Place) -> None:
    kinds: list[dict[str, object]] = [
        {"x-queue-type": "classic", "x-queue-mode": "lazy"},
        {"x-message-ttl": 60_000, "x-expires": 60_000},
        {"x-max-length": 10, "x-max-length-bytes": 10_000, "x-overflow": "reject-publish"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "elsewhere"},
        {"x-single-active-consumer": True},
        {"x-max-priority": 10},
        {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-quorum-initial-group-size": 1},
        {"x-queue-type": "stream", "x-max-age": "7D", "x-stream-max-segment-size-bytes": 100_000},
    ]
    with connected(at) as connection:
        for number, arguments in enumerate(kinds):
            name = at.name(str(number))
            for _ in range(2):
                connection.channel().queue_declare(name, durable=True, arguments=arguments)
            connection.channel().queue_delete(name)
        for wrong in ({"x-message-ttl": "soon"}, {"x-max-priority": 1000}, {"x-expires": 0}):
            ch = connection.channel()
            refused(406, lambda: ch.queue_declare(at.name(), arguments=wrong))  # noqa: B023


def server_named(at: Place) -> None:
    with channel(at) as ch:
        name = ch.queue_declare("", exclusive=True).method.queue
        assert name.startswith("amq.gen"), name
        # The empty name then means the last queue that the channel has declared.
        ch.queue_bind("", "amq.direct", at.name())
        ch.basic_publish("amq.direct", at.name(), b"one")
        expect(got(ch, name)[2], b"one")
        refused(403, lambda: ch.queue_declare("amq.mine"))


def passive(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        ch.queue_declare(at.name(), auto_delete=True)
        # Whatever else a passive declare says is not compared.
        ch.queue_declare(at.name(), passive=True, durable=True)
        ch.queue_delete(at.name())
        refused(404, lambda: ch.queue_declare(at.name(), passive=True))
        ch = connection.channel()
        ch.exchange_declare("amq.topic", passive=True)
        refused(404, lambda: ch.exchange_declare(at.name(), passive=True))


def exclusive(at: Place) -> None:
    with connected(at) as connection, connected(at) as other:
        ch = connection.channel()
        ch.queue_declare(at.name(), exclusive=True)
        for call in (
            lambda c: c.queue_declare(at.name(), exclusive=True),
            lambda c: c.queue_declare(at.name(), passive=True),
            lambda c: c.basic_get(at.name()),
            lambda c: c.basic_consume(at.name(), lambda *_: None),
            lambda c: c.queue_bind(at.name(), "amq.direct", "key"),
            lambda c: c.queue_purge(at.name()),
            lambda c: c.queue_delete(at.name()),
        ):
            second = other.channel()
            refused(405, lambda: call(second))  # noqa: B023
        # Everybody may publish to it.
        put(other.channel(), at.name(), "one")
        expect(bodies(ch, at.name(), 1), ["one"])
        connection.close()
        third = other.channel()
        ended = False
        deadline = time.monotonic() + PATIENCE
        while not ended and time.monotonic() < deadline:
            try:
                third.queue_declare(at.name(), passive=True)
            except ChannelClosedByBroker as error:
                ended = error.reply_code == 404
                third = other.channel()
        assert ended, "the queue did not end with its connection"


def auto_delete(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        ch.queue_declare(at.name(), auto_delete=True)
        ch.exchange_declare(at.name(), "fanout", auto_delete=True)
        ch.queue_bind(at.name(), at.name())
        _, tag = watch(ch, at.name())
        ch.basic_cancel(tag)
        gone(connection, lambda c: c.queue_declare(at.name(), passive=True))
        gone(connection, lambda c: c.exchange_declare(at.name(), passive=True))


def delete_conditions(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        ch.queue_declare(at.name(), auto_delete=True)
        put(ch, at.name(), "one")
        refused(406, lambda: ch.queue_delete(at.name(), if_empty=True))
        ch = connection.channel()
        watch(ch, at.name())
        second = connection.channel()
        refused(406, lambda: second.queue_delete(at.name(), if_unused=True))
        third = connection.channel()
        third.exchange_declare(at.name(), "fanout")
        third.queue_bind(at.name(), at.name())
        refused(406, lambda: third.exchange_delete(at.name(), if_unused=True))
        ch.exchange_delete(at.name())
        ch.queue_delete(at.name())


def default_exchange(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        put(ch, declared(ch, at.name()), "one")
        expect(bodies(ch, at.name(), 1), ["one"])
        refused(403, lambda: ch.queue_bind(at.name(), "", "key"))
        ch = connection.channel()
        refused(403, lambda: ch.exchange_declare("amq.mine", "direct"))


def _routed(
    at: Place, kind: str, bindings: list[tuple[str, Any]], sent: list[tuple[str, Any, str]]
) -> None:
    """Bind a queue for each binding, and expect for each message the queues that are named."""
    with channel(at) as ch:
        ch.exchange_declare(at.name(), kind, auto_delete=True)
        names = [declared(ch, at.name(str(number))) for number in range(len(bindings))]
        for name, (key, arguments) in zip(names, bindings, strict=True):
            ch.queue_bind(name, at.name(), key, arguments=arguments)
        ch.confirm_delivery()
        for key, headers, _ in sent:
            ch.basic_publish(at.name(), key, key.encode() or b"-", Properties(headers=headers))
        for number, name in enumerate(names):
            wanted = [key or "-" for key, _, where in sent if str(number) in where]
            expect(bodies(ch, name, len(wanted)) if wanted else [], wanted)
            nothing(ch, name)


def direct(at: Place) -> None:
    _routed(
        at,
        "direct",
        [("a", None), ("b", None), ("a", None)],
        [("a", None, "02"), ("b", None, "1"), ("c", None, ""), ("a", None, "02")],
    )


def fanout(at: Place) -> None:
    _routed(at, "fanout", [("a", None), ("", None)], [("a", None, "01"), ("x", None, "01")])


def topic(at: Place) -> None:
    _routed(
        at,
        "topic",
        [("a.*.c", None), ("a.#", None), ("#", None), ("*", None)],
        [
            ("a.b.c", None, "012"),
            ("a", None, "123"),
            ("a.b", None, "12"),
            ("", None, "2"),
            ("b.b.c", None, "2"),
        ],
    )


def headers(at: Place) -> None:
    _routed(
        at,
        "headers",
        [
            ("", {"x-match": "all", "kind": "tea", "size": 3}),
            ("", {"x-match": "any", "kind": "tea", "size": 3}),
            ("", {"kind": "tea"}),
        ],
        [
            ("1", {"kind": "tea", "size": 3}, "012"),
            ("2", {"kind": "tea", "size": 4}, "12"),
            ("3", {"kind": "coffee"}, ""),
            ("4", {"size": 3, "more": True}, "1"),
        ],
    )


def exchange_bindings(at: Place) -> None:
    with channel(at) as ch:
        ch.exchange_declare(at.name("first"), "topic", auto_delete=True)
        ch.exchange_declare(at.name("second"), "direct", auto_delete=True)
        ch.exchange_bind(at.name("second"), at.name("first"), "#.red")
        ch.queue_bind(declared(ch, at.name()), at.name("second"), "a.red")
        ch.confirm_delivery()
        for key in ("a.red", "a.blue", "b.red"):
            ch.basic_publish(at.name("first"), key, key.encode())
        expect(bodies(ch, at.name(), 1), ["a.red"])
        ch.exchange_bind(at.name("second"), at.name("first"), "other")
        ch.exchange_unbind(at.name("second"), at.name("first"), "#.red")
        ch.basic_publish(at.name("first"), "a.red", b"not routed")
        nothing(ch, at.name())
        ch.exchange_unbind(at.name("second"), at.name("first"), "other")


def alternate_exchange(at: Place) -> None:
    with channel(at) as ch:
        ch.exchange_declare(at.name("other"), "fanout", auto_delete=True)
        ch.exchange_declare(
            at.name("main"), "direct", arguments={"alternate-exchange": at.name("other")}
        )
        ch.queue_bind(declared(ch, at.name("kept")), at.name("other"))
        ch.queue_bind(declared(ch, at.name()), at.name("main"), "known")
        ch.confirm_delivery()
        ch.basic_publish(at.name("main"), "known", b"one", mandatory=True)
        ch.basic_publish(at.name("main"), "unknown", b"two", mandatory=True)
        expect(bodies(ch, at.name(), 1), ["one"])
        expect(bodies(ch, at.name("kept"), 1), ["two"])
        ch.exchange_delete(at.name("main"))
