"""Sessions of an entity: locks, states, lists, and messages of one session."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Int, Timestamp, UInt
from ferrymq_types.messaging import Modified
from tests.broker.harness import Network, text
from tests.broker.queues.links import numbered, publish
from tests.broker.queues.test_sessions import attach, error_of
from tests.servicebus.management.requests import EntityClient, longs, uuids

LOST = (410, "com.microsoft:session-lock-lost")


@pytest.fixture
def net() -> Network:
    net = Network()
    net.declare("q", QueuePolicy(sessions=True, deferral=True, lock_duration=60_000))
    return net


def test_the_lock_of_a_session_is_renewed_by_its_owner(net: Network) -> None:
    client = EntityClient(net)
    owner = attach(net.connect(), session="a", name="owner")
    net.advance(40)
    body = {"session-id": "a"}
    answer = client.body("renew-session-lock", body, link="owner")
    assert answer == {"expiration": Timestamp(net.wall + 60_000)}
    assert client.refused("renew-session-lock", body, link="other") == LOST
    assert client.refused("renew-session-lock", {"session-id": "b"}) == LOST
    net.advance(59)
    assert not owner.detached
    net.advance(2)
    assert error_of(owner) == "ferrymq:session-lock-lost"
    assert client.refused("renew-session-lock", body, link="owner") == LOST


def test_the_state_of_a_session(net: Network) -> None:
    client = EntityClient(net)
    attach(net.connect(), session="a", name="owner")
    state = {"session-id": "a", "session-state": b"\x01\x02"}
    assert client.body("get-session-state", {"session-id": "a"}) == {"session-state": None}
    assert client.refused("set-session-state", state, link="other") == LOST
    assert client.body("set-session-state", state, link="owner") == {}
    found = client.body("get-session-state", {"session-id": "a"}, link="owner")
    assert found == {"session-state": b"\x01\x02"}
    assert client.body("set-session-state", {"session-id": "a", "session-state": None}) == {}
    assert client.body("get-session-state", {"session-id": "a"}) == {"session-state": None}
    wrong = {"session-id": "a", "session-state": Int(7)}
    assert client.refused("set-session-state", wrong) == (400, "com.microsoft:argument-error")


def listed(client: EntityClient, since: int = 253402300800000, **more: int) -> list[object]:
    body: dict[str, object] = {
        "last-updated-time": Timestamp(since),
        "skip": Int(more.get("skip", 0)),
        "top": Int(more.get("top", 100)),
    }
    answer = client.ask("get-message-sessions", body)
    if answer.status == 204:
        return []
    ids = answer.map()["sessions-ids"]
    assert answer.map()["skip"] == more.get("skip", 0)
    assert isinstance(ids, Array) and ids.element_type == "string"
    return list(ids)


def test_sessions_with_messages_or_a_state_are_listed(net: Network) -> None:
    client = EntityClient(net)
    assert listed(client) == []
    sender = net.connect().sender("q")
    for group in ("a", "b", "c"):
        publish(sender, b"1", group=group)
        net.advance(1)
    client.body("set-session-state", {"session-id": "state", "session-state": b"1"})
    assert listed(client) == ["state", "c", "b", "a"]
    assert listed(client, skip=1, top=1) == ["c"]
    assert listed(client, since=net.wall - 1500) == ["state", "c"]
    assert listed(client, since=253402300799999) == []


def test_the_messages_of_a_session_are_peeked_deferred_and_settled(net: Network) -> None:
    client = EntityClient(net)
    sender = net.connect().sender("q")
    publish(sender, *numbered(0, 2), group="a")
    publish(sender, b"b", group="b")
    owner = attach(net.connect(), session="a", name="owner")
    asked = {"from-sequence-number": 0, "message-count": Int(9), "session-id": "a"}
    found = client.body("peek-message", asked, link="owner")["messages"]
    assert isinstance(found, list) and [text(one["message"]) for one in found] == [b"0", b"1"]
    first, second = owner.deliveries
    for status, tag in (("defered", first.tag), ("completed", second.tag)):
        body = {
            "disposition-status": status,
            "lock-tokens": uuids(tag),
            "session-id": "a",
        }
        assert client.body("update-disposition", body, link="owner") == {}
    body = {
        "sequence-numbers": longs(1),
        "receiver-settle-mode": UInt(1),
        "session-id": "a",
    }
    assert client.refused("receive-by-sequence-number", body, link="other") == LOST
    found = client.body("receive-by-sequence-number", body, link="owner")["messages"]
    assert isinstance(found, list)
    done = {
        "disposition-status": "completed",
        "lock-tokens": Array("uuid", [found[0]["lock-token"]]),
        "session-id": "a",
    }
    assert client.body("update-disposition", done, link="owner") == {}
    assert net.queue("q").message_count() == 1


def test_the_end_of_the_link_takes_deferred_messages_back(net: Network) -> None:
    client = EntityClient(net)
    publish(net.connect().sender("q"), b"0", group="a")
    owner = attach(net.connect(), session="a", name="owner")
    owner.settle(Modified(undeliverable_here=True))
    body = {"sequence-numbers": longs(1), "receiver-settle-mode": UInt(1), "session-id": "a"}
    found = client.body("receive-by-sequence-number", body)["messages"]
    assert isinstance(found, list)
    owner.close()
    done = {
        "disposition-status": "completed",
        "lock-tokens": Array("uuid", [found[0]["lock-token"]]),
    }
    lost = (410, "com.microsoft:message-lock-lost")
    assert client.refused("update-disposition", done) == lost
    assert net.queue("q").figures()["deferred"] == 1
