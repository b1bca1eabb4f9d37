from __future__ import annotations

import pytest

from tests.broker.harness import Network
from tests.broker.history.sampling import begin_history
from tests.broker.management.asker import Asker


@pytest.fixture
def net() -> Network:
    """A broker in memory that keeps history, with a management node."""
    net = Network()
    begin_history(net)
    return net


@pytest.fixture
def asker(net: Network) -> Asker:
    """A client of the management node."""
    return Asker(net)
