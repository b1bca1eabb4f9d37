"""Names that are meant to be taken for others: of nodes, of their parts, of subscriptions."""

from __future__ import annotations

import pytest

from ferrymq_broker.access.grants import Grant
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.rules import bind_rules
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import (
    Source,
    Target,
)
from tests.broker.access.guarded import (
    UNAUTHORIZED,
    condition,
    is_open,
    lacks,
    rejected,
    send_to,
    user,
)
from tests.broker.harness import Network, Receiver
from tests.broker.lasting import lasting_source

RULES = """
[[topic]]
name = "news"

[[topic]]
name = "news:"

[[topic]]
name = "gossip"

[[exchange]]
name = "till:"

[[queue]]
name = "till"

[[rule]]
who = "user:eve"
may-not = "*"
where = "news::alerts"

[[rule]]
who = "user:boss"
may = "*"
where = "*"

[[rule]]
who = "user:eve"
may = ["receive", "send"]
where = ["news", "till"]

[[rule]]
who = "user:gus"
may = ["receive", "send"]
where = "gossip"
"""


def test_a_link_is_no_way_to_a_subscription_that_a_rule_refuses(net: Network) -> None:
    boss = user(net, "boss")
    alerts = lasting_source("news", "shared", "global")
    first = boss.receiver(None, name="alerts|1", source=alerts, credit=10)
    eve = user(net, "eve")
    assert lacks(eve.receiver("news::alerts")) == "receive at 'news::alerts'"
    for name in ("alerts", "alerts|2"):
        assert lacks(eve.receiver(None, name=name, source=alerts)) == "receive at 'alerts'"
    first.close(closed=False)
    assert condition(eve.receiver(None, name="alerts", source=alerts)) == UNAUTHORIZED
    # One of her own that she calls so is met by the rule as well.
    own = eve.receiver(None, name="alerts", source=lasting_source("news"))
    assert lacks(own).startswith("receive at 'eve@")
    assert is_open(eve.receiver(None, name="others", source=alerts))


def test_everybodys_subscription_is_not_ended_from_another_topic(net: Network) -> None:
    everybodys = lasting_source("news", "shared", "global")
    user(net, "boss").receiver(None, name="all", source=everybodys).close(closed=False)
    user(net, "eve").sender("news").send(b"one")
    gus = user(net, "gus")
    taken = gus.receiver(None, name="all", source=lasting_source("gossip", "shared", "global"))
    assert lacks(taken) == "receive at 'all'"
    news = net.space.nodes["news"]
    assert isinstance(news, Topic) and [each.name for each in news.subscriptions()] == ["all"]
    # Nor does he learn where it is.
    link = gus.session.attach_receiver("all|1", source=None, target=Target())
    receiver = gus.links[link] = Receiver(gus, link)
    net.run()
    assert condition(receiver) == "amqp:not-found"
    again = user(net, "eve").receiver(None, name="all", source=everybodys, credit=1)
    assert again.bodies() == [b"one"]


@pytest.mark.parametrize("address", ["news:::part", "news::::part", "news:"])
def test_a_colon_more_is_another_node(net: Network, address: str) -> None:
    boss = user(net, "boss")
    assert is_open(boss.receiver("news:"))
    eve = user(net, "eve")
    assert lacks(eve.receiver(address)) == f"receive at '{address}'"
    assert lacks(eve.receiver(address, mode="copy")) == f"browse at '{address}'"


def test_a_routing_key_with_a_colon_is_another_exchange(net: Network) -> None:
    eve = user(net, "eve")
    assert lacks(eve.sender("till:::key")) == "send at 'till:::key'"
    assert rejected(send_to(eve.sender(None), "till:::key")) == UNAUTHORIZED


ODD = [
    "till.",
    "till ",
    " till",
    "Till",
    "TILL",
    "till\0",
    "till\u200b",
    "ti\u0131l",
    "\uff54ill",
    "till/",
    "./till",
    "till::",
    "::till",
    "{user}",
    "*",
    "t?ll",
    "dynamic.till",
    "dynamic.",
    "$till",
    "$management::x",
    "$cbs/",
    "x" * 3000,
]


@pytest.mark.parametrize("address", ODD, ids=ascii)
def test_an_address_is_what_it_is(net: Network, address: str) -> None:
    """Nothing that looks like an address is one, and none of it is made."""
    eve = user(net, "eve")
    receiver = eve.receiver(address)
    if address == "till::":
        # No part of it: itself.
        assert is_open(receiver)
        return
    assert condition(receiver) == UNAUTHORIZED
    assert condition(eve.receiver(address, mode="copy")) == UNAUTHORIZED
    if not address.startswith("dynamic."):
        assert condition(eve.sender(address)) == UNAUTHORIZED
        assert rejected(send_to(eve.sender(None), address)) == UNAUTHORIZED
    assert sorted(name for name in net.space.nodes if not name.startswith("$")) == [
        "gossip",
        "news",
        "news:",
        "till",
        "till:",
    ]


def test_aliases_in_a_circle_are_told_to_who_may_use_their_names_only(net: Network) -> None:
    net.space.alias("round", "about")
    net.space.alias("about", "round")
    eve, boss = user(net, "eve"), user(net, "boss")
    for address in ("round", "nothing"):
        assert lacks(eve.receiver(address)) == f"receive at '{address}'"
        assert lacks(eve.sender(address)) == f"send at '{address}'"
        assert rejected(send_to(eve.sender(None), address)) == UNAUTHORIZED
    assert condition(boss.receiver("round")) == "amqp:not-found"
    assert condition(boss.sender("round")) == "amqp:not-found"


def test_what_is_wrong_with_an_attach_is_told_after_its_rights(net: Network) -> None:
    """A wrong kind, a filter that is none, a mode there is not: not to who may do nothing there."""
    eve = user(net, "eve")
    net.space.create("secret", net.queue("till").policy)
    selector = {"selector": Described(Symbol("apache.org:selector-filter:string"), "no (")}
    for address in ("secret", "missing"):
        for source in (
            Source(address=address, capabilities=["topic"]),
            Source(address=address, filter=dict(selector)),
            Source(address=f"{address}::part"),
        ):
            assert lacks(eve.receiver(None, source=source)).endswith(f" at {source.address!r}")
        target = Target(address=address, capabilities=["topic"])
        assert lacks(eve.sender(None, target=target)) == f"send at '{address}'"
        for exclusive in (True, False):
            asked: dict[str, object] = {"exclusive": exclusive, "priority": 9}
            assert lacks(eve.receiver(address, properties=asked)) == f"receive at '{address}'"


def test_a_link_that_is_refused_takes_nobodys_place(net: Network) -> None:
    first = user(net, "eve", container_id="box")
    link = first.receiver("till", name="link", credit=1)
    second = user(net, "eve", container_id="box")
    assert condition(second.receiver("secret", name="link")) == UNAUTHORIZED
    assert is_open(link)
    user(net, "boss").sender("till").send(b"one")
    assert link.bodies() == [b"one"]


def test_a_token_for_a_node_is_none_for_another_with_a_colon_more() -> None:
    identity = UserIdentity(None)
    grant = Grant("news", identity, bind_rules([], identity))
    assert grant.covers("news") and grant.covers("news::part") and grant.covers("news/sub")
    for address in ("news:", "news:::part", "news::::part", "news.x", "newsx"):
        assert not grant.covers(address)
