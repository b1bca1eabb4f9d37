"""QUERY: many entities in one answer, and in pages."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.fences import FenceRecord
from ferrymq_types.messaging import Target
from tests.broker.harness import Network
from tests.broker.management.asker import Asker


def test_all_of_a_type_with_the_attributes_asked_for(net: Network, asker: Asker) -> None:
    for name in ("b", "c", "a"):
        asker.ask("CREATE", "queue", name, {"max-length": ord(name)})
    rows = asker.query("queue", attributeNames=["name", "max-length", "no-such"])
    assert rows[:3] == [
        {"name": "a", "max-length": 97, "no-such": None},
        {"name": "b", "max-length": 98, "no-such": None},
        {"name": "c", "max-length": 99, "no-such": None},
    ]
    # The fourth is the asker's own.
    assert [row["name"] for row in rows[3:]] == [asker.reply_to]


def test_without_names_there_is_every_attribute(asker: Asker) -> None:
    asker.ask("CREATE", "queue", "q")
    row = next(row for row in asker.query("org.ferrymq.queue") if row["name"] == "q")
    assert row == asker.ask("READ", "queue", "q").map() | {
        key: None for key in row if row[key] is None
    }
    assert row["type"] == "org.ferrymq.queue"


def test_pages_fit_together(asker: Asker) -> None:
    for number in range(25):
        asker.ask("CREATE", "stream", f"s{number:02}")
    found: list[object] = []
    for offset in range(0, 40, 10):
        body: dict[str, object] = {
            "entityType": "stream",
            "offset": offset,
            "count": 10,
            "attributeNames": ["name"],
        }
        answer = asker.ask("QUERY", "org.amqp.management", "self", body)
        assert answer.properties["total"] == 25
        rows = answer.map()["results"]
        assert isinstance(rows, list)
        assert answer.properties["count"] == len(rows)
        found += [row[0] for row in rows]
    assert found == [f"s{number:02}" for number in range(25)]


def test_arguments_may_be_properties_as_in_the_draft(asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s1")
    asker.ask("CREATE", "stream", "s2")
    answer = asker.ask(
        "QUERY",
        "org.amqp.management",
        "self",
        {"attributeNames": ["name"]},
        {"entityType": "stream", "offset": 1, "count": 5},
    )
    assert answer.map() == {"attributeNames": ["name"], "results": [["s2"]]}


def test_all_types_at_once_are_sorted_by_type(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "a")
    asker.ask("CREATE", "queue", "z")
    types = [row["type"] for row in asker.query()]
    assert types == sorted(types, key=str)
    assert {"org.ferrymq.broker", "org.ferrymq.queue", "org.ferrymq.link"} <= set(types)
    nodes = asker.query("org.ferrymq.node", attributeNames=["name", "type"])
    assert {(row["name"], row["type"]) for row in nodes} == {
        ("z", "org.ferrymq.queue"),
        (asker.reply_to, "org.ferrymq.queue"),
        ("a", "org.ferrymq.stream"),
    }


def test_an_answer_has_a_thousand_at_most(net: Network, asker: Asker) -> None:
    net.space.max_nodes = 2000
    for number in range(1010):
        net.declare(f"q{number:04}")
    body: dict[str, object] = {"entityType": "queue", "count": 5000, "attributeNames": ["name"]}
    answer = asker.ask("QUERY", "org.amqp.management", "self", body)
    assert (answer.properties["count"], answer.properties["total"]) == (1000, 1011)
    rows = asker.query("queue", offset=1000, attributeNames=["name"])
    assert [row["name"] for row in rows] == [f"q{number:04}" for number in range(999, 1010)]


@pytest.mark.parametrize(
    "body",
    [
        {"entityType": "nothing"},
        {"entityType": 5},
        {"offset": -1},
        {"offset": "first"},
        {"count": -1},
        {"count": True},
        {"attributeNames": "name"},
        {"attributeNames": [1]},
    ],
)
def test_arguments_that_make_no_sense(asker: Asker, body: dict[str, object]) -> None:
    answer = asker.ask("QUERY", "org.amqp.management", "self", body)
    assert answer.status == 400
    assert str(next(iter(body))) in answer.description or "nothing" in answer.description


def test_the_node_tells_what_it_manages(asker: Asker) -> None:
    types = asker.ask("GET-TYPES", "org.amqp.management", "self").map()
    assert types["org.ferrymq.queue"] == ["org.ferrymq.node"]
    assert types["org.ferrymq.connection"] == ["org.ferrymq.entity"]
    attributes = asker.ask("GET-ATTRIBUTES", "org.amqp.management", "self").map()
    assert attributes.keys() == types.keys()
    operations = asker.ask("GET-OPERATIONS", properties={"entityType": "queue"}).map()
    queue = operations.pop("org.ferrymq.queue")
    assert isinstance(queue, dict) and not operations
    assert {"CREATE", "READ", "UPDATE", "DELETE", "PURGE"} <= queue.keys()
    assert "max-length" in queue["CREATE"]
    assert asker.ask("GET-MGMT-NODES").body == []
    annotations = asker.ask("GET-ANNOTATIONS", properties={"entityType": "link"})
    assert annotations.body == {"org.ferrymq.link": []}
    assert asker.ask("GET-TYPES", properties={"entityType": "nothing"}).status == 400


def test_what_is_listed_is_what_is_shown(net: Network, asker: Asker) -> None:
    """GET-ATTRIBUTES leaves out nothing that a READ shows, and names nothing that it does not."""
    asker.ask("CREATE", "queue", "q")
    asker.ask("CREATE", "stream", "s")
    asker.ask("CREATE", "alias", "a", {"address": "q"})
    asker.ask("CREATE", "topic", "t")
    asker.ask("CREATE", "subscription", "t::sub")
    asker.ask("CREATE", "exchange", "x")
    asker.ask("CREATE", "binding", None, {"exchange": "x", "destination": "q"})
    net.space.fences.pass_(FenceRecord("group", "member", 1), net.wall)
    net.connect().sender("q", target=Target(address="q", timeout=60))
    attributes = asker.ask("GET-ATTRIBUTES", "org.amqp.management", "self").map()
    rows = asker.query(attributeNames=["type", "identity"])
    assert {row["type"] for row in rows} == attributes.keys()
    for row in rows:
        type, identity = str(row["type"]), str(row["identity"])
        shown = asker.ask("READ", type, identity).map().keys() - {"identity", "type"}
        listed = attributes[type]
        assert isinstance(listed, list)
        assert set(listed) == shown, type
