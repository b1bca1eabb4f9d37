"""What the four types of exchange match, and where a message finds its routing key."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import ExchangePolicy
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    MessageAnnotations,
    Properties,
    Released,
)
from tests.broker.harness import Network, Sender


def declare(net: Network, type: str) -> Exchange:
    exchange = net.space.create("x", ExchangePolicy(type=type))
    assert isinstance(exchange, Exchange)
    for address in ("a", "b", "c"):
        net.declare(address)
    return exchange


def counts(net: Network) -> tuple[int, int, int]:
    a, b, c = (int(net.queue(address).available) for address in ("a", "b", "c"))
    return a, b, c


def send(sender: Sender, key: str) -> object:
    delivery = sender.send_sections(Properties(subject=key), Data(value=key.encode()))
    return delivery.remote_state


def test_direct(net: Network) -> None:
    exchange = declare(net, "direct")
    exchange.bind("a", "red")
    exchange.bind("b", "red")
    exchange.bind("b", "blue")
    exchange.bind("c", "red.*")
    sender = net.connect().sender("x")
    assert isinstance(send(sender, "red"), Accepted)
    assert counts(net) == (1, 1, 0)
    send(sender, "blue")
    assert counts(net) == (1, 2, 0)
    send(sender, "red.*")
    assert counts(net) == (1, 2, 1)
    assert isinstance(send(sender, "RED"), Released)
    assert counts(net) == (1, 2, 1)


def test_topic(net: Network) -> None:
    exchange = declare(net, "topic")
    exchange.bind("a", "usd.*")
    exchange.bind("b", "#.stock")
    exchange.bind("c", "#")
    sender = net.connect().sender("x")
    send(sender, "usd.stock")
    assert counts(net) == (1, 1, 1)
    send(sender, "stock")
    assert counts(net) == (1, 2, 2)
    send(sender, "usd.stock.today")
    assert counts(net) == (1, 2, 3)
    send(sender, "")
    assert counts(net) == (1, 2, 4)


def test_fanout(net: Network) -> None:
    exchange = declare(net, "fanout")
    exchange.bind("a")
    exchange.bind("b", "whatever")
    sender = net.connect().sender("x")
    sender.send(b"m")
    send(sender, "key")
    assert counts(net) == (2, 2, 0)


@pytest.mark.parametrize(
    ("arguments", "headers", "annotations", "expected"),
    [
        ({"k": "v"}, {"k": "v", "other": 1}, {}, True),
        ({"k": "v", "l": 1}, {"k": "v"}, {}, False),
        ({"x-match": "any", "k": "v", "l": 1}, {"k": "v"}, {}, True),
        ({"x-match": "any", "k": "v", "l": 1}, {"k": "w"}, {}, False),
        ({"x-match": "all"}, {}, {}, True),
        ({"x-match": "any"}, {"k": "v"}, {}, False),
        ({"k": None}, {"k": "anything"}, {}, True),
        ({"k": None}, {}, {}, False),
        ({"k": 1}, {"k": True}, {}, False),
        ({"k": True}, {"k": True}, {}, True),
        ({"k": "1"}, {"k": 1}, {}, False),
        # Names with x- do not count, unless they are meant to.
        ({"x-a": 1, "k": "v"}, {"k": "v"}, {}, True),
        ({"x-match": "all-with-x", "x-a": 1, "k": "v"}, {"k": "v"}, {}, False),
        ({"x-match": "all-with-x", "x-a": 1, "k": "v"}, {"k": "v", "x-a": 1}, {}, True),
        ({"x-match": "all-with-x", "x-a": 1, "k": "v"}, {"k": "v"}, {"x-a": 1}, True),
        ({"x-match": "any", "x-a": 1}, {}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {}, {"x-a": 1}, True),
        ({"x-match": "any-with-x", "x-a": 1}, {}, {"x-a": 2}, False),
    ],
)
def test_headers(
    net: Network,
    arguments: dict[str, object],
    headers: dict[str, object],
    annotations: dict[str | int, object],
    expected: bool,
) -> None:
    declare(net, "headers").bind("a", "", arguments)
    delivery = (
        net.connect()
        .sender("x")
        .send_sections(
            MessageAnnotations(value=annotations),
            ApplicationProperties(value=headers),
            Data(value=b""),
        )
    )
    assert counts(net) == (int(expected), 0, 0)
    assert isinstance(delivery.remote_state, Accepted if expected else Released)


@pytest.mark.parametrize("match", ["some", 1, None])
def test_an_unknown_match_is_refused(net: Network, match: object) -> None:
    exchange = declare(net, "headers")
    with pytest.raises(BrokerError) as caught:
        exchange.bind("a", "", {"x-match": match})
    assert caught.value.condition == "amqp:invalid-field"
    assert exchange.bindings() == []


def test_where_the_key_comes_from(net: Network) -> None:
    exchange = declare(net, "direct")
    exchange.bind("a", "address")
    exchange.bind("b", "subject")
    exchange.bind("c", "annotation")
    client = net.connect()
    everything = (
        MessageAnnotations(value={"x-opt-routing-key": "annotation"}),
        Properties(subject="subject"),
        Data(value=b""),
    )
    client.sender("x::address").send_sections(*everything)
    assert counts(net) == (1, 0, 0)
    plain = client.sender("x")
    plain.send_sections(*everything)
    assert counts(net) == (1, 1, 0)
    plain.send_sections(everything[0], everything[2])
    assert counts(net) == (1, 1, 1)
    exchange.bind("a", "")
    plain.send(b"")
    assert counts(net) == (2, 1, 1)
    plain.send_sections(MessageAnnotations(value={"x-opt-routing-key": 5}), Data(value=b""))
    assert counts(net) == (3, 1, 1)


def test_the_anonymous_terminus_names_exchange_and_key(net: Network) -> None:
    exchange = declare(net, "direct")
    exchange.bind("a", "one")
    exchange.bind("b", "two::three")
    sender = net.connect().sender(None)
    for to, subject in (("x::one", "ignored"), ("x", "two::three")):
        sent = sender.send_sections(Properties(to=to, subject=subject), Data(value=b""))
        assert isinstance(sent.remote_state, Accepted)
    assert counts(net) == (1, 1, 0)


def test_a_message_in_another_format_has_no_key(net: Network) -> None:
    exchange = declare(net, "topic")
    exchange.bind("a", "*")
    exchange.bind("b", "#")
    net.connect().sender("x").send_encoded(b"\x01\x02", message_format=0x100)
    assert counts(net) == (0, 1, 0)


def test_nothing_is_received_from_an_exchange(net: Network) -> None:
    declare(net, "fanout")
    reader = net.connect().receiver("x")
    assert reader.error is not None and reader.error.condition == "amqp:not-allowed"


def test_queues_get_the_message_as_it_is(net: Network) -> None:
    exchange = declare(net, "fanout")
    exchange.bind("a")
    exchange.bind("b")
    client = net.connect()
    client.sender("x").send(b"x" * 1000)
    assert 1000 < net.broker.agenda.held < 1100
    assert client.receiver("a", credit=1).bodies() == [b"x" * 1000]


@pytest.mark.parametrize("number", ["NaN", "sNaN"])
def test_what_is_no_number_matches_nothing_but_its_name(net: Network, number: str) -> None:
    for name, wanted in (("equal", 1), ("there", None)):
        exchange = net.space.create(name, ExchangePolicy(type="headers"))
        assert isinstance(exchange, Exchange)
        net.declare(f"{name}-queue")
        exchange.bind(f"{name}-queue", "", {"h": wanted})
        sender = net.connect().sender(name)
        sender.send_sections(ApplicationProperties(value={"h": Decimal(number)}), Data(value=b"x"))
    assert net.queue("equal-queue").message_count() == 0
    assert net.queue("there-queue").message_count() == 1
