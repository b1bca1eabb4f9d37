"""Cases for kombu, over py-amqp: a function for each feature."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import amqp
import kombu
from kombu.exceptions import OperationalError
from kombu.pools import producers

from tests.interop.amqp_0_9_1.place import PATIENCE, Place
from tests.interop.features.trial import expect


@contextmanager
def connected(at: Place, **more: Any) -> Iterator[Any]:
    """Connect by the URL of the place, or as `more` says."""
    with kombu.Connection(more.pop("url", at.url()), **more) as connection:
        yield connection


def _queue(at: Place, suffix: str = "", **options: Any) -> kombu.Queue:
    return kombu.Queue(at.name(suffix), exclusive=True, durable=False, **options)


def drain(connection: Any, done: Callable[[], bool]) -> None:
    """Handle what comes until `done`."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        try:
            connection.drain_events(timeout=0.2)
        except TimeoutError:
            pass


def got(queue: Any) -> Any:
    """Get a message, which comes soon."""
    deadline = time.monotonic() + PATIENCE
    while (message := queue.get()) is None:
        assert time.monotonic() < deadline, "no message came"
        time.sleep(0.01)
    return message


def queue_declare(at: Place) -> None:
    with connected(at) as connection:
        queue = _queue(at)(connection.channel())
        queue.declare()
        connection.Producer().publish("one", routing_key=at.name())
        expect(got(queue).payload, "one")
        queue.purge()
        queue.delete()


def consume(at: Place) -> None:
    with connected(at) as connection:
        came: list[Any] = []
        with connection.Consumer(
            _queue(at), callbacks=[lambda body, message: (came.append(body), message.ack())]
        ):
            producer = connection.Producer()
            for number in range(20):
                producer.publish({"number": number}, routing_key=at.name(), serializer="json")
            drain(connection, lambda: len(came) == 20)
        expect(came, [{"number": number} for number in range(20)])


def _routed(at: Place, kind: str, binding: str, *keys: str) -> None:
    """Publish with each key to an exchange, and expect only the last one in the bound queue."""
    exchange = kombu.Exchange(at.name(), kind, durable=False, auto_delete=True)
    with connected(at) as connection:
        queue = _queue(at, exchange=exchange, routing_key=binding)(connection.channel())
        queue.declare()
        for key in keys:
            connection.Producer(exchange=exchange).publish(key, routing_key=key)
        expect(got(queue).payload, keys[-1])
        expect(queue.get(), None)


def direct(at: Place) -> None:
    _routed(at, "direct", "red", "blue", "red")


def fanout(at: Place) -> None:
    exchange = kombu.Exchange(at.name(), "fanout", durable=False, auto_delete=True)
    with connected(at) as connection:
        queues = [
            _queue(at, suffix, exchange=exchange)(connection.channel()) for suffix in ("a", "b")
        ]
        for queue in queues:
            queue.declare()
        connection.Producer(exchange=exchange).publish("one")
        expect([got(queue).payload for queue in queues], ["one", "one"])


def topic(at: Place) -> None:
    _routed(at, "topic", "a.#", "b.c", "a.b")


def exchange_bindings(at: Place) -> None:
    first = kombu.Exchange(at.name("first"), "fanout", durable=False, auto_delete=True)
    second = kombu.Exchange(at.name("second"), "fanout", durable=False, auto_delete=True)
    with connected(at) as connection:
        ch = connection.channel()
        first(ch).declare()
        second(ch).declare()
        second(ch).bind_to(first(ch))
        queue = _queue(at, exchange=second)(ch)
        queue.declare()
        connection.Producer(exchange=first).publish("one")
        expect(got(queue).payload, "one")


def properties(at: Place) -> None:
    given = {
        "priority": 5,
        "correlation_id": "c-1",
        "reply_to": "replies",
        "message_id": "m-1",
        "type": "order",
        "app_id": "shop",
    }
    with connected(at) as connection:
        queue = _queue(at)(connection.channel())
        queue.declare()
        connection.Producer().publish(
            {"a": 1}, routing_key=at.name(), compression="zlib", headers={"color": "red"}, **given
        )
        message = got(queue)
        expect(message.payload, {"a": 1})
        expect({name: message.properties.get(name) for name in given}, given)
        expect(message.headers["color"], "red")


def header_types(at: Place) -> None:
    given = {"double": 0.5, "long": 2**40, "text": "ß", "none": None, "list": [1, {"a": True}]}
    with connected(at) as connection:
        queue = _queue(at)(connection.channel())
        queue.declare()
        connection.Producer().publish("one", routing_key=at.name(), headers=given)
        came = got(queue).headers
        expect({name: came.get(name, "missing") for name in given}, given)


def large(at: Place) -> None:
    body = bytes(range(256)) * 4096
    with connected(at) as connection:
        queue = _queue(at)(connection.channel())
        queue.declare()
        connection.Producer().publish(
            body, routing_key=at.name(), content_type="application/data", content_encoding="binary"
        )
        assert bytes(got(queue).body) == body, "another body came"


def mandatory(at: Place) -> None:
    returned: list[Any] = []
    with connected(at) as connection:
        producer = connection.Producer(on_return=lambda *args: returned.append(args))
        producer.publish("one", routing_key="missing", mandatory=True)
        drain(connection, lambda: bool(returned))


def confirms(at: Place) -> None:
    with connected(at, transport_options={"confirm_publish": True}) as connection:
        queue = _queue(at)(connection.channel())
        queue.declare()
        with producers[connection].acquire(block=True) as producer:
            for _ in range(20):
                producer.publish("one", routing_key=at.name(), retry=True)
        expect(queue.queue_declare(passive=True).message_count, 20)


