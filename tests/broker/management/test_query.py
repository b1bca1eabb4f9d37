"""QUERY: many entities in one answer, and in pages."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.fences import FenceRecord
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, StreamPolicy, TopicPolicy
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


def test_an_answer_has_a_bound(net: Network, asker: Asker) -> None:
    net.space.max_nodes = 6000
    for number in range(5010):
        net.declare(f"q{number:04}")
    for names, most in ((["name"], 5000), (["bytes"] * 20, 2500), ([], 1000)):
        body = {"entityType": "queue", "count": 9999, "attributeNames": names}
        answer = asker.ask("QUERY", "org.amqp.management", "self", body)
        assert (answer.properties["count"], answer.properties["total"]) == (most, 5011)
    rows = asker.query("queue", offset=5000, attributeNames=["name"])
    assert [row["name"] for row in rows] == [f"q{number:04}" for number in range(4999, 5010)]


def test_entities_are_sorted_by_an_attribute(net: Network, asker: Asker) -> None:
    queues = [net.declare(f"q{n:04}", QueuePolicy(max_length=9 + n % 7)) for n in range(900)]
    queues.append(net.queue(str(asker.reply_to)))
    client = net.connect()
    for name, count in (("q0300", 3), ("q0200", 1), ("q0100", 3)):
        sender = client.sender(name)
        for _ in range(count):
            sender.send(b"m")
    busy = asker.query("queue", attributeNames=["name", "available"], sort="-available", count=4)
    assert [(row["name"], row["available"]) for row in busy[:3]] == [
        ("q0100", 3),
        ("q0300", 3),
        ("q0200", 1),
    ]
    every = asker.query("queue", attributeNames=["name"], sort="max-length", count=5000)
    limits = {queue.address: queue.policy.max_length for queue in queues}
    names = [str(row["name"]) for row in every]
    assert names == sorted(sorted(limits), key=limits.__getitem__)
    (last,) = asker.query("queue", attributeNames=["name"], sort="-name", count=1)
    assert last["name"] == "q0899"
    # Pages of a sorted table fit together.
    page = asker.query("queue", attributeNames=["name"], sort="max-length", offset=700, count=300)
    assert [row["name"] for row in page] == names[700:1000]


def test_an_attribute_that_nobody_has_sorts_nothing(asker: Asker) -> None:
    body: dict[str, object] = {"entityType": "queue", "sort": "-weight"}
    answer = asker.ask("QUERY", "org.amqp.management", "self", body)
    assert (answer.status, "'weight'" in answer.description) == (400, True)
    assert "available" in answer.description


def test_a_few_attributes_are_those_of_all(net: Network, asker: Asker) -> None:
    """Tables with a few columns are read in a shorter way, with the same result."""
    net.declare("q", QueuePolicy(max_length=5, labels=("a",)))
    net.space.create("t", TopicPolicy())
    net.space.create("s", StreamPolicy(partitions=2))
    net.space.create("e", ExchangePolicy())
    client = net.connect()
    client.receiver("t", credit=0)
    for address in ("q", "t", "s", "e"):
        client.sender(address).send(b"m")
    for type in ("queue", "topic", "subscription", "stream", "exchange"):
        whole = asker.query(type)
        for name in whole[0]:
            told = [row[name] for row in asker.query(type, attributeNames=[name])]
            if name not in ("delivered", "accepted", "published", "filter-evaluations"):
                assert told == [row[name] for row in whole], (type, name)


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
