"""What a configuration declares is what clients find."""

from __future__ import annotations

import tomllib
from textwrap import dedent

import pytest

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.config import Config
from ferrymq_broker.config.apply.declare import declare, make_hosts
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    Properties,
    Rejected,
    Source,
    Target,
)
from ferrymq_types.transport import Error
from tests.broker.harness import Client, Network, message_annotations


def network(text: str) -> Network:
    """A broker with this configuration."""
    net = Network()
    config = Config.model_validate(tomllib.loads(dedent(text)))
    make_hosts(config, net.broker)
    declare(config, net.broker)
    return net


def refusal(client: Client, address: str) -> Error:
    """Why a receiver from this address is refused."""
    receiver = client.receiver(address)
    assert receiver.error is not None
    return receiver.error


def test_nodes_of_every_kind_are_there_from_the_start() -> None:
    net = network("""
        [[queue]]
        name = "orders"
        max-length = 2
        [[topic]]
        name = "prices"
        [[stream]]
        name = "clicks"
        partitions = 3
        [[exchange]]
        name = "router"
        """)
    kinds = {name: node.kind for name, node in net.space.nodes.items() if name[0] != "$"}
    assert kinds == {
        "orders": "queue",
        "prices": "topic",
        "clicks": "stream",
        "router": "exchange",
    }
    sender = net.connect().sender("orders")
    sent = sender.send(b"1", b"2", b"3")
    assert [isinstance(each.remote_state, Accepted) for each in sent] == [True, True, False]


def test_bindings_and_alternates_work_from_the_start() -> None:
    net = network("""
        [[exchange]]
        name = "router"
        routing = "topic"
        alternate = "unwanted"
        [[exchange.binding]]
        key = "eu.#"
        to = "old"
        [[exchange]]
        name = "offices"
        routing = "headers"
        [[exchange.binding]]
        to = "paris"
        arguments = { city = "Paris" }
        [[alias]]
        name = "old"
        to = "new"
        """)
    alice = net.connect()
    alice.sender("router::eu.fr").send(b"for Europe")
    alice.sender("router::us.ny").send(b"for nobody")
    sender = alice.sender("offices")
    sender.send_sections(ApplicationProperties(value={"city": "Paris"}), Data(value=b"bonjour"))
    assert alice.receiver("new", credit=10).bodies() == [b"for Europe"]
    assert alice.receiver("unwanted", credit=10).bodies() == [b"for nobody"]
    assert alice.receiver("paris", credit=10).bodies() == [b"bonjour"]


def test_patterns_make_nodes_of_the_kind_they_say() -> None:
    net = network("""
        [nodes]
        auto-create = false
        [[queue]]
        pattern = "jobs.*"
        max-length = 7
        [[queue]]
        pattern = "jobs.urgent.*"
        max-length = 1
        [[topic]]
        pattern = "news-??"
        [[stream]]
        pattern = "*.log"
        partitions = 2
        """)
    alice = net.connect()
    for address in ("jobs.1", "jobs.urgent.1", "app.log"):
        assert alice.sender(address).error is None
    assert net.queue("jobs.1").policy == QueuePolicy(max_length=7)
    assert net.queue("jobs.urgent.1").policy == QueuePolicy(max_length=1)
    assert net.space.nodes["app.log"].kind == "stream"
    assert net.space.policy_for("x.log") == StreamPolicy(partitions=2)
    # A topic, though no link asks for one.
    first, second = alice.receiver("news-eu", credit=1), alice.receiver("news-eu", credit=1)
    alice.sender("news-eu").send(b"rain")
    assert first.bodies() == second.bodies() == [b"rain"]
    assert refusal(alice, "news-eur").condition == "amqp:not-found"
    assert refusal(alice, "jobs").condition == "amqp:not-found"
    # Queues have no parts, those that could be made either.
    assert refusal(alice, "jobs.2::part").condition == "amqp:not-found"
    assert "jobs.2" not in net.space.nodes


