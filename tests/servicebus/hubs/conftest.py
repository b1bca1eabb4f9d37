from __future__ import annotations

import pytest

from ferrymq_broker.management.setup import install
from ferrymq_servicebus.hub_tables import HUB_TABLES
from tests.broker.harness import Network
from tests.broker.management.asker import Asker


@pytest.fixture
def net() -> Network:
    """A broker in memory whose management node answers clients of Event Hubs."""
    net = Network()
    install(net.space, net.broker, dialects=HUB_TABLES.dialects)
    return net


@pytest.fixture
def asker(net: Network) -> Asker:
    """A client of the management node, with a dynamic queue for its responses."""
    return Asker(net)
