"""Rules of a subscription, as described lists."""

from __future__ import annotations

import pytest

from ferrymq_codec.scalars import Described, Int, ULong
from tests.broker.harness import Network
from tests.broker.queues.links import publish
from tests.servicebus.management.requests import EntityClient, topic_of


@pytest.fixture
def client() -> EntityClient:
    net = Network()
    topic_of(net, "s")
    return EntityClient(net, "t::s")


def add(client: EntityClient, name: str, **description: object) -> dict[str, object]:
    described = {key.replace("_", "-"): value for key, value in description.items()}
    return client.body("add-rule", {"rule-name": name, "rule-description": described})


def rules(client: EntityClient, skip: int = 0, top: int = 100) -> list[list[object]]:
    answer = client.ask("enumerate-rules", {"skip": Int(skip), "top": Int(top)})
    if answer.status == 204:
        return []
    found = answer.map()["rules"]
    assert isinstance(found, list)
    described = [one["rule-description"] for one in found]
    assert all(type(one.descriptor) is ULong for one in described)
    assert all(one.descriptor == 0x13700000004 for one in described)
    return [one.value for one in described]


def test_rules_of_every_kind_are_listed_as_they_were_added(client: EntityClient) -> None:
    assert rules(client) == []
    assert add(client, "sql", sql_filter={"expression": "colour = 'red'"}) == {}
    add(
        client,
        "changing",
        sql_filter={"expression": "1 = 1"},
        sql_rule_action={"expression": "SET seen = 'yes'"},
    )
    correlation = {"label": "news", "session-id": None, "properties": {"kind": 7}}
    add(client, "equal", correlation_filter=correlation)
    add(client, "fields", correlation_filter={"correlation-id": "c", "properties": {}})
    add(client, "all", true_filter={})
    add(client, "none", false_filter={})
    empty = Described(0x13700000005, [])
    assert rules(client) == [
        [Described(0x1370000006, ["colour = 'red'"]), empty, "sql"],
        [
            Described(0x1370000006, ["1 = 1"]),
            Described(0x13700000006, ["SET seen = 'yes'"]),
            "changing",
        ],
        [
            Described(
                0x1370000009, [None, None, None, None, "news", None, None, None, {"kind": 7}]
            ),
            empty,
            "equal",
        ],
        [Described(0x1370000009, ["c", *[None] * 7]), empty, "fields"],
        [Described(0x1370000007, []), empty, "all"],
        [Described(0x1370000008, []), empty, "none"],
    ]
    assert [rule[2] for rule in rules(client, 1, 2)] == ["changing", "equal"]
    assert rules(client, 9) == []


def test_rules_choose_messages(client: EntityClient) -> None:
    add(client, "red", sql_filter={"expression": "colour = 'red'"})
    sender = client.net.connect().sender("t")
    publish(sender, b"red", colour="red")
    publish(sender, b"blue", colour="blue")
    receiver = client.net.connect().receiver("t::s", credit=9)
    assert receiver.bodies() == [b"red"]
    assert client.body("remove-rule", {"rule-name": "red"}) == {}
    publish(sender, b"again", colour="red")
    assert receiver.bodies() == [b"red"]


def test_names_that_exist_and_that_do_not(client: EntityClient) -> None:
    add(client, "one", true_filter={})
    body = {"rule-name": "one", "rule-description": {"true-filter": {}}}
    exists = (409, "com.microsoft:entity-already-exists")
    assert client.refused("add-rule", body) == exists
    answer = client.ask("remove-rule", {"rule-name": "two"})
    assert answer.status == 404 and answer.properties["errorCondition"] == "amqp:not-found"
    assert answer.description == "The messaging entity 't::s/Rules/two' could not be found."


@pytest.mark.parametrize(
    "description",
    [
        None,
        {"sql-filter": {"expression": "colour = = 1"}},
        {"sql-filter": "colour = 1"},
        {"correlation-filter": {"colour": "red"}},
        {"correlation-filter": {}},
        {"sql-filter": {"expression": "1 = 1"}, "correlation-filter": {"label": "x"}},
        {"true-filter": {}, "sql-rule-action": {"expression": "SING"}},
    ],
)
def test_a_description_that_is_no_rule(client: EntityClient, description: object) -> None:
    body = {"rule-name": "one", "rule-description": description}
    assert client.refused("add-rule", body) == (400, "com.microsoft:argument-error")
    assert rules(client) == []
