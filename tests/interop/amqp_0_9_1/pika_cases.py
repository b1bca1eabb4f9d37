"""Cases for pika's blocking connection: a function for each feature.

One module because the page has them in one column.
"""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    NackError,
    UnroutableError,
)

import ferrymq
from ferrymq import blocking
from tests.interop.amqp_0_9_1.place import PATIENCE, WATCH, Place
from tests.interop.features.trial import expect

Properties = pika.BasicProperties


def parameters(at: Place, **more: Any) -> pika.ConnectionParameters:
    """Return the parameters of a connection; `more` are others than the usual ones."""
    login = more.pop("login", (at.user, at.password))
    return pika.ConnectionParameters(
        host=at.host,
        port=more.pop("port", at.port),
        credentials=pika.PlainCredentials(*login),
        **more,
    )


@contextmanager
def connected(at: Place, **more: Any) -> Iterator[pika.BlockingConnection]:
    """Connect, and close the connection in the end if it is open."""
    connection = pika.BlockingConnection(parameters(at, **more))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@contextmanager
def channel(at: Place, **more: Any) -> Iterator[BlockingChannel]:
    """Open a channel on a connection of its own."""
    with connected(at, **more) as connection:
        yield connection.channel()


def declared(ch: BlockingChannel, name: str, **arguments: object) -> str:
    """Declare a queue that ends with the connection; `x_max_length=3` is an argument."""
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    ch.queue_declare(name, exclusive=True, arguments=table or None)
    return name


def put(ch: BlockingChannel, queue: str, *bodies: str, **properties: Any) -> None:
    """Publish messages to a queue."""
    for body in bodies:
        ch.basic_publish("", queue, body.encode(), Properties(**properties) if properties else None)


def take(ch: BlockingChannel, queue: str, count: int = 1, **options: Any) -> list[Any]:
    """Consume so many messages, acknowledge them, and return `(method, properties, body)`."""
    taken = []
    for method, properties, body in ch.consume(queue, inactivity_timeout=PATIENCE, **options):
        assert method is not None, f"{len(taken)} messages came instead of {count}"
        taken.append((method, properties, body))
        if not options.get("auto_ack"):
            ch.basic_ack(method.delivery_tag)
        if len(taken) == count:
            break
    ch.cancel()
    return taken


def bodies(ch: BlockingChannel, queue: str, count: int) -> list[str]:
    """Take messages and return their bodies."""
    return [body.decode() for _, _, body in take(ch, queue, count)]


def got(ch: BlockingChannel, queue: str) -> Any:
    """Get a message, which comes soon; return `(method, properties, body)`."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        method, properties, body = ch.basic_get(queue)
        if method is not None:
            return method, properties, body
        ch.connection.process_data_events(0.01)
    raise AssertionError(f"no message came to {queue}")


def redelivered(messages: list[Any]) -> list[tuple[bytes, bool]]:
    """Return the bodies of messages, and whether they are said to come again."""
    return [(body, method.redelivered) for method, _, body in messages]


def nothing(ch: BlockingChannel, queue: str) -> None:
    """Expect that the queue is empty."""
    expect(ch.basic_get(queue)[2], None)


def refused(code: int, call: Callable[[], object]) -> str:
    """Expect that the channel is closed with the code; return the text."""
    try:
        result = call()
    except ChannelClosedByBroker as error:
        expect(error.reply_code, code)
        return str(error.reply_text)
    raise AssertionError(f"it was not refused: {result!r}")


def watch(ch: BlockingChannel, queue: str, **options: Any) -> tuple[list[Any], str]:
    """Consume into a list, which `until` fills; return the list and the tag of the consumer."""
    came: list[Any] = []

    def on_message(_: object, method: Any, properties: Any, body: bytes) -> None:
        came.append((method, properties, body))

    return came, ch.basic_consume(queue, on_message, **options)


def until(ch: BlockingChannel, done: Callable[[], bool], what: str) -> None:
    """Process what comes until `done`."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        ch.connection.process_data_events(0.02)