@pytest.mark.parametrize(
    ("auto_create", "plain", "asked"),
    [
        ("true", "queue", "topic"),
        # A queue is not what the link asked for: refused, and not there.
        ("'queue'", "queue", None),
        ("'topic'", "topic", "topic"),
        ("false", None, None),
    ],
)
def test_what_links_make_of_free_names(
    auto_create: str, plain: str | None, asked: str | None
) -> None:
    net = network(f"[nodes]\nauto-create = {auto_create}")
    alice = net.connect()
    alice.sender("plain")
    alice.sender("asked", target=Target(address="asked", capabilities=["topic"]))
    found = {name: node.kind for name, node in net.space.nodes.items() if name[0] != "$"}
    assert found.get("plain") == plain
    assert found.get("asked") == asked


def test_an_alias_leads_everybody_to_the_same_node() -> None:
    net = network("""
        [nodes]
        auto-create = false
        [[queue]]
        name = "orders"
        dead-letter = "graveyard"
        [[queue]]
        name = "dead"
        [[alias]]
        name = "bestellungen"
        to = "orders"
        [[alias]]
        name = "pedidos"
        to = "bestellungen"
        [[alias]]
        name = "graveyard"
        to = "dead"
        """)
    alice = net.connect()
    sender = alice.sender("pedidos")
    assert sender.remote_target.address == "pedidos"
    sender.send(b"by link")
    relay = alice.sender(None)
    relay.send_sections(Properties(to="bestellungen"), Data(value=b"by relay"))
    receiver = alice.receiver("bestellungen", credit=10)
    assert receiver.remote_source.address == "bestellungen"
    assert receiver.bodies() == [b"by link", b"by relay"]
    receiver.settle(Rejected())
    dead = alice.receiver("graveyard", credit=10)
    assert dead.bodies() == [b"by link", b"by relay"]
    assert set(net.space.nodes) >= {"orders", "dead"}
    assert not {"graveyard", "pedidos", "bestellungen"} & set(net.space.nodes)
    source = message_annotations(dead.deliveries[0].payload)["x-opt-deadletter-source"]
    assert source == "orders"


def test_a_dead_letter_makes_the_queue_that_a_pattern_has_for_it() -> None:
    net = network("""
        [nodes]
        auto-create = false
        [[queue]]
        name = "orders"
        dead-letter = "dead.orders"
        [[queue]]
        pattern = "dead.*"
        max-length = 5
        """)
    alice = net.connect()
    receiver = alice.receiver("orders", credit=1)
    assert "dead.orders" not in net.space.nodes
    alice.sender("orders").send(b"bad")
    receiver.settle(Rejected())
    assert net.queue("dead.orders").policy == QueuePolicy(max_length=5)
    assert alice.receiver("dead.orders", credit=1).bodies() == [b"bad"]


def test_an_alias_of_a_part() -> None:
    net = network("""
        [[exchange]]
        name = "router"
        [[exchange.binding]]
        key = "paris"
        to = "office"
        [[alias]]
        name = "to-paris"
        to = "router::paris"
        """)
    alice = net.connect()
    alice.sender("to-paris").send(b"bonjour")
    relay = alice.sender(None)
    relay.send_sections(Properties(to="to-paris"), Data(value=b"salut"))
    assert alice.receiver("office", credit=10).bodies() == [b"bonjour", b"salut"]


@pytest.mark.spec("2.8.17")
def test_a_redirect_says_where_to_go() -> None:
    net = network("""
        [[redirect]]
        name = "archive"
        host = "archive.example"
        port = 5673
        address = "main"
        [[alias]]
        name = "old"
        to = "archive"
        """)
    alice = net.connect()
    for error in (refusal(alice, "archive"), refusal(alice, "old")):
        assert error.condition == "amqp:link:redirect"
        assert error.info is not None
        assert {str(key): value for key, value in error.info.items()} == {
            "hostname": "archive.example",
            "network-host": "archive.example",
            "port": 5673,
            "address": "main",
        }
    assert "archive" not in net.space.nodes


