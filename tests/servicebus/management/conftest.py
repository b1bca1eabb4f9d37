from __future__ import annotations

import pytest

from tests.broker.harness import Network


@pytest.fixture
def net() -> Network:
    """A broker in memory."""
    return Network()
