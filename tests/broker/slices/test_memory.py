"""Memory of what is dropped is given back in slices: by number, and by size."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from ferrymq_broker.slices import FREED_SHIFT, FREED_TOGETHER, Disposal
from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.harness import Network
from tests.broker.slices.passes import turn
from tests.broker.slices.test_chores import Loop
from tests.broker.streams.kit import declare

MESSAGES = 30
# Units of a slice, and a message that costs as many.
SIZE = 20
LARGE = bytes(SIZE << FREED_SHIFT)


def test_the_records_of_a_purged_stream_are_freed_in_slices() -> None:
    net = Network(slice_size=2)
    stream = declare(net)
    sender = net.connect().sender("s")
    for number in range(10 * FREED_TOGETHER):
        sender.send(b"%d" % number)
    net.run()
    payloads = stream.partitions[0].log.find(0).payloads
    net.broker.begin_pass(net.now)
    assert stream.clear() == 10 * FREED_TOGETHER
    net.broker.finish_pass()
    # Nobody sees them any more, and nothing is counted.
    assert stream.range(0) == (160, 160) and net.broker.agenda.held == net.broker.agenda.pinned == 0
    left = [len(payloads)]
    while net.later:
        turn(net)
        left.append(len(payloads))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 2 * FREED_TOGETHER


def test_large_payloads_are_freed_one_by_one() -> None:
    loop = Loop()
    loop.slices.size = loop.slices.left = SIZE
    payloads = [bytes(LARGE) for _ in range(5)]
    loop.slices.do(Disposal(payloads))
    left = [len(payloads)]
    while payloads:
        loop.turn()
        left.append(len(payloads))
    assert left == [4, 3, 2, 1, 0]


def _purge(net: Network) -> None:
    net.queue("q").purge()


def _narrow(net: Network) -> None:
    net.queue("q").change_policy(QueuePolicy(overflow="drop-head", max_length=1))


@pytest.mark.parametrize("drop", [_purge, _narrow])
def test_large_messages_that_are_dropped_count_by_their_size(
    drop: Callable[[Network], None],
) -> None:
    net = Network(slice_size=SIZE)
    sender = net.connect().sender("q")
    for _ in range(MESSAGES):
        sender.send(LARGE)
    net.run()
    queue = net.queue("q")
    left = [int(queue.available)]
    net.broker.begin_pass(net.now)
    drop(net)
    net.broker.finish_pass()
    left.append(int(queue.available))
    while net.later:
        turn(net)
        left.append(int(queue.available))
    assert left[-1] <= 1
    # One that begins while a unit is left is dropped whole.
    assert max(before - after for before, after in pairwise(left)) <= 2
