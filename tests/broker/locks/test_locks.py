"""Locks of messages: they lapse, outlive their links, and answer late outcomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.messaging import (
    Accepted,
    Modified,
    Rejected,
    Released,
    Source,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.transport import SenderSettleMode
from ferrymq_types.unions import Outcome
from tests.broker.harness import Network, Receiver, header

LOCKED = QueuePolicy(lock_duration=30_000, delivery_limit=1, dead_letter="dead")
OUTCOMES = [Accepted(), Rejected(), Released(), Modified(delivery_failed=True)]


def locked_queue(net: Network, *bodies: bytes, policy: QueuePolicy = LOCKED) -> None:
    net.declare("q", policy)
    net.connect().sender("q").send(*bodies)


def tell(receiver: Receiver, delivery: IncomingDelivery, outcome: Outcome) -> None:
    """State an outcome and leave the settlement to the broker."""
    delivery.update(outcome)
    receiver.net.run()


def is_lost(delivery: IncomingDelivery) -> bool:
    """Whether the broker has settled the delivery because its lock was lost."""
    state = delivery.remote_state
    return (
        delivery.remote_settled
        and isinstance(state, Rejected)
        and state.error is not None
        and state.error.condition == "ferrymq:lock-lost"
    )


def figures(net: Network, *names: str) -> list[int]:
    all_figures = net.queue("q").figures()
    return [all_figures[name] for name in names]


def test_the_delivery_tag_is_a_token_of_its_own(net: Network) -> None:
    locked_queue(net, *[b"x"] * 300)
    receiver = net.connect().receiver("q", credit=300)
    tags = {delivery.tag for delivery in receiver.deliveries}
    assert len(tags) == 300 and {len(tag) for tag in tags} == {16}
    assert figures(net, "locked", "acquired") == [300, 300]
    receiver.settle(Accepted())
    assert figures(net, "locked", "messages", "accepted", "locks-lost") == [0, 0, 300, 0]


def test_nothing_is_locked_without_the_policy_or_for_settled_deliveries(net: Network) -> None:
    locked_queue(net, b"a", b"b")
    browser = net.connect().receiver("q", mode="copy", credit=10)
    assert browser.bodies() == [b"a", b"b"]
    settled = net.connect().receiver("q", snd=SenderSettleMode.SETTLED, credit=1)
    assert settled.bodies() == [b"a"]
    assert figures(net, "locked", "messages") == [0, 1]
    net.declare("plain")
    net.connect().sender("plain").send(b"a")
    (delivery,) = net.connect().receiver("plain", credit=1).deliveries
    assert len(delivery.tag) == 4


def test_a_lock_that_lapses_gives_the_message_back(net: Network) -> None:
    locked_queue(net, b"a", b"b")
    first = net.connect().receiver("q", credit=1)
    net.advance(29.9)
    other = net.connect().receiver("q", credit=10)
    assert other.bodies() == [b"b"]
    net.advance(0.2)
    assert other.bodies() == [b"b", b"a"]
    assert header(other.deliveries[1].payload).delivery_count == 1
    assert figures(net, "locked", "locks-lost", "modified") == [2, 1, 0]
    assert first.bodies() == [b"a"] and not first.deliveries[0].remote_settled


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_late_outcome_changes_nothing(net: Network, outcome: Outcome) -> None:
    locked_queue(net, b"a")
    first = net.connect().receiver("q", credit=1)
    net.advance(31)
    other = net.connect().receiver("q", credit=1)
    assert other.bodies() == [b"a"]
    (delivery,) = first.deliveries
    tell(first, delivery, outcome)
    assert is_lost(delivery)
    assert figures(net, "locked", "acquired", "accepted", "rejected") == [1, 1, 0, 0]
    other.settle(Accepted())
    assert figures(net, "messages", "accepted") == [0, 1]


def test_an_outcome_in_time_is_confirmed_as_always(net: Network) -> None:
    locked_queue(net, b"a")
    receiver = net.connect().receiver("q", credit=1)
    (delivery,) = receiver.deliveries
    net.advance(29)
    tell(receiver, delivery, Accepted())
    assert delivery.remote_settled and delivery.remote_state == Accepted()


def test_lapses_count_for_the_delivery_limit(net: Network) -> None:
    locked_queue(net, b"a")
    receiver = net.connect().receiver("q", credit=10)
    net.advance(31)
    assert receiver.bodies() == [b"a", b"a"]
    net.advance(31)
    assert receiver.bodies() == [b"a", b"a"]
    assert figures(net, "messages", "locks-lost", "dead-lettered") == [0, 2, 1]
    assert net.queue("dead").available == 1


def test_many_locks_lapse_in_several_passes(net: Network) -> None:
    locked_queue(net)
    sender = net.connect().sender("q")
    for _ in range(5):
        sender.send(*[b"x"] * 500)
    for _ in range(5):
        net.connect().receiver("q", credit=500)
    assert figures(net, "locked") == [2500]
    net.advance(31)
    assert figures(net, "locked", "locks-lost", "available") == [0, 2500, 2500]


@pytest.mark.parametrize("how", ["detach", "close", "lost"])
def test_locks_outlive_their_link(net: Network, how: str) -> None:
    locked_queue(net, b"a")
    client = net.connect()
    receiver = client.receiver("q", credit=1)
    if how == "lost":
        client.lose()
    else:
        receiver.link.detach(closed=how == "close")
        net.run()
    other = net.connect().receiver("q", credit=1)
    assert other.bodies() == []
    assert figures(net, "locked", "acquired") == [1, 1]
    net.advance(31)
    assert other.bodies() == [b"a"]
    assert header(other.deliveries[0].payload).delivery_count == 1


def test_a_source_that_outlives_its_link_keeps_no_deliveries(net: Network) -> None:
    locked_queue(net, b"a", b"b")
    source = Source(
        address="q",
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.NEVER,
    )
    client = net.connect()
    receiver = client.receiver("q", source=source, name="kept", credit=1)
    assert receiver.remote_source.durable == TerminusDurability.CONFIGURATION
    assert receiver.remote_source.expiry_policy == TerminusExpiryPolicy.NEVER
    receiver.link.detach(closed=False)
    net.run()
    again = client.receiver("q", source=source, name="kept", credit=10)
    assert again.bodies() == [b"b"]
    net.advance(31)
    assert sorted(again.bodies()) == [b"a", b"b", b"b"]


def test_a_restart_gives_locked_messages_back(net: Network) -> None:
    locked_queue(net, policy=QueuePolicy(lock_duration=30_000, persist=True))
    net.connect().sender("q").send(b"a")
    assert net.connect().receiver("q", credit=1).bodies() == [b"a"]
    net.restart()
    receiver = net.connect().receiver("q", credit=1)
    assert receiver.bodies() == [b"a"] and len(receiver.deliveries[0].tag) == 16


def test_another_policy_holds_for_the_next_deliveries(net: Network) -> None:
    locked_queue(net, b"a", b"b", b"c", policy=QueuePolicy())
    queue = net.queue("q")
    receiver = net.connect().receiver("q", credit=1)
    queue.change_policy(LOCKED)
    receiver.credit(1)
    queue.change_policy(QueuePolicy())
    receiver.credit(1)
    assert [len(delivery.tag) for delivery in receiver.deliveries] == [4, 16, 4]
    net.advance(31)
    assert figures(net, "locks-lost", "acquired") == [1, 2]
    receiver.settle(Accepted(), receiver.deliveries[0], receiver.deliveries[2])
    assert figures(net, "messages") == [1]


def test_locks_of_a_consumer_lapse_each_at_its_own_deadline(net: Network) -> None:
    locked_queue(net, *b"abcdefg".split(), *[b"%d" % n for n in range(6)])
    queue = net.queue("q")
    consumer = net.connect()
    receiver = consumer.receiver("q", credit=2)
    for seconds in (10, 20, 0, 5):
        queue.change_policy(replace(LOCKED, lock_duration=seconds * 1000))
        receiver.credit(1)
    # Until 1030 twice, 1010, 1020, without a lock, 1005.
    lost = []
    for _ in range(6):
        net.advance(5.001)
        lost.append(figures(net, "locks-lost")[0])
    assert lost == [1, 2, 2, 3, 3, 5]
    receiver.settle(Accepted(), receiver.deliveries[4])
    assert figures(net, "locked", "acquired", "accepted") == [0, 0, 1]


def test_tokens_hold_while_their_link_ends_in_slices() -> None:
    net = Network(slice_size=100)
    locked_queue(net, *[b"x"] * 300)
    client = net.connect()
    receiver = client.receiver("q", credit=300)
    tokens = [delivery.tag for delivery in receiver.deliveries]
    locks = net.queue("q").locks
    assert locks is not None
    net.clients.remove(client)
    client.handler.receive_eof(net.now)
    assert net.later and all(locks.find(token) for token in tokens)
    net.run()
    assert not net.later and all(locks.find(token) for token in tokens)


def test_subscriptions_lock_by_their_policy(net: Network) -> None:
    net.space.create("t", TopicPolicy(subscription=QueuePolicy(lock_duration=10_000)))
    receiver = net.connect().receiver("t", credit=10)
    net.connect().sender("t").send(b"a")
    assert [len(delivery.tag) for delivery in receiver.deliveries] == [16]
    net.advance(11)
    assert receiver.bodies() == [b"a", b"a"]


def test_a_purge_and_a_move_leave_locked_messages(net: Network) -> None:
    locked_queue(net, b"a", b"b", b"c")
    receiver = net.connect().receiver("q", credit=1)
    other = net.declare("other")
    assert finish(net.queue("q").move(other, 1)) == (1, None)
    assert net.queue("q").purge().count == 1
    receiver.settle(Accepted())
    assert figures(net, "accepted", "messages") == [1, 0]


def test_a_deleted_queue_holds_nothing(net: Network) -> None:
    locked_queue(net, b"a", b"b", b"c")
    client = net.connect()
    client.receiver("q", credit=1)
    client.lose()
    net.connect().receiver("q", credit=1)
    net.space.remove(net.queue("q"))
    net.run()
    net.advance(60)
    assert net.broker.agenda.held == 0
