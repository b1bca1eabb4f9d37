"""Messages the broker does not take: who is told what, with the outcomes that were agreed.

The anonymous terminus: Using the AMQP Anonymous Terminus for Message Routing 1.0.
"""

from __future__ import annotations

import pytest

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq_broker.addresses.address_space import AddressRedirect
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy
from ferrymq_types.messaging import Accepted, Data, Modified, Properties, Rejected, Released, Source
from ferrymq_types.transport import Error
from tests.broker.harness import Network, Sender
from tests.broker.test_termini import refused

ACCEPTED = "amqp:accepted:list"
REJECTED = "amqp:rejected:list"
RELEASED = "amqp:released:list"
MODIFIED = "amqp:modified:list"


@pytest.fixture
def net() -> Network:
    net = Network(auto_create=False)
    net.declare("full", QueuePolicy(max_length=1, overflow="reject"))
    net.space.create("nowhere", ExchangePolicy())
    net.declare("q")
    net.space.redirects["gone"] = AddressRedirect("host.example", "10.0.0.1", 5673, "there")
    return net


def error_of(delivery: OutgoingDelivery) -> Error:
    assert isinstance(delivery.remote_state, Rejected)
    assert delivery.remote_state.error is not None
    return delivery.remote_state.error


def route(relay: Sender, to: str | None, settled: bool = False) -> OutgoingDelivery:
    return relay.send_sections(Properties(to=to), Data(value=b"x"), settled=settled)


# -- the anonymous terminus --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "condition"),
    [
        (None, "amqp:not-found"),
        ("", "amqp:invalid-field"),
        ("unknown", "amqp:not-found"),
        ("q::part", "amqp:not-found"),
        ("gone", "amqp:link:redirect"),
    ],
)
def test_what_an_attach_would_be_told_a_message_is_told(
    net: Network, to: str | None, condition: str
) -> None:
    client = net.connect()
    relay = client.sender(None)
    delivery = route(relay, to)
    error = error_of(delivery)
    assert error.condition == condition and error.description
    assert not relay.detached
    # Besides, which message it was.
    info = dict(error.info or {})
    assert info.pop("delivery-tag") == delivery.tag
    if to:
        direct = client.sender(to)
        assert refused(direct, condition)
        assert direct.error is not None and (direct.error.info or {}) == info


def test_unroutable_is_released(net: Network) -> None:
    relay = net.connect().sender(None)
    assert isinstance(route(relay, "nowhere").remote_state, Released)


def test_full_is_rejected(net: Network) -> None:
    relay = net.connect().sender(None)
    assert isinstance(route(relay, "full").remote_state, Accepted)
    assert error_of(route(relay, "full")).condition == "amqp:resource-limit-exceeded"
    assert isinstance(route(relay, "q").remote_state, Accepted)


@pytest.mark.parametrize("to", [None, "", "unknown", "gone"])
def test_a_settled_message_without_a_way_costs_the_link(net: Network, to: str | None) -> None:
    relay = net.connect().sender(None)
    delivery = route(relay, to, settled=True)
    assert relay.detached and relay.error is not None and relay.error.info is not None
    assert relay.error.info["delivery-tag"] == delivery.tag
    assert relay.error.condition.startswith("amqp:")


def test_a_sender_that_knows_no_rejection_loses_the_link(net: Network) -> None:
    relay = net.connect().sender(None, source=Source(outcomes=[ACCEPTED, RELEASED]))
    delivery = route(relay, "unknown")
    assert relay.error is not None and relay.error.condition == "amqp:not-found"
    assert relay.error.info == {"delivery-tag": delivery.tag}


@pytest.mark.parametrize("to", ["full", "nowhere"])
def test_a_settled_message_that_is_not_taken_is_dropped_and_counted(net: Network, to: str) -> None:
    client = net.connect()
    client.sender("full").send(b"first")
    relay = client.sender(None)
    route(relay, to, settled=True)
    assert not relay.detached
    assert net.broker.counters.messages_dropped == 1
    assert net.queue("full").message_count() == 1


# -- the outcomes of the source ----------------------------------------------------------------


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([ACCEPTED, RELEASED], Released()),
        ([ACCEPTED, MODIFIED], Modified(delivery_failed=False, undeliverable_here=False)),
        ([ACCEPTED, MODIFIED, RELEASED], Released()),
    ],
)
def test_what_goes_nowhere_returns_by_an_agreed_outcome(
    net: Network, outcomes: list[str], expected: Released | Modified
) -> None:
    sender = net.connect().sender("nowhere", source=Source(outcomes=outcomes))
    (delivery,) = sender.send(b"x")
    assert type(delivery.remote_state) is type(expected)
    if isinstance(delivery.remote_state, Modified):
        assert not delivery.remote_state.delivery_failed
        assert not delivery.remote_state.undeliverable_here


@pytest.mark.spec("3.5.3")
def test_without_a_way_to_return_it_is_rejected(net: Network) -> None:
    sender = net.connect().sender("nowhere", source=Source(outcomes=[ACCEPTED, REJECTED]))
    (delivery,) = sender.send(b"x")
    assert error_of(delivery).condition


@pytest.mark.spec("3.5.3")
def test_with_no_outcome_but_accepted_the_link_ends(net: Network) -> None:
    sender = net.connect().sender("nowhere", source=Source(outcomes=[ACCEPTED]))
    (delivery,) = sender.send(b"x")
    assert delivery.remote_state is None
    assert sender.error is not None and sender.error.info is not None
    assert sender.error.info["delivery-tag"] == delivery.tag


@pytest.mark.spec("3.5.3")
def test_a_source_that_knows_no_acceptance_is_refused(net: Network) -> None:
    sender = net.connect().sender("q", source=Source(outcomes=[REJECTED, RELEASED]))
    assert refused(sender, "amqp:not-implemented")
    assert net.connect().sender("q", source=Source(outcomes=[])).link.usable


def test_a_refusal_says_what_it_is_about(net: Network) -> None:
    sender = net.connect().sender("full")
    _, second = sender.send(b"1", b"2")
    error = error_of(second)
    assert error.condition == "amqp:resource-limit-exceeded"
    assert error.description and "full" in error.description


def test_who_has_no_credit_of_a_node_takes_no_room_that_is_promised(net: Network) -> None:
    net.declare("tight", QueuePolicy(max_length=3, overflow="block"))
    client = net.connect()
    direct, relay = client.sender("tight"), client.sender(None)
    assert direct.link.credit == 1
    assert isinstance(route(relay, "tight").remote_state, Accepted)
    assert isinstance(route(relay, "tight").remote_state, Accepted)
    assert error_of(route(relay, "tight")).condition == "amqp:resource-limit-exceeded"
    (delivery,) = direct.send(b"x")
    assert isinstance(delivery.remote_state, Accepted)
    assert net.queue("tight").message_count() == 3
