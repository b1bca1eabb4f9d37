"""Nodes that the configuration declares by name: idling does not end them, and their names are
never made anything else."""

from __future__ import annotations

import tomllib
from textwrap import dedent

import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Rejected, Target
from tests.broker.harness import Network
from tests.broker.management.asker import Asker
from tests.broker.recovery.kit import browse, send, stored_network

FILE = """
    [[queue]]
    name = "q"
    auto-delete = "PATIENCE"
    max-length = 2
    persist = true
    dead-letter = "dead"
    [[topic]]
    name = "t"
    auto-delete = "PATIENCE"
    max-subscriptions = 7
    [[exchange]]
    name = "x"
    routing = "topic"
    auto-delete = "PATIENCE"
    alternate = "unwanted.x"
    [[exchange.binding]]
    key = "a.#"
    to = "q"
    [[exchange.binding]]
    key = "b.#"
    to = "made.by.pattern"
    [[exchange]]
    name = "bare"
    auto-delete = "PATIENCE"
    [[queue]]
    pattern = "*.*"
    auto-delete = "PATIENCE"
    """


def config(text: str = FILE, patience: str = "10s") -> Config:
    return Config.model_validate(tomllib.loads(dedent(text).replace("PATIENCE", patience)))


def declared(settings: Config, stored: bool = True) -> Network:
    """A broker with these settings, a store and management."""
    net = stored_network() if stored else Network()
    net.restart(settings)
    install(net.space, net.broker)
    return net


def kinds(net: Network) -> dict[str, str]:
    return {name: node.kind for name, node in net.space.nodes.items() if name[0] not in "$d"}


ALL = {
    "q": "queue",
    "t": "topic",
    "x": "exchange",
    "bare": "exchange",
    "made.by.pattern": "queue",
    "unwanted.x": "queue",
}


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("patience", ["10s", "0s"])
def test_declared_nodes_do_not_go_for_want_of_use(patience: str, stored: bool) -> None:
    net = declared(config(patience=patience), stored)
    assert kinds(net) == ALL
    net.advance(60)
    assert kinds(net) == ALL
    # Neither once they have been used.
    client = net.connect()
    for name in ("q", "t", "x", "bare", "made.by.pattern"):
        client.sender(name).close()
    client.receiver("t", credit=1).close()
    net.advance(60)
    assert kinds(net) == ALL
    send(client.sender("x::b.c"), b"kept", durable=True)
    assert browse(net, "made.by.pattern") == [b"kept"]
    # What only its pattern knows, and nothing declared leads to, goes.
    client.sender("other.one").close()
    assert "other.one" in net.space.nodes
    net.advance(11)
    assert "other.one" not in net.space.nodes


def test_what_was_accepted_after_a_long_time_outlives_the_broker() -> None:
    net = declared(config())
    net.advance(60)
    (sent,) = send(net.connect().sender("q"), b"kept", durable=False)
    assert isinstance(sent.remote_state, Accepted)
    net.restart(config())
    assert browse(net, "q") == [b"kept"]
    assert net.queue("q").policy.dead_letter == "dead"


def test_a_node_that_is_declared_no_more_goes_as_its_settings_say() -> None:
    net = declared(config())
    net.restart(config('[[queue]]\nname = "other"'))
    assert "q" in net.space.nodes
    net.advance(9)
    assert "q" in net.space.nodes
    net.advance(2)
    # The last of its bindings has just gone.
    assert kinds(net) == {"other": "queue", "x": "exchange"}
    net.advance(10)
    assert kinds(net) == {"other": "queue"}


@pytest.mark.parametrize("name", ["q", "t", "x"])
def test_what_management_deletes_is_made_again_as_declared(name: str) -> None:
    net = declared(config())
    asker = Asker(net)
    gone = asker.ask("DELETE", ALL[name], name)
    assert gone.status == 204 and "configuration declares it" in gone.description
    assert name not in net.space.nodes
    # Whatever the link asks for.
    wants = Target(address=name, capabilities=["topic"] if name == "q" else [])
    net.connect().sender(name, target=wants)
    if name != "q":
        assert kinds(net) == ALL
    net.connect().sender(name)
    assert kinds(net) == ALL
    assert net.space.nodes[name].origin == "configuration"
    net.advance(60)
    assert kinds(net) == ALL
    net.restart(config())
    assert kinds(net) == ALL


