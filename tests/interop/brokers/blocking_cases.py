"""Cases for a program without an event loop on a broker, a function for each."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import ferrymq
from ferrymq import Message, blocking
from tests.interop.brokers.sites import Site
from tests.interop.brokers.tools import PATIENCE, expect, expect_all, fetch, put, texts


def plain(site: Site, queue: str) -> None:
    """A user with a password, messages one by one."""
    with (
        blocking.connect(site.url(), timeout=10) as connection,
        connection.sender(queue) as sender,
    ):
        for body in texts(5):
            sender.send(body)
    expect_all(fetch(site, queue, 5), texts(5))


def plain_wrong(site: Site, queue: str) -> None:
    """A wrong password is refused, and the error says so."""
    assert site.users, "the broker knows no users"
    try:
        blocking.connect(site.url(password="wrong"), timeout=10)
    except ferrymq.AuthenticationError as error:
        assert "credentials are wrong" in str(error), error
    else:
        raise AssertionError("it was not refused")


def send_many(site: Site, queue: str) -> None:
    """A thousand messages at once."""
    put(site, queue, texts(1000))
    expect_all(fetch(site, queue, 1000), texts(1000))


def prefetch(site: Site, queue: str) -> None:
    """3 000 messages with a credit of 10."""
    put(site, queue, texts(3000))
    bodies = []
    with (
        blocking.connect(site.url(), timeout=10) as connection,
        connection.receiver(queue, credit=10) as receiver,
    ):
        for _ in range(3000):
            with receiver.receive(timeout=PATIENCE) as delivery:
                bodies.append(delivery.message.body)
    expect_all(bodies, texts(3000))


def outcomes(site: Site, queue: str) -> None:
    """A released message comes again, an accepted and a rejected one do not."""
    put(site, queue, ["accept", "reject", "release"])
    with (
        blocking.connect(site.url(), timeout=10) as connection,
        connection.receiver(queue) as receiver,
    ):
        for _ in range(3):
            delivery = receiver.receive(timeout=PATIENCE)
            getattr(delivery, delivery.message.body)()
    expect_all(fetch(site, queue, 1), ["release"])


def request(site: Site, queue: str) -> None:
    """`connection.request`, answered on another connection by a worker."""

    with blocking.connect(site.url(), timeout=10) as other:

        def answer(delivery: Any) -> None:
            asked: Message = delivery.message
            identity = asked.correlation_id or asked.message_id
            with other.sender(asked.reply_to) as replies:
                replies.send(Message(asked.body + "!", correlation_id=identity))

        with (
            _Working(other, queue, answer),
            blocking.connect(site.url(), timeout=10) as connection,
        ):
            reply = connection.request(queue, Message("a"), timeout=PATIENCE)
            expect(reply.body, "a!", "reply")


class _Working:
    """A worker that runs in a thread of its own while the block does."""

    def __init__(self, connection: blocking.Connection, queue: str, handler: Any) -> None:
        self._worker = blocking.Worker(connection, queue, handler, retry_delay=0.05)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        # What the broker does to the worker's link shows in what the worker has not handled.
        with suppress(ferrymq.AmqpError):
            self._worker.run()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._worker.stop()
        self._thread.join()


def browse(site: Site, queue: str) -> None:
    """All messages are seen, none is taken."""
    put(site, queue, texts(6))
    seen = []
    with (
        blocking.connect(site.url(), timeout=10) as connection,
        connection.receiver(queue, mode="copy") as receiver,
    ):
        for _ in range(6):
            with receiver.receive(timeout=PATIENCE) as delivery:
                seen.append(delivery.message.body)
    expect_all(seen, texts(6))
    expect_all(fetch(site, queue, 6), texts(6))


def transaction(site: Site, queue: str) -> None:
    """Messages of a transaction come with its commit."""
    with (
        blocking.connect(site.url(), timeout=10) as connection,
        connection.sender(queue) as sender,
        connection.transaction(timeout=PATIENCE) as transaction,
    ):
        sender.send("a", transaction=transaction)
        sender.send("b", transaction=transaction)
    expect_all(fetch(site, queue, 2), ["a", "b"])


def refused(site: Site, queue: str) -> None:
    """A refused link fails, and the others go on."""
    with (
        blocking.connect(site.url(), timeout=10) as connection,
        connection.sender(queue) as sender,
    ):
        sender.send("before")
        try:
            connection.sender(site.missing(), timeout=PATIENCE)
        except ferrymq.AmqpError:
            pass
        else:
            raise AssertionError("it was not refused")
        sender.send("after", timeout=PATIENCE)
    expect_all(fetch(site, queue, 2), ["before", "after"])


def worker(site: Site, queue: str) -> None:
    """A worker handles all messages; one whose handler fails comes to it again."""
    put(site, queue, texts(5))
    seen: list[str] = []
    failed: list[str] = []
    everything = threading.Event()

    def handle(delivery: Any) -> None:
        body = delivery.message.body
        if body == "message 1" and not failed:
            failed.append(body)
            raise ValueError(body)
        seen.append(body)
        if len(seen) == 5:
            everything.set()

    with (
        blocking.connect(site.url(), timeout=10) as connection,
        _Working(connection, queue, handle),
    ):
        everything.wait(PATIENCE)
    expect_all(sorted(seen), texts(5))
