"""TLS between a broker and the database, with the parameters of libpq in the URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ferrymq_broker.replication.errors import JournalUnavailable
from ferrymq_broker.replication.postgresql.journal import PostgresqlJournal
from ferrymq_broker.replication.shared_journal import SharedJournal
from tests.broker.replication.journals import PostgresqlCluster, call, outcome
from tests.broker.tls.pki import Pki
from tests.support.postgresql import ROLE, PostgresqlPair

# It is interpreted on both builds.
pytestmark = pytest.mark.once


@pytest.fixture
def pki(tmp_path: Path, pair: PostgresqlPair) -> Iterator[Pki]:
    """The certificate that the database has."""
    made = Pki(tmp_path)
    pair.enable_tls(made.path("server").read_bytes(), made.path("server-key").read_bytes())
    yield made
    pair.primary.execute("ALTER SYSTEM RESET ssl")
    pair.primary.execute("SELECT pg_reload_conf()")


class Connecting:
    """Journals of a cluster by URLs with these parameters."""

    def __init__(self, cluster: PostgresqlCluster) -> None:
        self._cluster = cluster
        self._journals: list[SharedJournal] = []

    def __call__(self, parameters: str) -> SharedJournal:
        # The name has addresses of IPv4 and of IPv6, and the server listens on one of them.
        port = self._cluster.pair.primary.port
        url = f"postgresql://{ROLE}:secret@localhost:{port}/postgres?{parameters}"
        loop = asyncio.get_running_loop()
        journal = PostgresqlJournal(url, self._cluster.name, loop, timeout=30.0)
        self._journals.append(journal)
        return journal

    def close(self) -> None:
        for journal in self._journals:
            journal.close()


@pytest.fixture
async def connect(database: PostgresqlCluster) -> AsyncIterator[Connecting]:
    connecting = Connecting(database)
    yield connecting
    connecting.close()


async def test_a_server_of_the_authority_is_trusted(
    connect: Connecting, pki: Pki, pair: PostgresqlPair, database: PostgresqlCluster
) -> None:
    journal = connect(f"sslmode=verify-full&sslrootcert={pki.path('ca')}")
    await call(journal.acquire, "a", "", 60.0)
    # More than the buffers of a socket and of TLS have room for.
    large = b"0123456789abcdef" * (512 * 1024)
    await call(journal.append, 1, 1, 1, [large])
    assert [one.data for one in await call(journal.read, 0, 100)] == [large]
    query = f"""
        SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'ferrymq {database.name}'
    """
    assert pair.primary.execute(query) == [(True,)]


async def test_a_server_of_another_authority_is_refused(connect: Connecting, pki: Pki) -> None:
    journal = connect(f"sslmode=verify-full&sslrootcert={pki.path('stranger')}")
    error = await outcome(journal.observe)
    assert isinstance(error, JournalUnavailable)
    assert "certificate verify failed" in str(error) and "secret" not in str(error)
