"""Topics and subscriptions are declared, seen and emptied."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import ApplicationProperties, Data
from tests.broker.harness import Network
from tests.broker.management.asker import Asker


def test_a_subscription_collects_until_somebody_comes(net: Network, asker: Asker) -> None:
    made = asker.ask("CREATE", "topic", "prices", {"subscription.max-length": 5})
    assert made.status == 400
    made = asker.ask("CREATE", "topic", "prices", {"subscription": {"max-length": 5}})
    assert made.status == 201
    subscription = asker.ask("CREATE", "subscription", "prices::audit", {"delivery-limit": 3})
    assert subscription.status == 201
    attributes = subscription.map()
    assert attributes["identity"] == attributes["address"] == "prices::audit"
    assert (attributes["topic"], attributes["declared"]) == ("prices", True)
    settings = attributes["settings"]
    assert isinstance(settings, dict)
    assert (settings["max-length"], settings["delivery-limit"]) == (5, 3)
    net.connect().sender("prices").send(b"a", b"b")
    assert asker.ask("READ", "subscription", "prices::audit").map()["available"] == 2
    assert asker.ask("READ", "topic", "prices").map()["subscriptions"] == 1
    receiver = net.connect().receiver("prices::audit", credit=1)
    assert receiver.bodies() == [b"a"]


def test_a_selector_decides_what_gets_in(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "topic", "t")
    assert (
        asker.ask("CREATE", "subscription", "t::red", {"selector": "color = 'red'"}).status == 201
    )
    sender = net.connect().sender("t")
    for color in ("red", "blue", "red"):
        sender.send_sections(ApplicationProperties({"color": color}), Data(color.encode()))
    read = asker.ask("READ", "subscription", "t::red").map()
    assert read["available"] == 2
    assert "red" in str(read["filter"])
    wrong = asker.ask("CREATE", "subscription", "t::bad", {"selector": "color ="})
    assert wrong.status == 400
    assert asker.ask("READ", "subscription", "t::bad").status == 404


def test_making_it_again_does_nothing(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "topic", "t")
    body: dict[str, object] = {"selector": "a = 1", "max-length": 5}
    assert asker.ask("CREATE", "subscription", "t::s", body).status == 201
    assert asker.ask("CREATE", "subscription", "t::s", dict(body)).status == 200
    assert asker.ask("CREATE", "subscription", "t::s", {**body, "max-length": 6}).status == 409
    assert asker.ask("CREATE", "subscription", "t::s", {"max-length": 5}).status == 409


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("q::s", {}, 409),
        ("t", {}, 400),
        ("t::", {}, 400),
        ("::s", {}, 400),
        ("none::s", {}, 404),
        ("t::s", {"max-length": "x"}, 400),
        ("t::s", {"partitions": 1}, 400),
        ("t::s", {"selector": 5}, 400),
    ],
)
def test_what_cannot_be_a_subscription(
    net: Network, asker: Asker, name: str, body: dict[str, object], status: int
) -> None:
    net.space.auto_create = None
    net.declare("q")
    asker.ask("CREATE", "topic", "t")
    assert asker.ask("CREATE", "subscription", name, body).status == status
    assert asker.query("subscription") == []


def test_a_subscription_is_emptied_moved_and_looked_at(net: Network, asker: Asker) -> None:
    net.declare("q")
    asker.ask("CREATE", "topic", "t")
    asker.ask("CREATE", "subscription", "t::s")
    net.connect().sender("t").send(b"a", b"b", b"c")
    peeked = asker.ask("PEEK", "subscription", "t::s").map()["messages"]
    assert isinstance(peeked, list) and len(peeked) == 3
    move = {"target": "q", "count": 1}
    assert asker.ask("MOVE", "subscription", "t::s", move).map() == {"count": 1}
    assert net.queue("q").message_count() == 1
    assert asker.ask("DELETE", "subscription", "t::s", {"if-empty": True}).status == 409
    assert asker.ask("PURGE", "subscription", "t::s").map() == {"count": 2}
    assert asker.ask("DELETE", "subscription", "t::s", {"if-empty": True}).status == 204
    for operation in ("READ", "DELETE", "PURGE", "PEEK"):
        assert asker.ask(operation, "subscription", "t::s").status == 404


def test_subscriptions_of_links_are_seen_and_ended(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "topic", "t")
    receiver = net.connect(container_id="worker").receiver("t", credit=1)
    (row,) = asker.query("subscription")
    assert (row["topic"], row["container"], row["links"]) == ("t", "worker", 1)
    used = asker.ask("DELETE", "subscription", str(row["identity"]), {"if-unused": True})
    assert used.status == 409
    assert asker.ask("DELETE", "subscription", str(row["identity"])).status == 204
    assert receiver.detached and receiver.error is not None
    assert receiver.error.condition == "amqp:resource-deleted"


def test_settings_are_changed(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "topic", "t")
    asker.ask("CREATE", "subscription", "t::s", {"max-length": 5})
    changed = asker.ask("UPDATE", "subscription", "t::s", {"max-length": 1})
    settings = changed.map()["settings"]
    assert isinstance(settings, dict) and settings["max-length"] == 1
    # Of the topic: for subscriptions to come.
    asker.ask("UPDATE", "topic", "t", {"subscription": {"max-length": 7}})
    later = asker.ask("CREATE", "subscription", "t::later").map()["settings"]
    assert isinstance(later, dict) and later["max-length"] == 7
    assert asker.ask("UPDATE", "topic", "t", {"max-subscriptions": 2}).status == 200
    assert asker.ask("CREATE", "subscription", "t::more").status == 507


def test_a_name_with_separators_is_written_so_that_it_is_one(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "topic", "t")
    made = asker.ask("CREATE", "subscription", "t::a/b", {"max-length": 5})
    assert (made.status, made.map()["identity"]) == (201, "t::a%2Fb")
    assert asker.ask("CREATE", "subscription", "t::a/b", {"max-length": 5}).status == 200
    assert asker.ask("READ", "subscription", "t::a%2Fb").status == 200
    net.space.aliases["other"] = "t"
    assert asker.ask("PURGE", "subscription", "other::a%2Fb").map() == {"count": 0}
    assert asker.ask("READ", "subscription", "other::a%2Fb").map()["name"] == "t::a%2Fb"
