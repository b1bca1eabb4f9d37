"""Leases on a queue with a store, through restarts of the broker."""

from __future__ import annotations

import pytest

from ferrymq_broker.store.tables import LEASE
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import (
    Accepted,
    Data,
    Header,
    Source,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from tests.broker.harness import Network
from tests.broker.paging.paged import PagedNetwork
from tests.broker.queues.leasing import Leasing, fill
from tests.broker.queues.links import consume, numbered
from tests.broker.stores import ManualStore

POLICY = QueuePolicy(persist=True)


@pytest.fixture
def store() -> ManualStore:
    return ManualStore()


@pytest.fixture
def stored(store: ManualStore) -> Network:
    net = Network(store=store)
    net.space.create("q", POLICY)
    return net


def test_a_lease_survives_with_its_remaining_time(stored: Network) -> None:
    net = stored
    fill(net, 6)
    leasing = Leasing(net)
    leasing.lease(1, messages=2, duration=60_000)
    leasing.lease(2, messages=3, duration=60_000)
    net.advance(20)
    net.restart()
    leasing = Leasing(net)
    assert leasing.listed() == [("h", 1, 2), ("h", 2, 3)]
    assert leasing.lease(2, messages=1) == 3
    assert leasing.read(1) == numbered(0, 2) and leasing.read(2) == numbered(2, 3)
    assert net.queue("q").available == 1
    net.advance(39)
    assert len(leasing.listed()) == 2
    net.advance(2)
    assert leasing.listed() == []
    assert consume(net.connect(), "q", credit=10).bodies() == numbered(0, 6)


def test_a_lease_whose_time_passed_meanwhile_lapses_at_the_start(stored: Network) -> None:
    net = stored
    fill(net, 2)
    Leasing(net).lease(1, duration=10_000)
    net.suspend(11)
    net.restart()
    assert Leasing(net).listed() == []
    assert [entry.failures for entry in net.queue("q").peek(9)] == [1, 1]


def test_a_clock_that_was_ahead_does_not_prolong_a_lease(stored: Network) -> None:
    net = stored
    fill(net, 1)
    net.set_clock(3600)
    Leasing(net).lease(1, duration=10_000)
    net.set_clock(-3600)
    net.restart()
    assert len(Leasing(net).listed()) == 1
    net.advance(11)
    assert Leasing(net).listed() == []


def test_settled_and_released_leases_leave_no_records(stored: Network, store: ManualStore) -> None:
    net = stored
    fill(net, 4)
    leasing = Leasing(net)
    leasing.lease(1, messages=1)
    leasing.lease(2, messages=1)
    assert store.count(LEASE) == 2
    leasing.settle(1)
    leasing.ask("RELEASE-LEASES")
    assert store.count(LEASE) == 0
    net.restart()
    assert consume(net.connect(), "q", credit=10).bodies() == numbered(1, 3)


def test_failed_deliveries_are_counted_through_restarts(stored: Network) -> None:
    net = stored
    fill(net, 1)
    for number in (1, 2):
        Leasing(net).lease(number, duration=1_000)
        net.advance(2)
        net.restart()
    assert [entry.failures for entry in net.queue("q").peek(9)] == [2]


def test_messages_that_are_not_stored_are_gone_and_others_keep_their_positions(
    store: ManualStore,
) -> None:
    net = Network(store=store)
    net.space.create("q", QueuePolicy())
    sender = net.connect().sender("q")
    for number in range(4):
        sender.send_sections(Header(durable=number % 2 == 0), Data(value=b"%d" % number))
    Leasing(net).lease(1)
    net.restart()
    leasing = Leasing(net)
    assert leasing.listed() == [("h", 1, 4)]
    assert leasing.read(1) == [b"0", b"2"]
    assert leasing.read(1, first=2) == [b"2"]
    assert leasing.settle(1) == 2 and net.queue("q").message_count() == 0


def test_a_lease_and_a_consumer_that_holds_messages(stored: Network) -> None:
    """Messages that a durable link holds lie between leased ones."""
    net = stored
    fill(net, 3)
    source = Source(
        address="q",
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.NEVER,
    )
    client = net.connect(container_id="c")
    receiver = client.receiver("q", credit=1, source=source, name="l")
    assert receiver.bodies() == numbered(0, 1)
    Leasing(net).lease(1, messages=1)
    receiver.credit(1)
    assert receiver.bodies() == [b"0", b"2"]
    fill(net, 2, first=3)
    net.restart()
    leasing = Leasing(net)
    assert leasing.read(1) == numbered(1, 1)
    other = consume(net.connect(), "q", credit=10)
    assert other.bodies() == numbered(3, 2)
    other.settle(Accepted())
    leasing.settle(1)
    assert net.queue("q").message_count() == 2


def test_a_deleted_queue_leaves_no_records(stored: Network, store: ManualStore) -> None:
    net = stored
    fill(net, 2)
    leasing = Leasing(net)
    leasing.lease(1)
    assert leasing.asker.ask("DELETE", "queue", "q").status == 204
    net.finish()
    assert store.count() == 0


def test_an_answer_waits_for_the_disk(stored: Network, store: ManualStore) -> None:
    net = stored
    fill(net, 2)
    leasing = Leasing(net)
    store.held = True
    with pytest.raises(ValueError, match="not enough values"):
        leasing.lease(1)
    store.release()
    net.run()
    assert len(leasing.asker.receiver.deliveries) == 1


def test_messages_on_disk_are_leased_through_a_restart() -> None:
    net = PagedNetwork()
    net.space.create("q", POLICY)
    sender = net.connect().sender("q")
    for number in range(100):
        sender.send_sections(Data(value=b"%06d" % number + b"x" * 200))
    net.settle()
    Leasing(net).lease(1, messages=30)
    for stop in (net.stop, net.finish):
        stop()
        net.restart()
        leasing = Leasing(net)
        assert [int(body[:6]) for body in leasing.read(1)] == list(range(30))
    assert leasing.settle(1) == 30
    bodies = consume(net.connect(), "q", credit=100).bodies()
    assert [int(body[:6]) for body in bodies] == list(range(30, 100))
