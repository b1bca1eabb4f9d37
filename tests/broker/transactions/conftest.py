from __future__ import annotations

import pytest

from tests.broker.harness import Client, Network
from tests.broker.transactions.kit import Controller


@pytest.fixture
def client(net: Network) -> Client:
    """A client that will control transactions."""
    return net.connect()


@pytest.fixture
def control(client: Client) -> Controller:
    """Its control link."""
    return Controller(client)
