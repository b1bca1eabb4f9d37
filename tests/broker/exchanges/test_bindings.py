"""Bindings: the same one is there once, and goes with what it connects."""

from __future__ import annotations

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.bindings import MAX_KEY
from ferrymq_broker.values.policy import ExchangePolicy, StreamPolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Data, Properties, Released
from tests.broker.harness import Network


def declare(net: Network, type: str = "direct", address: str = "x") -> Exchange:
    exchange = net.space.create(address, ExchangePolicy(type=type))
    assert isinstance(exchange, Exchange)
    return exchange


def listed(exchange: Exchange) -> list[tuple[str, str, dict[str, object]]]:
    return [(b.destination, b.key, b.arguments) for b in exchange.bindings()]


def test_the_same_binding_is_there_once(net: Network) -> None:
    exchange = declare(net)
    net.declare("q")
    assert exchange.bind("q", "k")
    assert not exchange.bind("q", "k")
    assert exchange.bind("q", "k", {"a": 1})
    assert not exchange.bind("q", "k", {"a": 1})
    assert exchange.bind("q", "k", {"a": 2})
    assert exchange.bind("q", "l")
    assert listed(exchange) == [
        ("q", "k", {}),
        ("q", "k", {"a": 1}),
        ("q", "k", {"a": 2}),
        ("q", "l", {}),
    ]
    assert exchange.unbind("q", "k", {"a": 1})
    assert not exchange.unbind("q", "k", {"a": 1})
    assert not exchange.unbind("nowhere", "k")
    assert len(exchange.bindings()) == 3


def test_the_order_of_arguments_does_not_matter(net: Network) -> None:
    exchange = declare(net, "headers")
    net.declare("q")
    assert exchange.bind("q", "", {"a": 1, "b": 2})
    assert not exchange.bind("q", "", {"b": 2, "a": 1})
    assert exchange.unbind("q", "", {"b": 2, "a": 1})


@pytest.mark.parametrize("type", ["direct", "topic", "fanout", "headers"])
def test_a_message_goes_to_a_node_once(net: Network, type: str) -> None:
    exchange = declare(net, type)
    net.declare("q")
    key = "k" if type == "direct" else "#"
    exchange.bind("q", key)
    exchange.bind("q", key, {"y": None, "x-match": "any", "z": None})
    if type == "topic":
        exchange.bind("q", "k")
        exchange.bind("q", "*")
    sender = net.connect().sender("x")
    sender.send_sections(Properties(subject="k"), Data(value=b""))
    assert net.queue("q").available == 1
    exchange.unbind("q", key)
    exchange.unbind("q", "k")
    exchange.bind("q", key)
    sender.send_sections(Properties(subject="k"), Data(value=b""))
    assert net.queue("q").available == 2


@pytest.mark.parametrize("type", ["direct", "topic", "fanout", "headers"])
def test_what_is_unbound_gets_nothing_more(net: Network, type: str) -> None:
    exchange = declare(net, type)
    net.declare("q")
    exchange.bind("q", "k")
    exchange.bind("q", "l")
    sender = net.connect().sender("x")
    exchange.unbind("q", "k")
    exchange.unbind("q", "l")
    sent = sender.send_sections(Properties(subject="k"), Data(value=b""))
    assert isinstance(sent.remote_state, Released)
    assert net.queue("q").available == 0
    assert not net.queue("q").watchers


@pytest.mark.parametrize("type", ["direct", "topic", "fanout", "headers"])
def test_a_deleted_node_takes_its_bindings_along(net: Network, type: str) -> None:
    exchange = declare(net, type)
    for address in ("q", "r"):
        net.declare(address)
        exchange.bind(address, "k")
        exchange.bind(address, "l")
    net.space.remove(net.queue("q"))
    assert listed(exchange) == [("r", "k", {}), ("r", "l", {})]
    sender = net.connect().sender("x")
    sent = sender.send_sections(Properties(subject="k"), Data(value=b""))
    assert isinstance(sent.remote_state, Accepted)
    assert net.queue("r").available == 1
    # One of the same name is another node.
    net.declare("q")
    sender.send_sections(Properties(subject="k"), Data(value=b""))
    assert net.queue("q").available == 0


def test_a_deleted_exchange_takes_its_bindings_along(net: Network) -> None:
    exchange = declare(net)
    queue = net.declare("q")
    exchange.bind("q", "k")
    client = net.connect()
    plain = client.sender("x")
    keyed = client.sender("x::k")
    net.space.remove(exchange)
    net.finish()
    for sender in (plain, keyed):
        assert sender.error is not None
        assert sender.error.condition == "amqp:resource-deleted"
    assert exchange.bindings() == []
    assert not queue.watchers
    again = declare(net)
    assert again.bindings() == []
    net.space.remove(queue)


def test_to_topics_streams_and_exchanges_too(net: Network) -> None:
    exchange = declare(net, "fanout")
    net.space.create("topic", TopicPolicy())
    net.space.create("stream", StreamPolicy())
    inner = declare(net, "fanout", "inner")
    net.declare("q")
    inner.bind("q")
    for address in ("topic", "stream", "inner"):
        exchange.bind(address)
    client = net.connect()
    reader = client.receiver("topic", credit=10)
    [sent] = client.sender("x").send(b"m")
    assert isinstance(sent.remote_state, Accepted)
    assert reader.bodies() == [b"m"]
    assert net.queue("q").available == 1
    stream = net.space.find("stream")
    assert stream is not None and stream.message_count() == 1


def test_an_alias_is_bound_as_what_it_stands_for(net: Network) -> None:
    exchange = declare(net)
    net.declare("q")
    net.space.aliases["other"] = "q"
    assert exchange.bind("other", "k")
    assert not exchange.bind("q", "k")
    assert listed(exchange) == [("q", "k", {})]
    assert exchange.unbind("other", "k")


def test_what_is_not_there_is_not_bound(net: Network) -> None:
    exchange = declare(net)
    with pytest.raises(BrokerError) as caught:
        exchange.bind("nowhere", "k")
    assert caught.value.condition == "amqp:not-found"
    assert net.space.find("nowhere") is None


def test_a_key_has_a_length(net: Network) -> None:
    exchange = declare(net, "topic")
    net.declare("q")
    with pytest.raises(BrokerError) as caught:
        exchange.bind("q", "x" * (MAX_KEY + 1))
    assert caught.value.condition == "amqp:invalid-field"
    long = net.connect().sender("x::" + "y" * (MAX_KEY + 1))
    assert long.error is not None


def test_an_unused_exchange_goes(net: Network) -> None:
    net.broker.begin_pass(net.now)
    exchange = net.space.create("x", ExchangePolicy(auto_delete=10_000))
    net.broker.finish_pass()
    assert isinstance(exchange, Exchange)
    net.declare("q")
    exchange.bind("q", "k")
    net.advance(100)
    assert net.space.find("x") is exchange
    sender = net.connect().sender("x::k")
    exchange.unbind("q", "k")
    net.advance(100)
    assert net.space.find("x") is exchange
    sender.close()
    net.advance(9)
    assert net.space.find("x") is exchange
    net.advance(2)
    assert net.space.find("x") is None