def _came(ch: BlockingChannel, came: list[Any], count: int) -> None:
    until(ch, lambda: len(came) >= count, f"{count} messages; {len(came)} came")


def _quiet(ch: BlockingChannel, came: list[Any], count: int) -> None:
    ch.connection.process_data_events(WATCH)
    expect(len(came), count)


# ── Declaring ────────────────────────────────────────────────────────────────────────────────────


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


def gone(connection: pika.BlockingConnection, call: Callable[[Any], object]) -> None:
    """Expect that what the call names ends soon."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ch = connection.channel()
        try:
            call(ch)
        except ChannelClosedByBroker as error:
            expect(error.reply_code, 404)
            return
        ch.close()
        connection.process_data_events(0.02)
    raise AssertionError("it is still there")


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


# ── Publishing ───────────────────────────────────────────────────────────────────────────────────

PROPERTIES = {
    "content_type": "application/json",
    "content_encoding": "utf-8",
    "headers": {"color": "red"},
    "delivery_mode": 2,
    "priority": 5,
    "correlation_id": "c-1",
    "reply_to": "replies",
    "expiration": "600000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "order",
    "app_id": "shop",
}


def properties(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name())
        given = {**PROPERTIES, "user_id": at.user}
        put(ch, at.name(), "one", **given)
        put(ch, at.name(), "two")
        method, props, body = got(ch, at.name())
        expect((body, method.exchange, method.routing_key), (b"one", "", at.name()))
        expect({name: getattr(props, name) for name in given}, given)
        _, props, _ = got(ch, at.name())
        expect({name: value for name in given if (value := getattr(props, name)) is not None}, {})
        ch.basic_publish("", at.name(), b"", Properties(user_id="mallory"))
        refused(406, lambda: ch.queue_declare(at.name(), passive=True))


HEADERS: dict[str, Any] = {
    "true": True,
    "false": False,
    "small": 7,
    "negative": -7,
    "int": 2**31 - 1,
    "long": 2**40,
    "text": "žluťoučký",
    "empty": "",
    "bytes": b"\0\xff",
    "none": None,
    "decimal": Decimal("1.25"),
    "time": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "list": [1, "two", [3, None], {"four": 4}],
    "table": {"inner": {"deep": [True]}, "empty": {}},
    "x-own": "kept",
}


def header_types(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name())
        put(ch, at.name(), "one", headers=HEADERS)
        came = got(ch, at.name())[1].headers
        for name, value in HEADERS.items():
            expect((name, came.get(name, "nothing")), (name, value))
        expect(set(came), set(HEADERS))
        # A double: pika encodes none, so 0.5 comes from other clients only.


def empty(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "", "one", "")
        expect(bodies(ch, at.name(), 3), ["", "one", ""])


def large(at: Place) -> None:
    body = bytes(range(256)) * 4096
    with channel(at, frame_max=8192) as ch:
        declared(ch, at.name())
        ch.confirm_delivery()
        ch.basic_publish("", at.name(), body)
        assert got(ch, at.name())[2] == body, "another body came"
    with channel(at) as ch:
        declared(ch, at.name("second"))
        ch.basic_publish("", at.name("second"), body)
        assert take(ch, at.name("second"))[0][2] == body, "another body came"


def mandatory(at: Place) -> None:
    with channel(at) as ch:
        returned: list[Any] = []
        ch.add_on_return_callback(lambda *args: returned.append(args[1:]))
        ch.basic_publish("amq.direct", at.name(), b"one", mandatory=True)
        until(ch, lambda: bool(returned), "the message is returned")
        method, _, body = returned[0]
        expect((method.reply_code, method.exchange), (312, "amq.direct"))
        expect((method.routing_key, body), (at.name(), b"one"))
        ch.basic_publish("amq.direct", at.name(), b"dropped")
        ch.basic_publish("missing", at.name(), b"two")
        refused(404, lambda: ch.queue_declare("", exclusive=True))


def confirms(at: Place) -> None:
    with channel(at) as ch:
        ch.confirm_delivery()
        declared(ch, at.name())
        for number in range(50):
            ch.basic_publish("", at.name(), b"%d" % number, Properties(delivery_mode=2))
        expect(bodies(ch, at.name(), 50), [str(number) for number in range(50)])
        try:
            ch.basic_publish("", "missing", b"", mandatory=True)
        except UnroutableError as error:
            expect(error.messages[0].method.reply_code, 312)
        else:
            raise AssertionError("the message was not returned")
        ch.basic_publish("", "missing", b"")


def confirm_nack(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name(), x_max_length=2, x_overflow="reject-publish")
        ch.confirm_delivery()
        sent = 0
        try:
            while sent < 10:
                ch.basic_publish("", at.name(), b"%d" % sent)
                sent += 1
        except NackError:
            expect(sent, 2)
        else:
            raise AssertionError("no message was refused")
        expect(bodies(ch, at.name(), 2), ["0", "1"])
        ch.basic_publish("", at.name(), b"again")


# ── Consuming ────────────────────────────────────────────────────────────────────────────────────


def get(at: Place) -> None:
    with channel(at) as ch:
        nothing(ch, declared(ch, at.name()))
        put(ch, at.name(), "one", "two", "three")
        method, _, body = got(ch, at.name())
        expect((body, method.redelivered, method.delivery_tag), (b"one", False, 1))
        expect(method.message_count, 2)
        expect(ch.basic_get(at.name(), auto_ack=True)[2], b"two")
        ch.basic_ack(1)
        expect(ch.basic_get(at.name())[0].message_count, 0)
        nothing(ch, at.name())


def consume(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name())
        came, tag = watch(ch, at.name(), consumer_tag="mine")
        expect(tag, "mine")
        _, made = watch(ch, declared(ch, at.name("other")))
        assert made, "the consumer has no tag"
        put(ch, at.name(), "one", "two")
        _came(ch, came, 2)
        expect([each[2] for each in came], [b"one", b"two"])
        expect([each[0].consumer_tag for each in came], ["mine", "mine"])
        expect([each[0].delivery_tag for each in came], [1, 2])
        for each in came:
            ch.basic_ack(each[0].delivery_tag)
        until(
            ch,
            lambda: ch.queue_declare(at.name(), passive=True).method.message_count == 0,
            "an empty queue",
        )


def no_ack(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), *(str(number) for number in range(10)))
        came, tag = watch(ch, at.name(), auto_ack=True)
        _came(ch, came, 10)
        ch.basic_cancel(tag)
        nothing(ch, at.name())


def prefetch(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), *(str(number) for number in range(10)))
        ch.basic_qos(prefetch_count=3)
        came, _ = watch(ch, at.name())
        _came(ch, came, 3)
        _quiet(ch, came, 3)
        ch.basic_ack(came[0][0].delivery_tag)
        _came(ch, came, 4)
        _quiet(ch, came, 4)
        ch.basic_ack(0, multiple=True)
        _came(ch, came, 7)
        _quiet(ch, came, 7)


def ack_multiple(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "one", "two", "three", "four")
        tags = [got(ch, at.name())[0].delivery_tag for _ in range(4)]
        ch.basic_ack(tags[1], multiple=True)
        ch.basic_nack(tags[3], multiple=True, requeue=True)
        again = [got(ch, at.name()) for _ in range(2)]
        expect(
            [(each[2], each[0].redelivered) for each in again], [(b"three", True), (b"four", True)]
        )
        ch.basic_ack(0, multiple=True)
        nothing(ch, at.name())


def requeue(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "one", "two")
        first = got(ch, at.name())
        ch.basic_nack(first[0].delivery_tag)
        again = got(ch, at.name())
        expect((again[2], again[0].redelivered), (b"one", True))
        ch.basic_reject(again[0].delivery_tag, requeue=True)
        expect(got(ch, at.name())[2], b"one")
        ch.basic_reject(3, requeue=False)
        expect(got(ch, at.name())[2], b"two")
        nothing(ch, at.name())


def recover(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "one", "two")
        came, _ = watch(ch, at.name())
        _came(ch, came, 2)
        ch.basic_recover(requeue=True)
        _came(ch, came, 4)
        expect(
            [(each[2], each[0].redelivered) for each in came[2:]], [(b"one", True), (b"two", True)]
        )


def close_requeues(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        put(ch, declared(ch, at.name()), "one", "two", "three")
        came, _ = watch(ch, at.name())
        _came(ch, came, 3)
        ch.basic_ack(came[1][0].delivery_tag)
        ch.close()
        ch = connection.channel()
        left = [got(ch, at.name()) for _ in range(2)]
        expect(
            [(each[2], each[0].redelivered) for each in left], [(b"one", True), (b"three", True)]
        )


def cancel(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "one")
        came, tag = watch(ch, at.name())
        _came(ch, came, 1)
        ch.basic_cancel(tag)
        put(ch, at.name(), "two")
        expect(got(ch, at.name())[2], b"two")
        # The delivery outlives its consumer.
        ch.basic_ack(came[0][0].delivery_tag)
        expect(len(came), 1)


def cancel_notify(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        cancelled: list[str] = []
        ch.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        watch(ch, declared(ch, at.name()), consumer_tag="mine")
        connection.channel().queue_delete(at.name())
        until(ch, lambda: bool(cancelled), "the consumer is cancelled")
        expect(cancelled, ["mine"])


def exclusive_consumer(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        _, tag = watch(ch, declared(ch, at.name()), exclusive=True)
        second = connection.channel()
        refused(403, lambda: watch(second, at.name()))
        ch.basic_cancel(tag)
        watch(ch, at.name())
        third = connection.channel()
        refused(403, lambda: watch(third, at.name(), exclusive=True))


def single_active(at: Place) -> None:
    with connected(at) as connection:
        ch, second = connection.channel(), connection.channel()
        declared(ch, at.name(), x_single_active_consumer=True)
        first_came, tag = watch(ch, at.name(), auto_ack=True)
        second_came, _ = watch(second, at.name(), auto_ack=True)
        put(ch, at.name(), "one", "two")
        _came(ch, first_came, 2)
        _quiet(ch, second_came, 0)
        ch.basic_cancel(tag)
        put(ch, at.name(), "three")
        _came(ch, second_came, 1)


def consumer_priority(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        declared(ch, at.name())
        low, _ = watch(ch, at.name(), auto_ack=True)
        high, tag = watch(ch, at.name(), auto_ack=True, arguments={"x-priority": 10})
        put(ch, at.name(), "one", "two", "three")
        _came(ch, high, 3)
        expect(len(low), 0)
        ch.basic_cancel(tag)
        put(ch, at.name(), "four")
        _came(ch, low, 1)


# ── What queues do ───────────────────────────────────────────────────────────────────────────────


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
            _came(reader, came, last - wanted)
            expect([each[2] for each in came], [b"%d" % each for each in range(wanted, last)])
            offsets = [each[1].headers["x-stream-offset"] for each in came]
            expect(offsets, list(range(wanted, last)))
            # pika gives back what it has when a channel ends, which streams do not have.
            reader.basic_ack(0, multiple=True)
            reader.close()
        reader = connection.channel()
        refused(406, lambda: watch(reader, at.name()))  # without prefetch
        ch.queue_delete(at.name())


# ── Transactions and patterns ────────────────────────────────────────────────────────────────────


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
        _came(client, came, 1)
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
            _came(client, came, 1)
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


# ── Errors ───────────────────────────────────────────────────────────────────────────────────────


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


# ── Connections ──────────────────────────────────────────────────────────────────────────────────


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
