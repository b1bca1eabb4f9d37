from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.harness import Network, started
from tests.broker.outliving import check


@pytest.fixture
def net() -> Network:
    """A broker in memory, without limits that matter."""
    return Network()


@pytest.fixture(autouse=True)
def outlived() -> Iterator[None]:
    """Where every broker has a store: each is stopped and started in the end."""
    started.clear()
    yield
    for net in started:
        check(net)
    started.clear()