def test_a_declared_node_that_is_made_again_has_its_settings_and_bindings() -> None:
    net = declared(config())
    asker = Asker(net)
    for kind, name in (("exchange", "x"), ("queue", "q"), ("queue", "made.by.pattern")):
        assert asker.ask("DELETE", kind, name).status == 204
    sender = net.connect().sender("x")
    exchange = net.space.nodes["x"]
    assert isinstance(exchange, Exchange) and exchange.policy.alternate == "unwanted.x"
    assert len(exchange.bindings()) == 2
    keyed = net.connect().sender("x::a.b")
    assert all(isinstance(one.remote_state, Accepted) for one in keyed.send(b"1", b"2"))
    (third,) = keyed.send(b"3")
    assert isinstance(third.remote_state, Rejected)
    # Only the queue is deleted this time: the exchange is there.
    assert asker.ask("DELETE", "queue", "q").status == 204
    assert len(exchange.bindings()) == 1
    net.connect().receiver("q")
    assert len(exchange.bindings()) == 2
    assert net.queue("q").policy == QueuePolicy(
        auto_delete=10_000, max_length=2, persist=True, dead_letter="dead"
    )
    keyed.send(b"4")
    assert browse(net, "q") == [b"4"]
    sender.close()
    net.restart(config())
    assert browse(net, "q") == [b"4"]
    exchange = net.space.nodes["x"]
    assert isinstance(exchange, Exchange) and len(exchange.bindings()) == 2


def test_management_makes_what_is_declared_of_a_declared_name_or_nothing() -> None:
    net = declared(config())
    asker = Asker(net)
    assert asker.ask("DELETE", "topic", "t").status == 204
    other = asker.ask("CREATE", "queue", "t")
    assert other.status == 409
    assert other.description == "'t' is declared in the configuration as a topic"
    settings = asker.ask("CREATE", "topic", "t", {"auto-delete": 10_000})
    assert settings.status == 409
    assert "declared in the configuration with max-subscriptions = 7, not 0" in settings.description
    alias = asker.ask("CREATE", "alias", "t", {"address": "q"})
    assert alias.status == 409
    same = {"auto-delete": 10_000, "max-subscriptions": 7}
    assert asker.ask("CREATE", "topic", "t", same).status == 201
    topic = net.space.nodes["t"]
    assert topic.kind == "topic" and topic.origin == "configuration"
    net.advance(60)
    assert net.space.nodes["t"] is topic
    net.restart(config())
    assert kinds(net) == ALL


def test_a_declared_name_is_made_although_links_may_make_nothing() -> None:
    text = '[nodes]\nauto-create = false\n[[topic]]\nname = "t"\nmax-subscriptions = 2'
    net = declared(config(text))
    assert Asker(net).ask("DELETE", "topic", "t").status == 204
    assert net.connect().sender("t").error is None
    topic = net.space.nodes["t"]
    assert getattr(topic, "policy") == TopicPolicy(max_subscriptions=2)  # noqa: B009


# -- nodes that are not declared in the file --------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "topic", "exchange"])
def test_no_patience_at_all_begins_with_the_first_use(kind: str) -> None:
    net = declared(config(""))
    asker = Asker(net)
    made = asker.ask("CREATE", kind, "n", {"auto-delete": 0})
    assert made.status == 201
    net.advance(60)
    assert asker.ask("READ", kind, "n").status == 200
    net.restart(config(""))
    net.advance(60)
    sender = net.connect().sender("n")
    assert sender.remote_target.address == "n" and net.space.nodes["n"].kind == kind
    sender.close()
    net.advance(0.01)
    assert "n" not in net.space.nodes
