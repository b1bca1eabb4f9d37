"""How much a client may have unsettled: what it was sent, and what it has sent."""

from __future__ import annotations

import pytest

from ferrymq_broker.connections.client_limits import ClientLimits
from ferrymq_types.messaging import Accepted, Released, Target, TerminusExpiryPolicy
from ferrymq_types.transport import ReceiverSettleMode
from tests.broker.harness import Network

MANY = 1_000_000


def _with(**limits: int) -> Network:
    net = Network(credit=100)
    net.broker.client_limits = ClientLimits(**limits)
    return net


def _fill(net: Network, count: int, address: str = "q") -> None:
    sender = net.connect().sender(address)
    for _ in range(count):
        sender.send(b"x")


@pytest.mark.parametrize("mode", ["move", "copy"])
def test_a_link_that_never_settles(mode: str) -> None:
    """It gets so many, whatever its credit; those that look at the queue without taking, too."""
    net = _with(unsettled=20, unsettled_total=30)
    _fill(net, 60)
    receiver = net.connect().receiver("q", credit=MANY, mode=mode)
    most = 20 if mode == "move" else 30
    assert len(receiver.deliveries) == most
    # Others get what it does not.
    other = net.connect().receiver("q", credit=5)
    assert len(other.deliveries) == 5
    # It goes on as far as it settles.
    receiver.settle(Accepted(), *receiver.take()[:3])
    assert len(receiver.deliveries) == 3
    receiver.settle(Accepted())
    assert len(receiver.deliveries) == 3


def test_a_connection_with_several_links_and_sessions() -> None:
    net = _with(unsettled=MANY, unsettled_total=80)
    _fill(net, 200)
    client = net.connect()
    first = client.receiver("q", credit=MANY)
    assert len(first.deliveries) == 80
    second = client.receiver("q", credit=MANY)
    assert not second.deliveries
    # Sessions share what the connection may have.
    session = client.engine.begin()
    net.run()
    third = client.receiver("q", credit=MANY, session=session)
    # The first one still has it all.
    assert not third.deliveries
    first.settle(Released())
    assert len(third.deliveries) == 40
    assert len(first.deliveries) + len(second.deliveries) == 40
    session.end()
    net.run()
    first.settle(Accepted())
    second.settle(Accepted())
    assert len(first.deliveries) + len(second.deliveries) == 80


def test_one_session_after_the_other_has_a_little() -> None:
    net = _with(unsettled_total=1)
    _fill(net, 4)
    client = net.connect()
    first = client.receiver("q", credit=MANY)
    session = client.engine.begin()
    net.run()
    second = client.receiver("q", credit=MANY, session=session)
    for holder, other in ((first, second), (second, first)):
        assert (len(holder.deliveries), len(other.deliveries)) == (1, 0)
        holder.link.set_credit(0)
        holder.settle(Accepted())


def test_a_drain_uses_up_the_credit_of_who_holds_too_much() -> None:
    net = _with(unsettled=20)
    _fill(net, 50)
    receiver = net.connect().receiver("q", credit=MANY)
    receiver.drain()
    assert receiver.drained == 1
    assert receiver.link.credit == 0
    receiver.settle(Accepted())
    assert not receiver.deliveries
    receiver.credit(MANY)
    assert len(receiver.deliveries) == 20


def test_what_is_sent_settled_does_not_count() -> None:
    from ferrymq_types.transport import SenderSettleMode

    net = _with(unsettled=20, unsettled_total=20)
    _fill(net, 50)
    receiver = net.connect().receiver("q", credit=MANY, snd=SenderSettleMode.SETTLED)
    assert len(receiver.deliveries) == 50


def test_a_producer_that_settles_nothing() -> None:
    """It is to settle second, and does not: no credit, until it does; and nothing is kept twice."""
    net = _with(unsettled_total=150)
    client = net.connect()
    lasting = Target(address="q", expiry_policy=TerminusExpiryPolicy("never"))
    sender = client.sender("q", target=lasting, rcv=ReceiverSettleMode.SECOND)
    sent = []
    while sender.link.credit > 0:
        sent += sender.send(b"x" * 1000)
    assert 150 <= len(sent) < 260
    incoming = next(iter(client.handler.connection.channels.by_remote.values())).incoming
    assert len(incoming.unsettled) == len(sent)
    assert not any(delivery.payload for delivery in incoming.unsettled.values())
    for delivery in sent:
        delivery.settle()
    net.run()
    assert sender.link.credit > 0
    assert not incoming.unsettled
