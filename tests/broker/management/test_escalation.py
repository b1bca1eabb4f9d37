"""Nobody gets more rights by what he declares, nor takes others' rights away."""

from __future__ import annotations

import pytest

from ferrymq.engine.sasl import Plain
from ferrymq_broker.addresses.templates import PatternTemplate
from ferrymq_broker.management.policies import node_policy
from tests.broker.harness import Network
from tests.broker.lasting import lasting_source
from tests.broker.management.asker import Answer, Asker
from tests.broker.management.rules import guard, rule, user


def furnish(net: Network) -> None:
    space = net.space
    for name in ("work", "desk", "eves.box"):
        space.create(name, node_policy("queue", {}))
    space.create("news", node_policy("topic", {}))
    space.auto_create = space.auto_create_topic = None


def lacks(answer: Answer) -> str:
    assert answer.status == 403, answer.description
    assert answer.properties["errorCondition"] == "amqp:unauthorized-access"
    return answer.description.removesuffix(" is not allowed to you")


WAYS = [
    ("queue", "eves.new", {"dead-letter": "work"}),
    ("queue", "eves.new", {"expired": "work"}),
    ("queue", "eves.new", {"expired": "to-work"}),
    ("topic", "eves.new", {"subscription": {"dead-letter": "work"}}),
]


@pytest.mark.parametrize(("type", "name", "arguments"), WAYS)
def test_who_sends_somewhere_does_not_take_it_from_its_readers(
    net: Network, type: str, name: str, arguments: dict[str, object]
) -> None:
    furnish(net)
    net.space.set_alias("to-work", "work")
    guard(
        net,
        rule("*", "*", "eves.*"),
        rule("user:eve", "send", "work"),
        rule("user:boss", "send manage", "work"),
        rule("user:worker", "receive", "work"),
    )
    named = "to-work" if "to-work" in arguments.values() else "work"
    assert lacks(user(net, "eve").ask("CREATE", type, name, arguments)) == f"manage at '{named}'"
    worker = user(net, "worker").client
    assert worker.receiver("work").error is None
    assert user(net, "boss").ask("CREATE", type, name, arguments).status == 201
    if type == "queue":
        assert worker.receiver("work").error is not None


def test_nor_by_an_alias_that_dead_letters_go_to(net: Network) -> None:
    furnish(net)
    guard(net, rule("*", "*", "eves.*"), rule("*", "send", "work"), rule("*", "receive", "work"))
    eve = user(net, "eve")
    eve.ask("CREATE", "alias", "eves.way", {"address": "eves.box"})
    for way in ("eves.way", "eves.parted::part", "eves.none"):
        letters = {"dead-letter": way}
        assert eve.ask("CREATE", "queue", f"eves.q-{way[5:8]}", letters).status == 201
    there = {"address": "work"}
    assert lacks(eve.ask("UPDATE", "alias", "eves.way", there)) == "manage at 'work'"
    assert lacks(eve.ask("CREATE", "alias", "eves.none", there)) == "manage at 'work'"
    assert lacks(eve.ask("CREATE", "alias", "eves.parted", there)) == "manage at 'work'"
    assert eve.ask("CREATE", "alias", "eves.other", there).status == 201
    # Nor by an alias that such an alias leads to.
    for name, address in (("eves.far", "eves.box"), ("eves.near", "eves.far")):
        assert eve.ask("CREATE", "alias", name, {"address": address}).status == 201
    letters = {"dead-letter": "eves.near"}
    assert eve.ask("CREATE", "queue", "eves.q-far", letters).status == 201
    assert lacks(eve.ask("UPDATE", "alias", "eves.far", there)) == "manage at 'work'"
    assert eve.client.receiver("work").error is None


@pytest.mark.parametrize("key", ["dead-letter", "expired"])
def test_who_manages_a_queue_does_not_read_it_elsewhere(net: Network, key: str) -> None:
    furnish(net)
    guard(
        net,
        rule("*", "*", "eves.*"),
        rule("user:eve", "manage create", "work news"),
        rule("user:bob", "manage create receive", "work news"),
    )
    declared: list[tuple[str, str, str, dict[str, object]]] = [
        ("UPDATE", "queue", "work", {key: "eves.box", "message-ttl": 1}),
        ("CREATE", "subscription", "news::all", {key: "eves.box", "message-ttl": 1}),
        ("UPDATE", "topic", "news", {"subscription": {key: "eves.box"}}),
    ]
    eve, bob = user(net, "eve"), user(net, "bob")
    for operation, type, name, arguments in declared:
        asked = eve.ask(operation, type, name, arguments)
        assert lacks(asked) == f"receive at '{name}'"
    assert eve.ask("UPDATE", "queue", "work", {"message-ttl": 1, key: None}).status in (200, 400)
    for operation, type, name, arguments in declared:
        assert bob.ask(operation, type, name, arguments).status in (200, 201)


def test_ones_own_subscription_where_dead_letters_go_takes_their_right(net: Network) -> None:
    furnish(net)
    guard(net, rule("user:ann", "receive", "news"))
    ann = user(net, "ann")
    durable = lasting_source("news")
    ann.client.receiver(None, name="mine", source=durable).close(closed=False)
    name = "news::ann@box-ann/mine"
    assert ann.ask("PEEK", "subscription", name).status == 200
    net.space.create("q", node_policy("queue", {"dead-letter": "news"}))
    assert ann.ask("PEEK", "subscription", name).status == 403
    assert ann.query("subscription") == []


def test_where_an_alias_leads_is_not_told_by_a_right_at_its_name(net: Network) -> None:
    furnish(net)
    net.space.set_alias("public.way", "work")
    guard(
        net, rule("user:eve", "send receive browse", "public.*"), rule("user:ann", "send", "work")
    )
    eve, ann = user(net, "eve"), user(net, "ann")
    there, none = (eve.ask("READ", "alias", name) for name in ("public.way", "public.no"))
    assert there.status == none.status == 403
    assert eve.query("alias") == []
    assert ann.ask("READ", "alias", "public.way").map()["address"] == "work"
    assert [row["name"] for row in ann.query("alias")] == ["public.way"]


def test_a_subscription_is_no_way_to_make_its_topic(net: Network) -> None:
    furnish(net)
    net.space.auto_create = net.space.auto_create_topic = None
    template = PatternTemplate()
    template.add("made.*", node_policy("topic", {}))
    net.space.templates.append(template)
    guard(net, rule("user:eve", "manage", "made.*"), rule("user:bob", "manage create", "made.*"))
    asked = user(net, "eve").ask("CREATE", "subscription", "made.t::s")
    assert lacks(asked) == "create at 'made.t'"
    assert "made.t" not in net.space.nodes
    assert user(net, "bob").ask("CREATE", "subscription", "made.t::s").status == 201


def test_nobody_hides_a_terminus_of_somebody_else_behind_a_name(net: Network) -> None:
    furnish(net)
    guard(net, rule("*", "receive", "work"), rule("user:root", "manage", "$management"))
    kept = lasting_source("work")
    for who, container in (("a@b", "c"), ("a", "b@c"), (None, "a@b@c")):
        sasl = None if who is None else Plain(who, "x")
        client = net.connect(sasl=sasl, container_id=container)
        client.receiver(None, name="link", source=kept).close(closed=False)
    names = [str(row["name"]) for row in user(net, "root").query("terminus")]
    assert len(set(names)) == 3
    owner = Asker(net, net.connect(sasl=Plain("a@b", "x")))
    (mine,) = owner.query("terminus")
    assert mine["container"] == "c"
    assert owner.ask("DELETE", "terminus", str(mine["name"])).status == 204
