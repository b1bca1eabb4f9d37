"""What a link takes, and that who may not have one learns nothing."""

from __future__ import annotations

import pytest

from ferrymq_broker.config.model import Config
from ferrymq_types.messaging import Source, Target
from tests.broker.access.guarded import condition, guarded, is_open, lacks, user
from tests.broker.harness import Network

RULES = """
[nodes]
auto-create = true

[[queue]]
name = "orders"

[[topic]]
name = "prices"

[[stream]]
name = "clicks"
partitions = 2

[[alias]]
name = "bestellungen"
to = "orders"

[[alias]]
name = "first-clicks"
to = "clicks::0"

[[redirect]]
name = "archive"
host = "archive.example"

[[rule]]
who = "user:maker"
may = ["send", "create"]
where = ["orders", "clicks", "new.*", "archive"]

[[rule]]
who = "user:taker"
may = "receive"
where = ["orders", "prices", "clicks"]

[[rule]]
who = "user:looker"
may = "browse"
where = "*"

[[rule]]
who = "user:writer"
may = ["send", "receive"]
where = "new.*"

[[rule]]
who = "user:first"
may = ["send", "receive"]
where = "clicks::0"

[[rule]]
who = "user:rest"
may-not = "receive"
where = "clicks::0"

[[rule]]
who = "user:rest"
may = "receive"
where = "clicks"

[[rule]]
who = "user:other"
may = "*"
where = "elsewhere"
"""


def test_each_may_do_what_is_his(net: Network) -> None:
    maker, taker, looker = (user(net, name) for name in ("maker", "taker", "looker"))
    assert is_open(maker.sender("orders"))
    assert lacks(maker.receiver("orders")) == "receive at 'orders'"
    assert is_open(taker.receiver("orders"))
    assert lacks(taker.sender("orders")) == "send at 'orders'"
    assert is_open(looker.receiver("orders", mode="copy"))
    assert lacks(looker.receiver("orders")) == "receive at 'orders'"
    assert lacks(taker.receiver("orders", mode="copy")) == "browse at 'orders'"


def test_copies_of_a_topic_or_a_stream_are_received(net: Network) -> None:
    taker, looker = user(net, "taker"), user(net, "looker")
    for address in ("prices", "clicks", "clicks::1"):
        assert is_open(taker.receiver(address, mode="copy")), address
        assert lacks(looker.receiver(address, mode="copy")) == f"receive at '{address}'"


@pytest.mark.parametrize("address", ["orders", "prices", "clicks::0", "missing", "archive", "$x"])
def test_who_may_do_nothing_somewhere_does_not_learn_what_is_there(
    net: Network, address: str
) -> None:
    other = user(net, "other")
    assert lacks(other.sender(address)) == f"send at '{address}'"
    assert lacks(other.receiver(address)) == f"receive at '{address}'"
    assert lacks(other.receiver(address, mode="copy")) == f"browse at '{address}'"
    assert lacks(other.receiver("q" * 300)) == f"receive at '{'q' * 200}'"


def test_a_refused_link_makes_no_node(net: Network) -> None:
    before = set(net.space.nodes)
    other = user(net, "other")
    lacks(other.sender("missing"))
    lacks(other.receiver("missing"))
    lacks(other.receiver("missing", source=Source(address="missing", capabilities=["topic"])))
    assert set(net.space.nodes) == before


def test_to_make_a_node_takes_create(net: Network) -> None:
    writer, maker = user(net, "writer"), user(net, "maker")
    assert lacks(writer.sender("new.one")) == "create at 'new.one'"
    assert lacks(writer.receiver("new.one")) == "create at 'new.one'"
    assert "new.one" not in net.space.nodes
    assert is_open(maker.sender("new.one"))
    assert is_open(writer.sender("new.one"))
    # Where links make no nodes there is nothing to be allowed.
    net.space.auto_create = None
    assert condition(writer.sender("new.two")) == "amqp:not-found"


