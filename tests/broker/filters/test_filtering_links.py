"""Filters as clients meet them: on links that consume or browse."""

from __future__ import annotations

import pytest

from ferrymq_codec.scalars import Described, Symbol, ULong
from ferrymq_types.filters import LegacyAmqpTopicBinding, NoLocalFilter, SelectorFilter
from ferrymq_types.messaging import Accepted, ApplicationProperties, Data, Properties, Source
from tests.broker.harness import Client, Network, Receiver, Sender

SELECTOR = "apache.org:selector-filter:string"


def receive(client: Client, filters: dict[str, object], mode: str | None = None) -> Receiver:
    source = Source(address="q", filter=filters, distribution_mode=mode)
    return client.receiver("q", source=source, credit=10)


def publish(sender: Sender, body: bytes, subject: str = "", **properties: object) -> None:
    sender.send_sections(
        Properties(subject=subject), ApplicationProperties(value=properties), Data(value=body)
    )


@pytest.mark.spec("3.5.8")
@pytest.mark.parametrize("descriptor", [Symbol(SELECTOR), ULong(0x468C00000004)])
def test_a_selector_leaves_the_rest_to_others(net: Network, descriptor: Symbol | ULong) -> None:
    client = net.connect()
    sender = client.sender("q")
    described = Described(descriptor, "colour = 'red' AND weight BETWEEN 2 AND 5")
    reds = receive(client, {"selector": described})
    publish(sender, b"1", colour="red", weight=3)
    publish(sender, b"2", colour="blue", weight=3)
    publish(sender, b"3", colour="red", weight=6)
    publish(sender, b"4")
    publish(sender, b"5", colour="red", weight=5)
    assert list(reds.remote_source.filter or {}) == ["selector"]
    assert reds.bodies() == [b"1", b"5"]
    assert net.connect().receiver("q", credit=10).bodies() == [b"2", b"3", b"4"]
    reds.settle(Accepted())
    assert net.queue("q").message_count() == 3


def test_a_browser_sees_what_passes(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    publish(sender, b"1", n=1)
    publish(sender, b"2", n=2)
    browser = receive(client, {"f": SelectorFilter("n > 1")}, mode="copy")
    publish(sender, b"3", n=3)
    assert browser.bodies() == [b"2", b"3"]
    assert net.queue("q").message_count() == 3


def test_no_local_holds_back_what_this_connection_sent(net: Network) -> None:
    alice, bob = net.connect(), net.connect()
    receiver = receive(alice, {"quiet": NoLocalFilter()})
    alice.sender("q").send(b"mine")
    bob.sender("q").send(b"yours")
    assert receiver.bodies() == [b"yours"]
    assert receive(bob, {}).bodies() == [b"mine"]


def test_a_binding_filters_by_subject(net: Network) -> None:
    client = net.connect()
    receiver = receive(client, {"binding": LegacyAmqpTopicBinding("*.stock.#")})
    sender = client.sender("q")
    for subject in ("usd.stock", "stock.nasdaq", "eur.stock.db"):
        publish(sender, subject.encode(), subject)
    assert receiver.bodies() == [b"usd.stock", b"eur.stock.db"]


@pytest.mark.spec("3.5.8")
def test_several_filters_are_all_passed(net: Network) -> None:
    client = net.connect()
    filters: dict[str, object] = {
        "one": SelectorFilter("n > 1"),
        "two": Described(Symbol("amqp:properties-filter"), {Symbol("subject"): "&p:Order"}),
        "none": None,
    }
    receiver = receive(client, filters)
    sender = client.sender("q")
    publish(sender, b"1", "Order.new", n=1)
    publish(sender, b"2", "Order.new", n=2)
    publish(sender, b"3", "Offer.new", n=3)
    assert receiver.bodies() == [b"2"]
    assert sorted(receiver.remote_source.filter or {}) == ["one", "two"]


def test_a_selector_that_is_wrong_costs_the_link(net: Network) -> None:
    receiver = receive(net.connect(), {"selector": SelectorFilter("colour = = 'red'")})
    assert receiver.detached
    assert receiver.error is not None
    assert receiver.error.condition == "amqp:invalid-field"
    assert "character 10" in (receiver.error.description or "")
    assert receiver.error.info == {"position": 9}


def test_a_queue_has_no_positions_and_says_so(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"1")
    position = Described(Symbol("ferrymq:position"), "last")
    receiver = receive(client, {"where": position, "what": SelectorFilter("n IS NULL")})
    assert list(receiver.remote_source.filter or {}) == ["what"]
    assert receiver.bodies() == [b"1"]


def test_the_start_of_a_stream_is_the_start_of_a_queue(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"1")
    start = Described(Symbol(SELECTOR), "amqp.annotation.x-opt-offset > '-1'")
    assert receive(client, {SELECTOR: start}).bodies() == [b"1"]
