"""What the sender is told: nowhere to go, alternates, refusals, exchanges behind exchanges."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy
from ferrymq_types.messaging import Accepted, Data, Properties, Rejected, Released
from tests.broker.harness import Network, Sender


def declare(net: Network, address: str, type: str = "direct", alternate: str = "") -> Exchange:
    exchange = net.space.create(address, ExchangePolicy(type=type, alternate=alternate))
    assert isinstance(exchange, Exchange)
    return exchange


def send(sender: Sender, key: str) -> object:
    return sender.send_sections(Properties(subject=key), Data(value=b"m")).remote_state


@pytest.mark.spec("3.4.4")
def test_what_goes_nowhere_is_released(net: Network) -> None:
    exchange = declare(net, "x")
    sender = net.connect().sender("x")
    assert isinstance(send(sender, "k"), Released)
    assert (exchange.published, exchange.unroutable) == (1, 1)
    keyed = net.connect().sender("x::k")
    assert isinstance(keyed.send(b"m")[0].remote_state, Released)
    assert exchange.describe()["unroutable"] == 2


def test_it_is_a_message_like_any_other_to_the_alternate(net: Network) -> None:
    exchange = declare(net, "x", alternate="rest")
    net.declare("rest")
    net.declare("q")
    exchange.bind("q", "k")
    sender = net.connect().sender("x")
    assert isinstance(send(sender, "k"), Accepted)
    assert isinstance(send(sender, "other"), Accepted)
    assert (net.queue("q").available, net.queue("rest").available) == (1, 1)
    assert exchange.unroutable == 1


def test_an_alternate_that_is_not_there_is_none(net: Network) -> None:
    declare(net, "x", alternate="rest")
    assert isinstance(send(net.connect().sender("x"), "k"), Released)


def test_alternates_in_a_row_and_in_a_circle(net: Network) -> None:
    declare(net, "a", alternate="b")
    declare(net, "b", alternate="c")
    last = declare(net, "c", alternate="a")
    sender = net.connect().sender("a")
    assert isinstance(send(sender, "k"), Released)
    net.declare("q")
    last.bind("q", "k")
    assert isinstance(send(sender, "k"), Accepted)
    assert net.queue("q").available == 1


def test_through_exchanges_by_the_same_key(net: Network) -> None:
    outer = declare(net, "outer", "topic")
    inner = declare(net, "inner", "direct")
    net.declare("q")
    outer.bind("inner", "news.#")
    inner.bind("q", "news.today")
    sender = net.connect().sender("outer")
    assert isinstance(send(sender, "news.today"), Accepted)
    assert isinstance(send(sender, "news.yesterday"), Released)
    assert net.queue("q").available == 1
    assert (inner.published, inner.unroutable) == (2, 1)
    keyed = net.connect().sender("outer::news.today")
    assert isinstance(keyed.send(b"m")[0].remote_state, Accepted)
    assert net.queue("q").available == 2


def test_in_a_circle_every_node_gets_the_message_once(net: Network) -> None:
    exchanges = [declare(net, name, "fanout") for name in "abc"]
    net.declare("q")
    net.declare("r")
    for exchange in exchanges:
        exchange.bind("q")
        for name in "abc":
            exchange.bind(name)
    exchanges[2].bind("r")
    assert isinstance(send(net.connect().sender("a"), ""), Accepted)
    assert (net.queue("q").available, net.queue("r").available) == (1, 1)
    assert [exchange.published for exchange in exchanges] == [1, 1, 1]


def test_a_long_chain(net: Network) -> None:
    chain = [declare(net, f"x{number}", "fanout") for number in range(900)]
    for number, exchange in enumerate(chain[:-1]):
        exchange.bind(f"x{number + 1}")
    net.declare("q")
    chain[-1].bind("q")
    assert isinstance(send(net.connect().sender("x0"), ""), Accepted)
    assert net.queue("q").available == 1
    net.space.remove(chain[450])
    assert isinstance(send(net.connect().sender("x0"), ""), Released)


def test_a_queue_that_refuses_rejects(net: Network) -> None:
    exchange = declare(net, "x", "fanout")
    net.declare("full", QueuePolicy(max_length=1))
    exchange.bind("full")
    sender = net.connect().sender("x")
    assert isinstance(send(sender, ""), Accepted)
    state = send(sender, "")
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "amqp:resource-limit-exceeded"
    assert exchange.refused == 1


def test_one_that_refuses_is_enough(net: Network) -> None:
    exchange = declare(net, "x", "fanout")
    for number in range(3):
        net.declare(f"q{number}", QueuePolicy(max_length=1 if number == 1 else 0))
        exchange.bind(f"q{number}")
    sender = net.connect().sender("x")
    send(sender, "")
    state = send(sender, "")
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.info is not None and state.error.info["queue"] == "q1"
    assert "q1" in (state.error.description or "")
    assert [net.queue(f"q{number}").available for number in range(3)] == [2, 1, 2]
    assert exchange.refused == 1


def drive(sender: Sender, most: int) -> int:
    """Send as long as there is credit; how many messages that were."""
    count = 0
    while count < most and sender.link.credit:
        count += 1
        send(sender, "k")
    return count


@pytest.mark.parametrize("address", ["x", "x::k", "outer", "outer::k"])
def test_a_queue_that_blocks_makes_senders_wait(net: Network, address: str) -> None:
    exchange = declare(net, "x", "topic")
    declare(net, "outer", "fanout").bind("x")
    net.declare("q", QueuePolicy(max_length=4, overflow="block"))
    net.declare("free")
    exchange.bind("free", "#")
    exchange.bind("q", "k")
    client = net.connect()
    sender = client.sender(address)
    assert drive(sender, 10) == 4
    reader = client.receiver("q", credit=2)
    reader.settle(Accepted())
    assert drive(sender, 10) == 2
    net.space.remove(net.queue("q"))
    net.finish()
    assert drive(sender, 10) == 10


@pytest.mark.parametrize("address", ["x", "x::k", "outer", "outer::k"])
def test_nobody_waits_for_what_is_not_bound_any_more(net: Network, address: str) -> None:
    exchange = declare(net, "x", "topic")
    declare(net, "outer", "fanout").bind("x")
    net.declare("q", QueuePolicy(max_length=2, overflow="block"))
    exchange.bind("q", "k")
    sender = net.connect().sender(address)
    assert drive(sender, 10) == 2
    net.declare("free")
    exchange.bind("free", "#")
    assert sender.link.credit == 0
    exchange.unbind("q", "k")
    net.finish()
    assert drive(sender, 10) == 10


def test_another_key_does_not_wait(net: Network) -> None:
    exchange = declare(net, "x")
    net.declare("q", QueuePolicy(max_length=1, overflow="block"))
    net.declare("free")
    exchange.bind("q", "k")
    exchange.bind("free", "l")
    client = net.connect()
    assert drive(client.sender("x::k"), 10) == 1
    other = client.sender("x::l")
    for _ in range(10):
        assert isinstance(other.send(b"m")[0].remote_state, Accepted)
