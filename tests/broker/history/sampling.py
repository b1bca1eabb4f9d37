"""A broker in memory whose nodes are sampled."""

from __future__ import annotations

from ferrymq_broker.history.sampler import Sampler
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.setup import install
from tests.broker.harness import Network


def begin_history(net: Network, max_bytes: int = 1 << 20) -> Sampler:
    """Begin to sample the nodes of a broker in memory, with a management node."""
    if ADDRESS not in net.space.nodes:
        install(net.space, net.broker)
    net.broker.begin_pass(net.now)
    sampler = Sampler(net.broker, max_bytes)
    net.broker.finish_pass()
    return sampler