VIRTUAL_HOSTS = """
    unknown-hostname = "UNKNOWN"
    [nodes]
    auto-create = false
    [[queue]]
    name = "orders"
    [[virtual-host]]
    name = "tenant"
    hostnames = ["Tenant.example"]
    [virtual-host.nodes]
    limit = 2
    [[virtual-host.queue]]
    name = "orders"
    max-length = 1
    [[virtual-host.queue]]
    name = "more"
    [[virtual-host.alias]]
    name = "local"
    to = "more"
    [[virtual-host]]
    name = "open"
    [virtual-host.nodes]
    auto-create = true
    """


@pytest.mark.spec("2.7.1")
def test_virtual_hosts_have_nothing_in_common() -> None:
    net = network(VIRTUAL_HOSTS.replace("UNKNOWN", "default"))
    here = net.connect()
    there = net.connect(hostname="tenant.EXAMPLE")
    also_there = net.connect(hostname="vhost:tenant")
    here.sender("orders").send(b"here")
    there.sender("orders").send(b"there")
    assert here.receiver("orders", credit=5).bodies() == [b"here"]
    assert also_there.receiver("orders", credit=5).bodies() == [b"there"]
    # Neither aliases nor what may be made is shared.
    assert there.sender("local").error is None
    assert refusal(here, "local").condition == "amqp:not-found"
    # What the virtual host does not say is as at the top of the file, what it says is its own.
    assert refusal(there, "new").condition == "amqp:not-found"
    assert net.connect(hostname="open").sender("new").error is None
    assert "new" in space(net, "open").nodes and "new" not in net.space.nodes
    assert space(net, "tenant").max_nodes == 2


def test_a_relay_stays_in_its_virtual_host() -> None:
    net = network(VIRTUAL_HOSTS.replace("UNKNOWN", "default"))
    there = net.connect(hostname="tenant")
    there.sender(None).send_sections(Properties(to="more"), Data(value=b"stays"))
    assert there.receiver("more", credit=1).bodies() == [b"stays"]
    sent = net.connect().sender(None).send_sections(Properties(to="more"), Data(value=b"lost"))
    assert isinstance(sent.remote_state, Rejected)


def test_strangers_get_the_default_host_or_nothing() -> None:
    net = network(VIRTUAL_HOSTS.replace("UNKNOWN", "default"))
    assert net.connect(hostname="stranger").sender("orders").error is None
    net = network(VIRTUAL_HOSTS.replace("UNKNOWN", "refuse"))
    stranger = net.connect(hostname="stranger")
    assert stranger.closed_with is not None
    assert stranger.closed_with.condition == "amqp:not-found"
    assert net.connect().sender("orders").error is None
    assert net.connect(hostname="tenant").sender("more").error is None


def test_limits_and_alarms_reach_the_broker() -> None:
    net = network("""
        [limits]
        total-credit = 5
        [alarms]
        memory = 1000
        low-water = "50%"
        """)
    alice = net.connect()
    sender = alice.sender("q")
    assert 0 < sender.link.credit <= 5
    sender.send(b"x" * 1001)
    assert net.broker.alarms == {"memory"}
    receiver = alice.receiver("q", credit=1)
    receiver.settle(Accepted())
    assert net.broker.alarms == set()


def test_a_declared_source_is_answered_as_it_was_asked_for() -> None:
    net = network("[[queue]]\nname = 'a::b'\n[[topic]]\nname = 'a'")
    alice = net.connect()
    receiver = alice.receiver(None, source=Source(address="a::b"), credit=1)
    alice.sender("a::b").send(b"whole")
    assert receiver.bodies() == [b"whole"]
    assert net.space.nodes["a::b"].kind == "queue"


def space(net: Network, name: str) -> AddressSpace:
    return net.broker.spaces[name]
