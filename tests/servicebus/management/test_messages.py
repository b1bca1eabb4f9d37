"""Looking at messages, locks, deferred messages: the operations of receivers on an entity."""

from __future__ import annotations

from uuid import UUID

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Int, Timestamp, UInt
from ferrymq_types.messaging import Accepted, ApplicationProperties, DeliveryAnnotations, Modified
from tests.broker.harness import Network, decode, header, message_annotations, text
from tests.broker.queues.links import numbered, publish
from tests.servicebus.management.requests import EntityClient, encoded, longs, topic_of, uuids

POLICY = QueuePolicy(lock_duration=60_000, deferral=True, delivery_limit=9, dead_letter="dead")
DEFER = Modified(undeliverable_here=True)


@pytest.fixture
def net() -> Network:
    net = Network()
    net.declare("q", POLICY)
    net.declare("dead")
    return net


def payloads(body: dict[str, object]) -> list[bytes]:
    """The encoded messages in the body of an answer."""
    found = body["messages"]
    assert isinstance(found, list)
    return [one["message"] for one in found]


def figures(net: Network, *names: str) -> list[int]:
    all_figures = net.queue("q").figures()
    return [all_figures[name] for name in names]


# -- peek-message ------------------------------------------------------------------------------


def peek(client: EntityClient, first: int = 0, count: int = 10, **more: object) -> list[bytes]:
    body = {"from-sequence-number": first, "message-count": Int(count), **more}
    return payloads(client.body("peek-message", body))


def test_messages_are_shown_with_what_the_broker_knows(net: Network) -> None:
    publish(net.connect().sender("q"), *numbered(0, 3))
    receiver = net.connect().receiver("q", credit=1)
    receiver.settle(DEFER)
    receiver.credit(1)
    client = EntityClient(net)
    found = peek(client)
    assert [text(one) for one in found] == [b"0", b"1", b"2"]
    annotations = [message_annotations(one) for one in found]
    assert [one["x-opt-sequence-number"] for one in annotations] == [1, 2, 3]
    assert [one["x-opt-enqueue-sequence-number"] for one in annotations] == [1, 2, 3]
    assert [one["x-opt-message-state"] for one in annotations] == [1, 0, 0]
    assert type(annotations[0]["x-opt-sequence-number"]) is int
    assert type(annotations[0]["x-opt-message-state"]) is Int
    assert annotations[1]["x-opt-locked-until"] == Timestamp(net.wall + 60_000)
    assert "x-opt-locked-until" not in annotations[2]
    assert [text(one) for one in peek(client, 2, 1)] == [b"1"]
    assert figures(net, "messages", "deferred") == [3, 1]


def test_no_message_is_the_status_204(net: Network) -> None:
    client = EntityClient(net)
    body = {"from-sequence-number": 0, "message-count": Int(1)}
    answer = client.ask("peek-message", body, message_id="text")
    assert answer.status == 204


def test_messages_are_shown_without_their_bodies(net: Network) -> None:
    publish(net.connect().sender("q"), b"long", kind="x")
    (shown,) = peek(EntityClient(net), **{"omit-message-body": True})
    assert text(shown) == b""
    assert message_annotations(shown)["x-opt-sequence-number"] == 1


def test_scheduled_messages_come_last(net: Network) -> None:
    client = EntityClient(net)
    scheduled = encoded(b"later", net.wall + 5000)
    body = {"messages": [{"message": scheduled, "message-id": "m"}]}
    numbers = client.body("schedule-message", body)["sequence-numbers"]
    assert isinstance(numbers, Array)
    publish(net.connect().sender("q"), b"now")
    found = peek(client)
    assert [text(one) for one in found] == [b"now", b"later"]
    annotations = message_annotations(found[1])
    assert annotations["x-opt-message-state"] == 2
    assert annotations["x-opt-sequence-number"] == numbers[0]
    assert annotations["x-opt-scheduled-enqueue-time"] == net.wall + 5000
    assert [text(one) for one in peek(client, 2)] == [b"later"]


# -- renew-lock and update-disposition ---------------------------------------------------------


def test_locks_are_renewed(net: Network) -> None:
    publish(net.connect().sender("q"), *numbered(0, 2))
    receiver = net.connect().receiver("q", credit=2)
    tags = [delivery.tag for delivery in receiver.deliveries]
    net.advance(40)
    client = EntityClient(net)
    expirations = client.body("renew-lock", {"lock-tokens": uuids(*tags)})["expirations"]
    assert isinstance(expirations, Array) and expirations.element_type == "timestamp"
    assert list(expirations) == [net.wall + 60_000] * 2
    net.advance(59)
    assert figures(net, "locked", "locks-lost") == [2, 0]
    net.advance(2)
    lost = (410, "com.microsoft:message-lock-lost")
    assert client.refused("renew-lock", {"lock-tokens": uuids(tags[0])}) == lost


