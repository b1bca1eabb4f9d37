"""Producers of a bounded node share its room: promised and stored messages never exceed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy
from ferrymq_types.messaging import Accepted, Data, Properties, Source
from tests.broker.harness import Network

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.queue import Queue
    from tests.broker.harness import Receiver, Sender


def bounded(net: Network, bound: int) -> Queue:
    return net.declare("q", QueuePolicy(max_length=bound, overflow="block"))


def promised(senders: list[Sender]) -> int:
    return sum(int(sender.link.credit) for sender in senders if not sender.detached)


@pytest.mark.spec("broker-2.3.9")
def test_a_bounded_queue_promises_no_more_than_it_holds(net: Network) -> None:
    queue = bounded(net, 10)
    client = net.connect()
    senders = [client.sender("q") for _ in range(20)]
    assert promised(senders) <= 10
    # Everybody who was early enough has something, nobody has everything.
    assert sum(1 for sender in senders if sender.link.credit > 0) >= 3
    for sender in senders:
        while sender.link.credit > 0:
            sender.send(b"x")
            assert queue.message_count() + promised(senders) <= 10
    assert queue.message_count() == 10
    assert promised(senders) == 0


@pytest.mark.spec("broker-2.3.9")
def test_a_lone_producer_can_fill_the_queue(net: Network) -> None:
    queue = bounded(net, 100)
    sender = net.connect().sender("q")
    sent = 0
    while sender.link.credit > 0:
        sender.send(b"x")
        sent += 1
    assert sent == queue.message_count() == 100


def test_what_leaves_makes_room(net: Network) -> None:
    queue = bounded(net, 10)
    client = net.connect()
    sender = client.sender("q")
    while sender.link.credit > 0:
        sender.send(b"x")
    receiver = client.receiver("q", credit=4)
    assert sender.link.credit == 0, "what a consumer holds takes room"
    receiver.settle(Accepted())
    assert 0 < sender.link.credit <= 4
    while sender.link.credit > 0:
        sender.send(b"x")
    assert queue.message_count() == 10


def test_room_goes_round(net: Network) -> None:
    """Of many producers that wait for a slot each gets its turn."""
    bounded(net, 1)
    client = net.connect()
    senders = [client.sender("q") for _ in range(5)]
    receiver = client.receiver("q")
    served: list[int] = []
    for _ in range(21):
        (lucky,) = (i for i, sender in enumerate(senders) if sender.link.credit > 0)
        served.append(lucky)
        senders[lucky].send(b"x")
        receiver.credit(1)
        receiver.settle(Accepted())
    # The first link had the slot when it came.
    assert served == [0, *(list(range(5)) * 4)]


@pytest.mark.parametrize("how", ["close", "detach", "lose"])
def test_what_was_promised_to_a_link_returns_with_it(net: Network, how: str) -> None:
    queue = bounded(net, 8)
    first, second = net.connect(), net.connect()
    hoarder = first.sender("q")
    before = hoarder.link.credit
    assert before > 0
    waiting = [second.sender("q") for _ in range(8)]
    if how == "lose":
        first.lose()
    else:
        hoarder.close(how == "close")
    assert promised(waiting) == 8
    assert queue.promised == 8
    second.lose()
    assert queue.promised == 0


def test_a_deleted_queue_owes_nothing(net: Network) -> None:
    queue = bounded(net, 8)
    client = net.connect()
    senders = [client.sender("q") for _ in range(8)]
    net.space.remove(queue)
    net.finish()
    assert all(sender.detached for sender in senders)
    assert queue.promised == 0 and not queue.producers and not queue.waiting_for_room


def test_an_unbounded_queue_gives_everybody_all(net: Network) -> None:
    queue = net.declare("q")
    client = net.connect()
    for _ in range(20):
        assert client.sender("q").link.credit == net.credit
    assert queue.promised == 0 and not queue.waiting_for_room


def test_a_rejecting_queue_does_not_hold_credit_back(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=1, overflow="reject"))
    assert net.connect().sender("q").link.credit == net.credit


def test_aborted_deliveries_take_no_room(net: Network) -> None:
    queue = bounded(net, 2)
    client = net.connect(max_frame_size=512)
    sender = client.sender("q")
    assert sender.link.credit == 1
    for _ in range(10):
        if sender.link.credit == 0:
            break
        sender.send(b"x")
    assert queue.message_count() == 2
    assert queue.promised == 0


@given(
    st.lists(st.sampled_from(["send", "take", "attach", "close"]), max_size=80), st.integers(1, 9)
)
@settings(max_examples=60, deadline=None)
def test_the_promise_always_holds(steps: list[str], bound: int) -> None:
    """Whatever producers and consumers do, in whatever order, the sum stays within the bound."""
    net = Network()
    queue = bounded(net, bound)
    client = net.connect()
    receiver: Receiver = client.receiver("q")
    senders: list[Sender] = []
    for turn, step in enumerate(steps):
        able = [sender for sender in senders if sender.link.credit > 0]
        if step == "attach" and len(senders) < 6:
            senders.append(client.sender("q"))
        elif step == "send" and able:
            able[turn % len(able)].send(b"x")
        elif step == "take":
            receiver.credit(1)
            receiver.settle(Accepted())
            receiver.credit(0)
        elif step == "close" and senders:
            senders.pop(turn % len(senders)).close()
        assert queue.message_count() + promised(senders) <= bound
        assert queue.promised == promised(senders)
        if senders:
            # Nobody waits while there is room.
            assert queue.message_count() + promised(senders) == bound or any(
                sender.link.credit > 0 for sender in senders
            )


def test_the_bound_holds_for_those_who_come_through_an_exchange(net: Network) -> None:
    """Direct producers and those of two exchanges: one queue, one bound."""
    queue = bounded(net, 12)
    for name in ("x", "y"):
        exchange = net.space.create(name, ExchangePolicy(type="fanout"))
        assert isinstance(exchange, Exchange)
        exchange.bind("q", "")
    client = net.connect()
    senders = [client.sender(address) for address in ("x", "q", "y", "x", "y", "x::key", "q")]
    assert promised(senders) <= 12
    for _ in range(3):
        for sender in senders:
            while sender.link.credit > 0:
                (delivery,) = sender.send(b"x")
                assert isinstance(delivery.remote_state, Accepted)
                assert queue.message_count() + promised(senders) <= 12
        assert queue.message_count() == 12
        receiver = client.receiver("q", credit=7)
        receiver.settle(Accepted())
        receiver.close()
        assert 0 < promised(senders) <= 7
    client.lose()
    assert queue.pledged() == 0


def test_a_link_that_goes_for_what_it_sent_takes_its_promise_with_it_once(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(max_length=4, max_bytes=100, overflow="block"))
    client = net.connect()
    sender = client.sender("q", source=Source(outcomes=["amqp:accepted:list"]))
    sender.send(b"x" * 101)
    # It cannot be told with an outcome.
    assert sender.detached and queue.promised == 0
    lucky = client.sender("q")
    sent = 0
    while lucky.link.credit > 0:
        lucky.send(b"x")
        sent += 1
    assert sent == 4


@pytest.mark.parametrize("address", ["q", "x"])
def test_room_that_a_message_did_not_take_is_for_those_who_wait(net: Network, address: str) -> None:
    net.declare("q", QueuePolicy(max_length=10, overflow="block", duplicate_window=100_000))
    exchange = net.space.create("x", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    exchange.bind("q")
    client = net.connect()
    message = (Properties(message_id="once"), Data(value=b"x"))
    client.sender(address).send_sections(*message)
    client.receiver("q", credit=1).settle(Accepted())
    senders = [client.sender(address) for _ in range(10)]
    poor = next(sender for sender in senders if sender.link.credit == 0)
    rich = max(senders, key=lambda sender: int(sender.link.credit))
    rich.send_sections(*message)
    assert net.queue("q").message_count() == 0
    # One has given it up, and one of the others has it.
    assert poor.link.credit == 1


@pytest.mark.parametrize("front", ["x", "x::key"])
def test_who_leaves_an_exchange_leaves_room_to_those_who_send_directly(
    net: Network, front: str
) -> None:
    queue = bounded(net, 10)
    exchange = net.space.create("x", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    exchange.bind("q")
    client = net.connect()
    indirect = [client.sender(front) for _ in range(10)]
    late = client.sender("q")
    assert promised(indirect) == 10 and late.link.credit == 0
    for sender in indirect:
        sender.close()
    assert late.link.credit > 0
    assert queue.promised == late.link.credit <= 10
