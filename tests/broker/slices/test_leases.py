"""Leases with many messages, which end over several passes."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.queues.lease import LAPSED, RELEASED, SETTLED
from ferrymq_broker.nodes.queues.leases import LeaseEnding
from ferrymq_broker.store.tables import LEASE
from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.harness import Network
from tests.broker.queues.leasing import Leasing, fill
from tests.broker.queues.links import consume, numbered
from tests.broker.slices.passes import turn
from tests.broker.stores import ManualStore

MESSAGES = 1000
SIZE = 100


@pytest.fixture
def net() -> Network:
    net = Network(slice_size=SIZE, store=ManualStore())
    net.space.create("q", QueuePolicy(persist=True))
    fill(net, MESSAGES + 10)
    Leasing(net).lease(1, messages=MESSAGES)
    return net


def end(net: Network, fate: int) -> LeaseEnding:
    """Begin to end the lease."""
    leases = net.queue("q").use_leases()
    lease = leases.find("h", 1)
    assert lease is not None
    return leases.end(lease, fate)


@pytest.mark.parametrize("fate", [SETTLED, RELEASED, LAPSED])
def test_a_lease_ends_in_slices(net: Network, fate: int) -> None:
    queue = net.queue("q")
    ending = end(net, fate)
    while not ending.over:
        before = queue.acquired
        turn(net)
        assert 0 < before - queue.acquired <= SIZE
    net.run()
    assert isinstance(net.store, ManualStore) and net.store.count(LEASE) == 0
    assert queue.available == 10 if fate == SETTLED else MESSAGES + 10


@pytest.mark.parametrize("fate", [SETTLED, RELEASED, LAPSED])
def test_an_end_goes_on_after_a_restart(net: Network, fate: int) -> None:
    end(net, fate)
    for _ in range(3):
        turn(net)
    # What these passes did is on disk when the broker is killed.
    net.broker.finish_pass()
    assert isinstance(net.store, ManualStore)
    net.store.complete()
    net.restart()
    assert Leasing(net).listed() == []
    net.finish()
    queue = net.queue("q")
    rest = queue.peek(MESSAGES + 10)
    if fate == SETTLED:
        assert len(rest) == 10
    else:
        # No delivery counts twice.
        failures = {int(entry.failures) for entry in rest[:MESSAGES]}
        assert len(rest) == MESSAGES + 10 and failures == {1 if fate == LAPSED else 0}


def test_newer_messages_do_not_overtake_those_that_return(net: Network) -> None:
    receiver = consume(net.connect(), "q", credit=MESSAGES)
    assert receiver.bodies() == numbered(MESSAGES, 10)
    ending = end(net, RELEASED)
    turn(net)
    fill(net, 5, first=5000)
    while not ending.over:
        turn(net)
    net.run()
    bodies = receiver.bodies()[10:]
    assert bodies == numbered(0, MESSAGES - 10)


def test_a_queue_is_deleted_while_a_lease_ends(net: Network) -> None:
    end(net, LAPSED)
    turn(net)
    asker = Leasing(net).asker
    assert asker.ask("DELETE", "queue", "q").status == 204
    net.finish()
    assert isinstance(net.store, ManualStore)
    assert net.store.count() == 0 and net.broker.agenda.held == net.broker.agenda.pinned == 0
