from __future__ import annotations

import pytest

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.setup import install
from tests.broker.harness import Network
from tests.broker.management.asker import Asker


@pytest.fixture
def net() -> Network:
    """A broker in memory with a management node."""
    net = Network()
    if ADDRESS not in net.space.nodes:
        install(net.space, net.broker)
    return net


@pytest.fixture
def asker(net: Network) -> Asker:
    """A client of the management node, with a dynamic queue for its responses."""
    return Asker(net)