def test_an_alias_is_no_way_around_a_rule(net: Network) -> None:
    maker, other = user(net, "maker"), user(net, "other")
    sender = maker.sender("bestellungen")
    assert is_open(sender) and sender.remote_target.address == "bestellungen"
    # Told by the name that he knows.
    assert lacks(other.sender("bestellungen")) == "send at 'bestellungen'"
    net.space.set_alias("elsewhere", "orders")
    assert lacks(other.sender("elsewhere")) == "send at 'elsewhere'"
    net.space.set_alias("again", "elsewhere")
    assert lacks(other.receiver("again")) == "receive at 'again'"
    assert is_open(maker.sender("again"))


def test_an_alias_of_a_node_is_one_of_its_parts(net: Network) -> None:
    net.space.set_alias("elsewhere", "clicks")
    first, other = user(net, "first"), user(net, "other")
    assert is_open(first.receiver("elsewhere::0"))
    assert lacks(first.receiver("elsewhere::1")) == "receive at 'elsewhere::1'"
    assert lacks(other.receiver("elsewhere::0")) == "receive at 'elsewhere::0'"


def test_aliases_in_a_circle_lead_nowhere(net: Network) -> None:
    net.space.set_alias("round", "about")
    net.space.set_alias("about", "round")
    assert condition(user(net, "looker").receiver("round", mode="copy")) == "amqp:not-found"


def test_a_rule_for_a_node_is_one_for_its_parts(net: Network) -> None:
    taker = user(net, "taker")
    assert is_open(taker.receiver("clicks::0"))
    assert is_open(taker.receiver("first-clicks"))
    assert condition(taker.receiver("clicks::9")) == "amqp:not-found"


def test_a_rule_for_a_part_is_for_that_alone(net: Network) -> None:
    first = user(net, "first")
    assert is_open(first.receiver("clicks::0")) and is_open(first.sender("clicks::0"))
    assert is_open(first.receiver("first-clicks"))
    assert lacks(first.receiver("clicks::1")) == "receive at 'clicks::1'"
    assert lacks(first.receiver("clicks")) == "receive at 'clicks'"


def test_an_exception_for_a_part_comes_before_the_rule(net: Network) -> None:
    rest = user(net, "rest")
    assert is_open(rest.receiver("clicks::1"))
    assert lacks(rest.receiver("clicks::0")) == "receive at 'clicks::0'"
    assert lacks(rest.receiver("first-clicks")) == "receive at 'first-clicks'"


def test_where_a_node_is_elsewhere_is_told_to_who_may_use_it(net: Network) -> None:
    assert condition(user(net, "maker").sender("archive")) == "amqp:link:redirect"
    lacks(user(net, "other").sender("archive"))


def test_what_is_malformed_is_told_to_everybody(net: Network) -> None:
    other = user(net, "other")
    for address in ("orders", "missing"):
        target = Target(address=address, dynamic_node_properties={"lifetime-policy": 1})
        assert condition(other.sender(address, target=target)) == "amqp:invalid-field"


def test_the_log_of_links_counts_refusals(net: Network) -> None:
    before = net.broker.counters.links_refused
    lacks(user(net, "other").sender("orders"))
    assert net.broker.counters.links_refused == before + 1


TENANTS = """
[[rule]]
who = "user:root"
may = "*"
where = "*"

[[virtual-host]]
name = "north"

[[virtual-host.rule]]
who = ["user:ann", "anonymous"]
may = "*"
where = "*"

[[virtual-host]]
name = "south"
"""


def test_a_rule_of_one_tenant_says_nothing_about_another() -> None:
    net = guarded(TENANTS)
    assert is_open(user(net, "ann", hostname="vhost:north").sender("q"))
    assert is_open(net.connect(hostname="vhost:north").sender("q"))
    assert is_open(user(net, "root").sender("q"))
    for name, host in (("ann", "south"), ("ann", ""), ("root", "north"), ("root", "south")):
        client = user(net, name, hostname=f"vhost:{host}" if host else None)
        # Nothing at all is theirs there: not even the virtual host, be it there or not.
        assert client.closed_with is not None
        assert client.closed_with.condition == "amqp:unauthorized-access"
    nowhere = user(net, "root", hostname="vhost:nowhere")
    assert nowhere.closed_with is not None
    assert nowhere.closed_with.condition == "amqp:unauthorized-access"


def test_without_any_rule_everybody_may_do_everything() -> None:
    net = Network()
    net.restart(Config())
    client = net.connect()
    assert is_open(client.sender("q")) and is_open(client.receiver("q"))
