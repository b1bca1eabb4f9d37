"""The broker of the tests of rights."""

from __future__ import annotations

import pytest

from tests.broker.access.guarded import guarded
from tests.broker.harness import Network


@pytest.fixture
def net(request: pytest.FixtureRequest) -> Network:
    """A broker with the module's ``RULES``, if it has any."""
    rules = getattr(request.module, "RULES", None)
    return Network() if rules is None else guarded(rules)
