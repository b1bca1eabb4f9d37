"""Bounds of a queue that become narrower: what is above them goes in slices."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.harness import Network
from tests.broker.slices.passes import turn

MESSAGES = 300
SIZE = 20


def narrow(net: Network, policy: QueuePolicy) -> None:
    """Set the policy of queue q in a pass of its own; what the queue puts off is not done."""
    net.broker.begin_pass(net.now)
    net.queue("q").change_policy(policy)
    net.broker.finish_pass()


def filled(count: int = MESSAGES) -> Network:
    net = Network(slice_size=SIZE)
    sender = net.connect().sender("q")
    for number in range(count):
        sender.send(b"%d" % number)
    net.run()
    return net


@pytest.mark.parametrize("bound", ["max_length", "max_bytes"])
def test_no_pass_pushes_out_more_than_a_slice_has(bound: str) -> None:
    net = filled()
    queue = net.queue("q")
    most = 5 if bound == "max_length" else 5 * int(queue.bytes) // MESSAGES
    before = int(queue.available)
    narrow(net, QueuePolicy(overflow="drop-head", **{bound: most}))  # type: ignore[arg-type]
    passes = 0
    while True:
        assert before - queue.available <= SIZE + 1
        if not net.later:
            break
        before = int(queue.available)
        turn(net)
        passes += 1
    assert passes >= MESSAGES // (SIZE + 1)
    assert 0 < queue.available <= 6
    # Those that were there last are there still.
    assert net.connect().receiver("q", credit=10).bodies()[-1] == b"%d" % (MESSAGES - 1)


def test_messages_that_come_meanwhile_do_not_have_the_rest_pushed_out_at_once() -> None:
    net = filled()
    queue = net.queue("q")
    narrow(net, QueuePolicy(overflow="drop-head", max_length=5))
    before = int(queue.available)
    assert before > 2 * SIZE
    net.broker.begin_pass(net.now)
    entry = next(iter(queue.entries.priority_levels[0].all()))
    assert queue.publish(entry.message) is None
    net.broker.finish_pass()
    assert before + 1 - queue.available <= SIZE + 1
    net.run()
    assert queue.available == 5


def test_a_policy_that_does_not_concern_consumers_leaves_them_their_turns() -> None:
    net = filled(0)
    first, second = (net.connect().receiver("q", credit=10) for _ in range(2))
    sender = net.connect().sender("q")
    sender.send(b"a")
    had = [len(first.deliveries), len(second.deliveries)]
    narrow(net, QueuePolicy(max_length=100))
    sender.send(b"b")
    assert sorted(had) == [0, 1]
    assert [len(first.deliveries), len(second.deliveries)] == [1, 1]
