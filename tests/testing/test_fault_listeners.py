"""Faults of a broker for tests on connections over TLS and over WebSocket."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from ferrymq import Message, blocking
from ferrymq.errors import AmqpError, DeliveryRejected
from ferrymq.testing import LocalBroker
from tests.broker.tls.pki import Pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("tls"))


class Listening:
    """A broker with one listener, and how a client connects to it."""

    def __init__(self, broker: LocalBroker, url: str, tls: ssl.SSLContext | None) -> None:
        self.broker = broker
        self.url = url
        self.tls = tls

    def send(self, *bodies: str) -> None:
        with blocking.connect(self.url, ssl=self.tls) as connection:
            sender = connection.sender("orders")
            for body in bodies:
                sender.send(Message(body=body), timeout=5)


@pytest.fixture(params=["amqps", "ws", "wss", "any"])
def listening(request: pytest.FixtureRequest, pki: Pki) -> Iterator[Listening]:
    scheme = request.param
    secure = scheme in ("amqps", "wss")
    config: dict[str, object] = {"listener": [{"url": f"{scheme}://127.0.0.1:0"}]}
    if secure:
        config["tls"] = {"certificate": pki.path("server"), "key": pki.path("server-key")}
    with LocalBroker(queues=["orders"], config=config) as broker:
        yield Listening(
            broker,
            f"{'amqp' if scheme == 'any' else scheme}://127.0.0.1:{broker.port}",
            pki.trusting() if secure else None,
        )


def test_the_connection_drops_at_the_nth_transfer(listening: Listening) -> None:
    fault = listening.broker.faults.drop("transfer", nth=2)
    with pytest.raises(AmqpError):
        listening.send("one", "two")
    assert fault.fired == 1
    listening.broker.queue("orders").assert_bodies("one")
    listening.send("three")
    listening.broker.queue("orders").assert_bodies("one", "three")


def test_the_sender_knows_after_the_outcome_and_not_before(listening: Listening) -> None:
    listening.broker.faults.drop_before_outcome()
    with pytest.raises(AmqpError):
        listening.send("one")
    listening.broker.queue("orders").assert_bodies("one")
    fault = listening.broker.faults.drop_after_outcome()
    with blocking.connect(listening.url, ssl=listening.tls) as connection:
        connection.sender("orders").send(Message(body="two"), timeout=5)
    assert fault.fired == 1
    listening.broker.queue("orders").assert_bodies("one", "two")


def test_delayed_frames_come_when_the_clock_has_advanced(listening: Listening) -> None:
    broker = listening.broker
    with blocking.connect(listening.url, ssl=listening.tls) as connection:
        sender = connection.sender("orders")
        broker.faults.delay("disposition", seconds=10, times=1)
        with pytest.raises(TimeoutError):
            sender.send(Message(body="one"), timeout=0.05)
        broker.queue("orders").wait_count(1)
        broker.clock.advance(10)
        sender.send(Message(body="two"), timeout=5)


def test_messages_are_rejected(listening: Listening) -> None:
    listening.broker.faults.reject("orders", condition="shop:closed")
    with pytest.raises(DeliveryRejected):
        listening.send("one")
    listening.broker.queue("orders").assert_empty()


@pytest.mark.parametrize("name", ["throttle", "fill_disk"])
def test_producers_get_no_credit(listening: Listening, name: str) -> None:
    fault = getattr(listening.broker.faults, name)()
    with blocking.connect(listening.url, ssl=listening.tls) as connection:
        sender = connection.sender("orders")
        with pytest.raises(TimeoutError):
            sender.send(Message(body="one"), timeout=0.05)
        fault.cancel()
        sender.send(Message(body="two"), timeout=5)
