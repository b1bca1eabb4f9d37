from __future__ import annotations

import pytest

from tests.broker.harness import Network
from tests.broker.recovery.kit import stored_network


@pytest.fixture
def net() -> Network:
    """A broker in memory, with a store that a test can stop it by."""
    return stored_network()
