from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.broker.replication.journals import JournalCluster, MemoryCluster, PostgresqlCluster
from tests.support.postgresql import PostgresqlPair


@pytest.fixture(scope="session")
def pair() -> Iterator[PostgresqlPair]:
    """PostgreSQL for all tests of a process. A test that stops a server starts it again."""
    with PostgresqlPair() as servers:
        yield servers


@pytest.fixture
async def database(pair: PostgresqlPair) -> AsyncIterator[PostgresqlCluster]:
    """A cluster on PostgreSQL."""
    cluster = PostgresqlCluster(pair)
    yield cluster
    cluster.close()


@pytest.fixture(params=["memory", "postgresql"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[JournalCluster]:
    """A cluster on each implementation of the shared journal."""
    made: JournalCluster
    if request.param == "memory":
        made = MemoryCluster()
    else:
        made = PostgresqlCluster(request.getfixturevalue("pair"))
    yield made
    made.close()
