"""Scheduled messages of queues and topics."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.containers import Array
from tests.broker.harness import Network
from tests.broker.stores import ManualStore
from tests.servicebus.management.requests import EntityClient, encoded, longs, topic_of


def schedule(client: EntityClient, *messages: bytes) -> list[int]:
    body = {"messages": [{"message": one, "message-id": "m"} for one in messages]}
    numbers = client.body("schedule-message", body)["sequence-numbers"]
    assert isinstance(numbers, Array) and numbers.element_type == "long"
    return [number for number in numbers if isinstance(number, int)]


def test_messages_become_available_at_their_time(net: Network) -> None:
    net.declare("q")
    client = EntityClient(net)
    numbers = schedule(client, *[encoded(b"%d" % n, net.wall + 1000 * n) for n in range(1, 4)])
    assert len(set(numbers)) == 3 and sorted(numbers) == numbers
    receiver = net.connect().receiver("q", credit=10)
    assert receiver.bodies() == []
    body = {"sequence-numbers": longs(numbers[1])}
    assert client.body("cancel-scheduled-message", body) == {}
    net.advance(5)
    assert receiver.bodies() == [b"1", b"3"]
    missing = (404, "com.microsoft:message-not-found")
    assert client.refused("cancel-scheduled-message", {"sequence-numbers": longs(*numbers)}) == (
        missing
    )


def test_a_cancellation_is_for_all_numbers_or_none(net: Network) -> None:
    net.declare("q")
    client = EntityClient(net)
    (number,) = schedule(client, encoded(b"1", net.wall + 1000))
    body = {"sequence-numbers": longs(number, number + 1, 7, -1, 2**63 - 1)}
    refused = client.refused("cancel-scheduled-message", body)
    assert refused == (404, "com.microsoft:message-not-found")
    assert net.queue("q").figures()["scheduled"] == 1


def test_a_message_whose_time_has_come_is_available(net: Network) -> None:
    net.declare("q")
    client = EntityClient(net)
    assert schedule(client, encoded(b"1", net.wall - 1000)) == [1]
    assert net.connect().receiver("q", credit=1).bodies() == [b"1"]


@pytest.mark.parametrize("message", [b"\x00", encoded(b"no time"), "text"])
def test_a_message_that_cannot_be_scheduled(net: Network, message: object) -> None:
    net.declare("q")
    client = EntityClient(net)
    good = encoded(b"1", net.wall + 1000)
    body = {"messages": [{"message": good}, {"message": message}]}
    assert client.refused("schedule-message", body) == (400, "com.microsoft:argument-error")
    assert net.queue("q").figures()["scheduled"] == 0


def test_all_messages_are_scheduled_or_none(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=1))
    client = EntityClient(net)
    message = encoded(b"1", net.wall + 1000)
    body = {"messages": [{"message": message}, {"message": message}]}
    refused = client.refused("schedule-message", body)
    assert refused == (403, "amqp:resource-limit-exceeded")
    assert net.queue("q").figures()["scheduled"] == 0


def test_a_topic_schedules_under_one_number(net: Network) -> None:
    topic_of(net, "a", "b")
    client = EntityClient(net, "t")
    first, second = schedule(client, encoded(b"1", net.wall + 1000), encoded(b"2", net.wall + 1000))
    assert first != second
    assert client.body("cancel-scheduled-message", {"sequence-numbers": longs(first)}) == {}
    net.advance(2)
    for name in ("a", "b"):
        assert net.connect().receiver(f"t::{name}", credit=9).bodies() == [b"2"]
    missing = (404, "com.microsoft:message-not-found")
    body = {"sequence-numbers": longs(second)}
    assert client.refused("cancel-scheduled-message", body) == missing


def test_scheduled_messages_are_cancelled_after_a_restart() -> None:
    net = Network(store=ManualStore())
    net.space.create("q", QueuePolicy())
    topic_of(net, "a")
    numbers = [
        schedule(EntityClient(net, node), encoded(b"1", net.wall + 60_000))[0]
        for node in ("q", "t")
    ]
    net.restart()
    for node, number in zip(("q", "t"), numbers, strict=True):
        client = EntityClient(net, node)
        body = {"sequence-numbers": longs(number)}
        assert client.body("cancel-scheduled-message", body) == {}
    assert net.queue("q").figures()["scheduled"] == 0
