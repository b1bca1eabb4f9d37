"""The policy `target-latency`: producers get credit at the rate of the consumers."""

from __future__ import annotations

from collections import deque

from ferrymq_broker.nodes.node import BOUNDLESS
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted
from tests.broker.harness import Network

# Seconds between two looks of each client at its link.
STEP = 0.001


class Flow:
    """A producer that sends whatever it may, after `delay` steps, and a consumer that takes up to
    `rate` messages in each step."""

    def __init__(self, net: Network, target: int, delay: int = 0) -> None:
        net.declare("q", QueuePolicy(overflow="block", target_latency=target))
        self.net = net
        self.sender = net.connect().sender("q")
        self.receiver = net.connect().receiver("q", credit=0)
        self.noticed: deque[int] = deque([0] * delay)
        # Credit that is on its way to the producer.
        self.under_way = 0
        self.taken: list[int] = []
        self.waiting: list[int] = []

    def run(self, steps: int, rate: int) -> None:
        for _ in range(steps):
            new = int(self.sender.link.credit) - self.under_way
            self.noticed.append(new)
            self.under_way += new
            now = self.noticed.popleft()
            self.under_way -= now
            self.sender.send(*[b"m"] * now)
            self.receiver.credit(rate)
            deliveries = self.receiver.take()
            self.receiver.settle(Accepted(), *deliveries)
            self.taken.append(len(deliveries))
            self.waiting.append(int(self.net.queue("q").available))
            self.net.advance(STEP)


def test_few_wait_and_consumers_are_busy(net: Network) -> None:
    flow = Flow(net, target=5)
    for rate in (20, 2, 50):
        flow.run(1000, rate)
        assert max(flow.waiting[-500:]) <= 5 * rate + 10
        assert sum(flow.taken[-500:]) >= 0.95 * 500 * rate


def test_producers_that_are_far_away(net: Network) -> None:
    # What they send now was granted 50 ms ago.
    flow = Flow(net, target=20, delay=50)
    flow.run(2000, rate=4)
    assert sum(flow.taken[-500:]) >= 0.75 * 500 * 4


def test_without_consumers_producers_wait(net: Network) -> None:
    flow = Flow(net, target=100)
    flow.run(500, rate=20)
    flow.run(500, rate=0)
    # What was promised has come, and no more is.
    assert flow.waiting[-1] == flow.waiting[-400] <= 20 * 100
    flow.run(1000, rate=20)
    assert sum(flow.taken[-500:]) >= 0.95 * 500 * 20


def test_an_update_ends_it(net: Network) -> None:
    flow = Flow(net, target=5)
    flow.run(200, rate=20)
    net.queue("q").change_policy(QueuePolicy())
    assert net.queue("q").room() == BOUNDLESS