@pytest.mark.parametrize(
    ("status", "after"),
    [
        ("completed", {"accepted": 1, "messages": 0}),
        ("abandoned", {"modified": 1, "messages": 1, "available": 1}),
        ("defered", {"deferred": 1, "messages": 1}),
        ("suspended", {"rejected": 1, "messages": 0, "dead-lettered": 1}),
    ],
)
def test_a_locked_message_gets_an_outcome(net: Network, status: str, after: dict[str, int]) -> None:
    publish(net.connect().sender("q"), b"0")
    receiver = net.connect().receiver("q", credit=1)
    client = EntityClient(net)
    body = {
        "disposition-status": status,
        "lock-tokens": uuids(receiver.deliveries[0].tag),
        "properties-to-modify": {"seen": "yes"},
        "deadletter-reason": "bad",
        "deadletter-description": "very bad",
    }
    assert client.body("update-disposition", body) == {}
    assert figures(net, *after) == list(after.values())
    again = client.refused("update-disposition", body)
    assert again == (410, "com.microsoft:message-lock-lost")
    if status in ("abandoned", "defered"):
        (shown,) = peek(client)
        found = [s.value for s in decode(shown) if isinstance(s, ApplicationProperties)]
        assert found == [{"seen": "yes"}]
        assert (header(shown).delivery_count or 0) == (1 if status == "abandoned" else 0)


def test_an_unknown_disposition_changes_nothing(net: Network) -> None:
    publish(net.connect().sender("q"), b"0")
    receiver = net.connect().receiver("q", credit=1)
    tag = receiver.deliveries[0].tag
    argument = (400, "com.microsoft:argument-error")
    client = EntityClient(net)
    for body in (
        {"disposition-status": "forgotten", "lock-tokens": uuids(tag)},
        {"disposition-status": "completed", "lock-tokens": [tag]},
        {"disposition-status": "completed", "lock-tokens": Array("uuid", [])},
        {"disposition-status": "completed"},
        {"lock-tokens": uuids(tag)},
    ):
        assert client.refused("update-disposition", body) == argument
    assert figures(net, "locked") == [1]


# -- receive-by-sequence-number ----------------------------------------------------------------


def test_deferred_messages_are_received_locked_or_settled(net: Network) -> None:
    publish(net.connect().sender("q"), *numbered(0, 2))
    receiver = net.connect().receiver("q", credit=2)
    receiver.settle(DEFER)
    client = EntityClient(net)
    body = {"sequence-numbers": longs(2), "receiver-settle-mode": UInt(1)}
    found = client.body("receive-by-sequence-number", body)["messages"]
    assert isinstance(found, list)
    (one,) = found
    annotations = message_annotations(one["message"])
    assert text(one["message"]) == b"1" and annotations["x-opt-sequence-number"] == 2
    assert annotations["x-opt-message-state"] == 1
    assert annotations["x-opt-locked-until"] == net.wall + 60_000
    token = one["lock-token"]
    assert isinstance(token, UUID)
    # Clients before azure-servicebus 7.15 know the token only from here.
    found = [s.value for s in decode(one["message"]) if isinstance(s, DeliveryAnnotations)]
    assert found == [{"x-opt-lock-token": token}]
    missing = (404, "com.microsoft:message-not-found")
    assert client.refused("receive-by-sequence-number", body) == missing
    done = {"disposition-status": "completed", "lock-tokens": Array("uuid", [token])}
    assert client.body("update-disposition", done) == {}
    body = {"sequence-numbers": longs(1), "receiver-settle-mode": UInt(0)}
    (settled,) = payloads(client.body("receive-by-sequence-number", body))
    assert text(settled) == b"0"
    assert figures(net, "messages", "accepted") == [0, 2]


# -- the node ----------------------------------------------------------------------------------


def test_an_entity_that_is_not_there(net: Network) -> None:
    client = EntityClient(net, "nothing")
    answer = client.ask("peek-message", {"from-sequence-number": 0, "message-count": Int(1)})
    assert answer.status == 404 and answer.properties["errorCondition"] == "amqp:not-found"
    # A client recognises the failure by these words.
    assert answer.description == "The messaging entity 'nothing' could not be found."
    topic_of(net)
    for part in ("t::s", "none::s"):
        refused = EntityClient(net, part).refused("enumerate-rules", {"top": Int(1)})
        assert refused == (404, "amqp:not-found")


def test_requests_that_mean_nothing(net: Network) -> None:
    client = EntityClient(net)
    assert client.refused("sing", {}) == (501, "amqp:not-implemented")
    assert client.refused("peek-message", None) == (400, "com.microsoft:argument-error")
    # A queue has no rules.
    assert client.refused("enumerate-rules", {}) == (501, "amqp:not-implemented")


def test_a_subscription_has_the_operations_of_a_queue(net: Network) -> None:
    topic_of(net, "s", policy=POLICY)
    publish(net.connect().sender("t"), b"0")
    receiver = net.connect().receiver("t::s", credit=1)
    client = EntityClient(net, "t::s")
    assert [text(one) for one in peek(client)] == [b"0"]
    body = {
        "disposition-status": "completed",
        "lock-tokens": uuids(receiver.deliveries[0].tag),
    }
    assert client.body("update-disposition", body) == {}
    receiver.settle(Accepted())
    nothing = client.ask("peek-message", {"from-sequence-number": 0, "message-count": Int(1)})
    assert nothing.status == 204


def test_an_entity_is_made_when_it_is_used(net: Network) -> None:
    net.space.auto_create = POLICY
    client = EntityClient(net, "new")
    body = {"messages": [{"message": encoded(b"1", net.wall + 1000)}]}
    client.body("schedule-message", body)
    assert net.queue("new").figures()["scheduled"] == 1
