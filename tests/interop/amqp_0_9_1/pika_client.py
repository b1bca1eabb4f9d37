"""What cases for pika's blocking connection have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    ChannelClosedByBroker,
)

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


def all_came(ch: BlockingChannel, came: list[Any], count: int) -> None:
    until(ch, lambda: len(came) >= count, f"{count} messages; {len(came)} came")


def no_more_come(ch: BlockingChannel, came: list[Any], count: int) -> None:
    ch.connection.process_data_events(WATCH)
    expect(len(came), count)


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
