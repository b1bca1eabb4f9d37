"""Exchanges hand on what they have handed on, and names lead where they have led."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.store.tables import ALIAS, BINDING
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy
from ferrymq_codec.scalars import UInt
from ferrymq_types.messaging import Source
from tests.broker.harness import Network
from tests.broker.management.asker import Asker
from tests.broker.recovery.kit import browse, send, store_of


def exchange_of(net: Network, name: str = "x") -> Exchange:
    node = net.space.nodes[name]
    assert isinstance(node, Exchange)
    return node


def bound(net: Network, name: str = "x") -> list[dict[str, object]]:
    return [binding.describe() for binding in exchange_of(net, name).bindings()]


@pytest.fixture
def asker(net: Network) -> Asker:
    install(net.space, net.broker)
    return Asker(net)


def test_bindings_are_there_and_lead_to_the_same_queues(net: Network) -> None:
    net.declare("a")
    net.declare("b")
    net.space.create("x", ExchangePolicy(type="topic", alternate="rest"))
    net.declare("rest")
    exchange_of(net).bind("a", "stock.#")
    exchange_of(net).bind("b", "*.usd")
    exchange_of(net).bind("b", "gone")
    exchange_of(net).unbind("b", "gone")
    net.connect()
    before = bound(net)
    net.restart()
    assert bound(net) == before and len(before) == 2
    sender = net.connect()
    for key in ("stock.usd", "bond.usd", "other"):
        send(sender.sender(f"x::{key}"), key.encode())
    assert browse(net, "a") == [b"stock.usd"]
    assert browse(net, "b") == [b"stock.usd", b"bond.usd"]
    assert browse(net, "rest") == [b"other"]
    # What is there is not made again, and numbers go on behind.
    assert not exchange_of(net).bind("a", "stock.#")
    assert exchange_of(net).bind("a", "more")
    net.connect()
    net.restart()
    assert [one["key"] for one in bound(net)] == ["stock.#", "*.usd", "more"]


def test_arguments_keep_their_types(net: Network) -> None:
    net.declare("a")
    net.space.create("x", ExchangePolicy(type="headers"))
    arguments: dict[str, object] = {"x-match": "any", "n": UInt(5), "m": 7, "s": "7", "f": 1.5}
    exchange_of(net).bind("a", "", arguments)
    net.connect()
    net.restart()
    assert bound(net)[0]["arguments"] == arguments
    assert not exchange_of(net).bind("a", "", arguments)
    send(net.connect().sender("x"), b"m", application={"m": 7})
    assert browse(net, "a") == [b"m"]


def test_bindings_between_exchanges(net: Network) -> None:
    for name in ("x", "y"):
        net.space.create(name, ExchangePolicy(type="fanout"))
    net.declare("a")
    exchange_of(net).bind("y")
    exchange_of(net, "y").bind("a")
    net.connect()
    net.restart()
    send(net.connect().sender("x"), b"m")
    assert browse(net, "a") == [b"m"]


def test_a_binding_of_before_can_be_taken_back(net: Network) -> None:
    net.declare("a")
    net.space.create("x", ExchangePolicy())
    exchange_of(net).bind("a", "k")
    net.connect()
    net.restart()
    assert exchange_of(net).unbind("a", "k")
    net.connect()
    net.restart()
    assert bound(net) == []


def test_a_binding_to_what_does_not_outlive_the_broker_does_not_either(net: Network) -> None:
    net.declare("a", QueuePolicy(durable=False))
    receiver = net.connect().receiver(None, source=Source(dynamic=True))
    address = receiver.remote_source.address
    assert address is not None
    net.space.create("x", ExchangePolicy(type="fanout"))
    exchange_of(net).bind("a")
    exchange_of(net).bind(address)
    net.connect()
    assert store_of(net).count(BINDING) == 0
    net.restart()
    assert bound(net) == []


@pytest.mark.parametrize("gone", ["a", "x"])
def test_a_deleted_node_takes_its_bindings_along(net: Network, gone: str) -> None:
    net.declare("a")
    net.space.create("x", ExchangePolicy())
    exchange_of(net).bind("a", "k")
    net.space.remove(net.space.nodes[gone])
    net.connect()
    assert store_of(net).count(BINDING) == 0
    net.restart()
    assert gone not in net.space.nodes and len(net.space.nodes) == 1


def test_aliases_of_management_are_there(net: Network, asker: Asker) -> None:
    for name, address in (("one", "a"), ("two", "b"), ("three", "c")):
        assert asker.ask("CREATE", "alias", name, {"address": address}).status == 201
    asker.ask("UPDATE", "alias", "two", {"address": "c"})
    asker.ask("DELETE", "alias", "three")
    net.restart()
    assert net.space.aliases == {"one": "a", "two": "c"}
    send(net.connect().sender("one"), b"m")
    assert browse(net, "a") == [b"m"]
    net.space.drop_alias("one")
    net.connect()
    assert store_of(net).count(ALIAS) == 1


def test_settings_that_management_changed_are_changed(net: Network, asker: Asker) -> None:
    for kind in ("queue", "topic", "stream", "exchange"):
        assert asker.ask("CREATE", kind, f"a-{kind}", {}).status == 201
    asker.ask("UPDATE", "queue", "a-queue", {"max-length": 5})
    asker.ask("UPDATE", "topic", "a-topic", {"max-subscriptions": 6})
    asker.ask("UPDATE", "stream", "a-stream", {"partitions": 3, "max-records": 7})
    asker.ask("UPDATE", "exchange", "a-exchange", {"alternate": "a-queue"})
    before = {name: getattr(node, "policy", None) for name, node in net.space.nodes.items()}
    net.restart()
    for name, node in net.space.nodes.items():
        assert getattr(node, "policy") == before[name], name  # noqa: B009
        assert node.origin == "management"
    assert len(net.space.nodes) == 4


@pytest.mark.parametrize("kind", ["queue", "topic", "stream", "exchange"])
def test_whether_a_node_is_durable_does_not_change(net: Network, asker: Asker, kind: str) -> None:
    asker.ask("CREATE", kind, "n", {"durable": False})
    answer = asker.ask("UPDATE", kind, "n", {"durable": True})
    assert answer.status == 409
    assert "durable" in answer.description
