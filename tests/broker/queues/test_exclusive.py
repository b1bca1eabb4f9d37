"""Queues that one consumer has to itself, and queues with room for so many."""

from __future__ import annotations

from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.harness import Network
from tests.broker.queues.links import consume


def condition(receiver: object) -> str | None:
    error = getattr(receiver, "error", None)
    return None if error is None else str(error.condition)


def test_an_exclusive_queue_has_one_consumer(net: Network) -> None:
    net.declare("q", QueuePolicy(exclusive=True))
    client = net.connect()
    client.sender("q").send(b"a", b"b")
    first = consume(client, "q", 10)
    second = consume(net.connect(), "q", 10)
    assert condition(second) == "amqp:resource-locked"
    assert first.bodies() == [b"a", b"b"]
    first.close()
    third = consume(net.connect(), "q", 10)
    assert third.error is None
    assert third.bodies() == [b"a", b"b"]


def test_a_consumer_may_ask_to_be_alone(net: Network) -> None:
    alone = consume(net.connect(), "q", 10, exclusive=True)
    attach = alone.link.remote_attach
    assert attach is not None and attach.properties == {"exclusive": True}
    assert condition(consume(net.connect(), "q")) == "amqp:resource-locked"
    assert condition(consume(net.connect(), "q", exclusive=True)) == "amqp:resource-locked"
    net.connect().sender("q").send(b"a")
    assert alone.bodies() == [b"a"]
    alone.close()
    assert consume(net.connect(), "q").error is None


def test_it_is_refused_where_others_are(net: Network) -> None:
    other = consume(net.connect(), "q", 10)
    assert condition(consume(net.connect(), "q", exclusive=True)) == "amqp:resource-locked"
    net.connect().sender("q").send(b"a")
    assert other.bodies() == [b"a"]


def test_browsers_are_no_consumers(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    browser = consume(client, "q", 10, mode="copy")
    alone = consume(client, "q", exclusive=True)
    assert alone.error is None
    late = consume(client, "q", 10, mode="copy")
    assert browser.bodies() == late.bodies() == [b"a"]
    # And a browser that asks to be alone asks for what does not exist.
    assert condition(consume(client, "q", exclusive=True, mode="copy")) == "amqp:not-implemented"


def test_only_so_many_consumers(net: Network) -> None:
    net.declare("q", QueuePolicy(max_consumers=2))
    client = net.connect()
    first = consume(client, "q")
    second = consume(client, "q")
    assert second.error is None
    assert condition(consume(client, "q")) == "amqp:resource-limit-exceeded"
    assert consume(client, "q", mode="copy").error is None
    first.close()
    assert consume(client, "q").error is None


def test_a_lost_connection_makes_room(net: Network) -> None:
    net.declare("q", QueuePolicy(exclusive=True))
    client = net.connect()
    consume(client, "q", 10)
    client.lose()
    assert consume(net.connect(), "q").error is None
