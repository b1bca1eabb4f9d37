"""The plugin for pytest: fixtures of a broker in the test's own process.

It is a package of its own because pytest imports it in every run, also in those of programs that do
not use it: it imports nothing of ferrymq before a fixture is used.

- ``ferrymq_broker``: a broker of the test's own, with the nodes of its marker.
- ``ferrymq_host``: a virtual host of the test's own in a broker that the tests of a run share.
- ``ferrymq_url``: the URL of the broker of ``ferrymq_broker``.

The marker names nodes, and the rest of the configuration of ``ferrymq_broker``::

    @pytest.mark.ferrymq(queues=["orders", {"name": "late", "message-ttl": "30s"}])
    def test_orders(ferrymq_broker: LocalBroker) -> None: ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ferrymq.testing import LocalBroker, LocalHost

MARKER: Final = "ferrymq"
NODES: Final = ("queues", "topics", "streams", "exchanges")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(queues, topics, streams, exchanges, config): nodes of the broker that the "
        "fixtures ferrymq_broker and ferrymq_host give to the test",
    )


def _arguments_of(request: pytest.FixtureRequest, known: tuple[str, ...]) -> dict[str, Any]:
    """Return the arguments of all markers of the test: lists are joined, and the nearest `config`
    is taken."""
    found: dict[str, Any] = {}
    for marker in request.node.iter_markers(MARKER):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{MARKER} takes arguments by name only")
        for name, value in marker.kwargs.items():
            if name not in known:
                raise pytest.UsageError(
                    f"@pytest.mark.{MARKER}: unknown argument {name!r}; "
                    f"there are {', '.join(known)}"
                )
            if name in NODES:
                found[name] = [*value, *found.get(name, ())]
            else:
                found.setdefault(name, value)
    return found


@pytest.fixture
def ferrymq_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """Start a broker for this test, with the nodes of its marker."""
    from ferrymq.testing import LocalBroker

    with LocalBroker(**_arguments_of(request, (*NODES, "config"))) as broker:
        yield broker


@pytest.fixture
def ferrymq_url(ferrymq_broker: LocalBroker) -> str:
    """Return the URL of the test's broker."""
    return ferrymq_broker.url


@pytest.fixture(scope="session")
def ferrymq_shared_broker() -> Iterator[LocalBroker]:
    """Start the broker that the tests of a run share."""
    from ferrymq.testing import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def ferrymq_host(
    request: pytest.FixtureRequest, ferrymq_shared_broker: LocalBroker
) -> Iterator[LocalHost]:
    """Add a virtual host for this test to the shared broker, with the nodes of its marker; remove
    it, and all faults, after the test."""
    host = ferrymq_shared_broker.add_host(**_arguments_of(request, NODES))
    yield host
    ferrymq_shared_broker.faults.clear()
    ferrymq_shared_broker.remove_host(host)