def confirm_nack(at: Place) -> None:
    with connected(at, transport_options={"confirm_publish": True}) as connection:
        queue = _queue(at, queue_arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        queue(connection.channel()).declare()
        producer = connection.Producer()
        producer.publish("one", routing_key=at.name())
        try:
            producer.publish("two", routing_key=at.name())
        except amqp.exceptions.MessageNacked:
            return
        raise AssertionError("it was not refused")


def requeue(at: Place) -> None:
    with connected(at) as connection:
        queue = _queue(at)(connection.channel())
        queue.declare()
        connection.Producer().publish("one", routing_key=at.name())
        got(queue).requeue()
        message = got(queue)
        expect(message.delivery_info["redelivered"], True)
        message.reject()
        expect(queue.get(), None)


def prefetch(at: Place) -> None:
    with connected(at) as connection:
        came: list[Any] = []
        producer = connection.Producer()
        with connection.Consumer(
            _queue(at), callbacks=[lambda _, message: came.append(message)], prefetch_count=2
        ):
            for _ in range(4):
                producer.publish("one", routing_key=at.name())
            drain(connection, lambda: len(came) == 2)
            came[1].channel.basic_ack(came[1].delivery_tag, multiple=True)
            drain(connection, lambda: len(came) == 4)


def close_requeues(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        queue = _queue(at)
        queue(ch).declare()
        connection.Producer().publish("one", routing_key=at.name())
        got(queue(ch))
        ch.close()
        expect(got(queue(connection.channel())).delivery_info["redelivered"], True)


def dead_letter(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        dead = _queue(at, "dead")(ch)
        dead.declare()
        queue = _queue(
            at,
            queue_arguments={
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": at.name("dead"),
            },
        )(ch)
        queue.declare()
        connection.Producer().publish("one", routing_key=at.name())
        got(queue).reject()
        expect(got(dead).headers["x-death"][0]["reason"], "rejected")


def message_ttl(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        dead = _queue(at, "dead")(ch)
        dead.declare()
        arguments = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": at.name("dead"),
        }
        _queue(at, message_ttl=0.05, queue_arguments=arguments)(ch).declare()
        connection.Producer().publish("one", routing_key=at.name())
        expect(got(dead).headers["x-death"][0]["reason"], "expired")


def priority(at: Place) -> None:
    with connected(at) as connection:
        queue = _queue(at, max_priority=10)(connection.channel())
        queue.declare()
        for number in (1, 9, 5):
            connection.Producer().publish(number, routing_key=at.name(), priority=number)
        expect([got(queue).payload for _ in range(3)], [9, 5, 1])


def rpc(at: Place) -> None:
    with connected(at) as connection:
        requests, replies = _queue(at), _queue(at, "replies")
        came: list[Any] = []

        def answer(body: Any, message: Any) -> None:
            to = message.properties["reply_to"]
            connection.Producer().publish(body * 2, routing_key=to)
            message.ack()

        with (
            connection.Consumer(requests, callbacks=[answer]),
            connection.Consumer(replies, callbacks=[lambda *got: came.append(got)], no_ack=True),
        ):
            connection.Producer().publish(21, routing_key=at.name(), reply_to=at.name("replies"))
            drain(connection, lambda: bool(came))
        expect(came[0][0], 42)


def not_found(at: Place) -> None:
    with connected(at) as connection:
        try:
            kombu.Queue("missing")(connection.channel()).queue_declare(passive=True)
        except amqp.exceptions.NotFound as error:
            expect(error.code, 404)
            return
        raise AssertionError("it was not refused")


def precondition(at: Place) -> None:
    with connected(at) as connection:
        _queue(at, max_length=1)(connection.channel()).declare()
        try:
            _queue(at, max_length=2)(connection.channel()).declare()
        except amqp.exceptions.PreconditionFailed as error:
            expect(error.code, 406)
            return
        raise AssertionError("it was not refused")


def access_refused(at: Place) -> None:
    with connected(at, url=at.url(user=at.guest)) as connection:
        try:
            _queue(at)(connection.channel()).declare()
        except amqp.exceptions.AccessRefused as error:
            expect(error.code, 403)
            return
        raise AssertionError("it was not refused")


def wrong_password(at: Place) -> None:
    try:
        with connected(at, url=at.url(password="wrong")) as connection:
            connection.connect()
    except (amqp.exceptions.AccessRefused, OperationalError):
        return
    raise AssertionError("it was not refused")


def tls(at: Place) -> None:
    url = at.url().replace(f"{at.host}:{at.port}", f"localhost:{at.tls_port}")
    secure = {"ca_certs": at.authority, "cert_reqs": ssl.CERT_REQUIRED}
    with connected(at, url=url, ssl=secure) as connection:
        queue = _queue(at)(connection.channel())
        queue.declare()
        connection.Producer().publish("one", routing_key=at.name())
        expect(got(queue).payload, "one")


def virtual_host(at: Place) -> None:
    with connected(at, url=at.url(at.other_host)) as connection:
        queue = _queue(at)(connection.channel())
        queue.declare()
        connection.Producer().publish("one", routing_key=at.name())
        expect(got(queue).payload, "one")


def heartbeat(at: Place) -> None:
    with connected(at, heartbeat=1) as connection:
        connection.connect()
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            connection.heartbeat_check()
            try:
                connection.drain_events(timeout=0.4)
            except TimeoutError:
                pass
        _queue(at)(connection.channel()).declare()
