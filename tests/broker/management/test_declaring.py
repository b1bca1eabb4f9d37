"""CREATE, READ, UPDATE and DELETE of nodes: queues stand for all, others where they differ."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy
from tests.broker.harness import Network
from tests.broker.management.asker import Asker


def test_a_queue_is_made_read_and_deleted(net: Network, asker: Asker) -> None:
    made = asker.ask("CREATE", "org.ferrymq.queue", "orders", {"max-length": 5, "durable": False})
    assert (made.status, made.description) == (201, "created")
    assert net.queue("orders").policy == QueuePolicy(max_length=5, durable=False)
    read = asker.ask("READ", "queue", "orders")
    assert read.status == 200
    assert read.body == made.body
    attributes = read.map()
    assert attributes["name"] == attributes["identity"] == "orders"
    assert attributes["type"] == "org.ferrymq.queue"
    assert (attributes["max-length"], attributes["overflow"]) == (5, "reject")
    gone = asker.ask("DELETE", "queue", "orders")
    assert (gone.status, gone.body) == (204, {})
    assert "orders" not in net.space.nodes
    assert asker.ask("READ", "queue", "orders").status == 404
    assert asker.ask("DELETE", "queue", "orders").status == 404


def test_an_identity_is_as_good_as_a_name(net: Network, asker: Asker) -> None:
    net.declare("q")
    read = asker.ask("READ", "queue", properties={"identity": "q"})
    assert read.map()["name"] == "q"


def test_making_it_again_does_nothing(net: Network, asker: Asker) -> None:
    assert asker.ask("CREATE", "queue", "q", {"max-length": 5}).status == 201
    net.connect().sender("q").send(b"kept")
    again = asker.ask("CREATE", "queue", "q", {"max-length": 5})
    assert (again.status, again.description) == (200, "exists already")
    assert net.queue("q").message_count() == 1


def test_making_it_with_other_settings_is_a_conflict(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "queue", "q", {"max-length": 5})
    other = asker.ask("CREATE", "queue", "q", {"max-length": 6})
    assert other.status == 409
    assert "max-length = 5, not 6" in other.description
    kind = asker.ask("CREATE", "stream", "q")
    assert (kind.status, kind.description) == (409, "'q' is a queue")
    assert net.queue("q").policy.max_length == 5


@pytest.mark.parametrize(
    ("name", "attributes", "words"),
    [
        ("q", {"max-lenght": 5}, "did you mean 'max-length'"),
        ("q", {"max-length": -1}, "max-length"),
        ("q", {"max-length": "many"}, "max-length"),
        ("q", {"overflow": "burst"}, "overflow"),
        ("q", {"overflow": "dead-letter"}, "dead-letter"),
        ("q", {"available": 3}, "available"),
        ("$q", {}, "reserved"),
        ("dynamic.q", {}, "reserved"),
        ("q" * 1025, {}, "1025"),
        ("", {}, "no name"),
    ],
)
def test_what_cannot_be_made_is_refused_by_the_name_of_the_attribute(
    net: Network, asker: Asker, name: str, attributes: dict[str, object], words: str
) -> None:
    before = set(net.space.nodes)
    answer = asker.ask("CREATE", "queue", name, attributes)
    assert answer.status == 400
    assert words in answer.description
    assert set(net.space.nodes) == before


def test_there_is_no_more_room_than_configured(net: Network, asker: Asker) -> None:
    net.space.max_nodes = 0
    answer = asker.ask("CREATE", "queue", "q")
    assert answer.status == 507
    assert "there are 0 nodes already" in answer.description


def test_links_to_a_deleted_queue_are_told(net: Network, asker: Asker) -> None:
    net.declare("q")
    client = net.connect()
    sender, receiver = client.sender("q"), client.receiver("q")
    asker.ask("DELETE", "queue", "q")
    for link in (sender, receiver):
        assert link.detached and link.error is not None
        assert link.error.condition == "amqp:resource-deleted"


def test_a_queue_may_be_spared_while_it_is_needed(net: Network, asker: Asker) -> None:
    net.declare("q")
    sender = net.connect().sender("q")
    sender.send(b"one")
    full = asker.ask("DELETE", "queue", "q", {"if-empty": True})
    assert (full.status, full.description) == (409, "'q' has 1 messages")
    used = asker.ask("DELETE", "queue", "q", {"if-unused": "true"})
    assert (used.status, used.description) == (409, "'q' has 1 links")
    assert asker.ask("DELETE", "queue", "q", {"if-empty": "maybe"}).status == 400
    assert asker.ask("DELETE", "queue", "q", {"if-emtpy": True}).status == 400
    sender.close()
    assert asker.ask("PURGE", "queue", "q").map() == {"count": 1}
    assert asker.ask("DELETE", "queue", "q", {"if-empty": True, "if-unused": True}).status == 204


def test_an_alias_will_do_to_read_and_not_to_delete(net: Network, asker: Asker) -> None:
    net.declare("q")
    net.space.aliases["other"] = "q"
    assert asker.ask("READ", "queue", "other").map()["name"] == "q"
    assert asker.ask("DELETE", "queue", "other").status == 404
    assert asker.ask("CREATE", "queue", "other").status == 409


def test_a_node_of_another_kind_is_not_found(net: Network, asker: Asker) -> None:
    net.declare("q")
    for operation in ("READ", "UPDATE", "DELETE"):
        assert asker.ask(operation, "stream", "q").status == 404
    assert asker.ask("DELETE", "queue", "$management").status == 404


def test_a_setting_of_a_stream_is_changed_and_the_others_stay(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s", {"partitions": 2, "max-records": 100})
    changed = asker.ask("UPDATE", "stream", "s", {"partitions": 3})
    assert (changed.status, changed.description) == (200, "updated")
    assert (changed.map()["partitions"], changed.map()["max-records"]) == (3, 100)
    fewer = asker.ask("UPDATE", "stream", "s", {"partitions": 2})
    assert fewer.status == 409
    assert "their number cannot be reduced" in fewer.description
    # What was read may be sent back with a change in it, but for the figures.
    assert asker.ask("UPDATE", "stream", "s", {"name": "s", "max-records": 7}).status == 200
    stream = net.space.nodes["s"]
    assert getattr(stream, "policy") == StreamPolicy(partitions=3, max_records=7)  # noqa: B009
    assert asker.ask("UPDATE", "stream", "s", {"bytes": 7}).status == 400
    assert asker.ask("UPDATE", "stream", "t", {}).status == 404
