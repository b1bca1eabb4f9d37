"""The rights that the operations on an entity need."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.personality import Personality
from ferrymq_codec.scalars import Int, UInt
from tests.broker.access.guarded import guarded, lacks, user
from tests.servicebus.management.requests import EntityClient, encoded, longs, serve, uuids

RULES = """
[[queue]]
name = "q"
sessions = true

[[topic]]
name = "t"

[[rule]]
who = "user:listen"
may = "receive"
where = ["q", "t::s"]

[[rule]]
who = "user:send"
may = "send"
where = ["q", "t", "t::s"]

[[rule]]
who = "user:manage"
may = "manage"
where = ["q", "t::s"]

[[rule]]
who = ["user:stranger", "user:reader"]
may = "receive"
where = "elsewhere"

[[rule]]
who = "user:reader"
may = "dead-letter"
where = ["q", "t::s"]
"""

TOKEN: dict[str, object] = {"lock-tokens": uuids(bytes(16))}
LISTEN: dict[str, dict[str, object]] = {
    "renew-lock": TOKEN,
    "peek-message": {"from-sequence-number": 0, "message-count": Int(1)},
    "receive-by-sequence-number": {
        "sequence-numbers": longs(1),
        "receiver-settle-mode": UInt(1),
        "session-id": "a",
    },
    "update-disposition": {"disposition-status": "completed", **TOKEN},
    "renew-session-lock": {"session-id": "a"},
    "get-session-state": {"session-id": "a"},
    "set-session-state": {"session-id": "a", "session-state": b""},
    "get-message-sessions": {},
}
SEND: dict[str, dict[str, object]] = {
    "schedule-message": {"messages": [{"message": encoded(b"1", 0, group="a")}]},
    "cancel-scheduled-message": {"sequence-numbers": longs(1)},
}
MANAGE: dict[str, dict[str, object]] = {
    "add-rule": {"rule-name": "r", "rule-description": {"true-filter": {}}},
    "remove-rule": {"rule-name": "r"},
}
REFUSED = (401, "amqp:unauthorized-access")


class Services(Personality):
    """A personality for which a right at an entity is enough for a link to its management."""

    def entity_of_service(self, address: str) -> str:
        entity = address.removesuffix("/$management")
        return "" if entity == address else entity


def client_of(name: str, entity: str) -> EntityClient:
    net = guarded(RULES)
    topic = net.space.nodes["t"]
    topic.declare_subscription("s")  # type: ignore[attr-defined]
    net.space.personality = Services()
    return EntityClient(net, entity, user(net, name))


@pytest.mark.parametrize("right", ["listen", "send"])
@pytest.mark.parametrize("operation", [*LISTEN, *SEND])
def test_each_operation_needs_its_right(operation: str, right: str) -> None:
    needed = "listen" if operation in LISTEN else "send"
    answer = client_of(right, "q").ask(operation, {**LISTEN, **SEND}[operation])
    if right == needed:
        assert answer.properties.get("errorCondition") != REFUSED[1]
    else:
        assert (answer.status, answer.properties["errorCondition"]) == REFUSED


@pytest.mark.parametrize("right", ["listen", "send", "manage"])
def test_rules_are_changed_by_those_who_manage(right: str) -> None:
    client = client_of(right, "t::s")
    for operation, body in MANAGE.items():
        if right == "manage":
            assert client.ask(operation, body).status == 200
        else:
            assert client.refused(operation, body) == REFUSED
    shown = client.ask("enumerate-rules", {})
    assert shown.status == (401 if right == "send" else 204)


def test_a_link_needs_some_right_at_the_entity() -> None:
    net = guarded(RULES)
    net.space.personality = Services()
    address = serve(net.space, "q")
    stranger = user(net, "stranger")
    assert lacks(stranger.sender(address)) and lacks(stranger.receiver(address))


@pytest.mark.parametrize("owner", ["q", "t::s"])
def test_dead_letters_need_the_right_to_read_them(owner: str) -> None:
    net = guarded(RULES)
    net.space.personality = Services()
    address = f"{owner}/$DeadLetterQueue"
    body = LISTEN["peek-message"]
    for name, refused in (
        ("listen", REFUSED),
        ("reader", (404, "amqp:not-found")),
    ):
        # The entity of the link is the owner here; the personality itself finds it.
        net.space.open_services.add(f"{address}/$management")
        assert EntityClient(net, address, user(net, name)).refused("peek-message", body) == refused
