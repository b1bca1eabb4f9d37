"""The tables: made once, refused when they are newer, with least privileges; and errors that name
what to do and show no password."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from ferrymq_broker.replication.errors import JournalUnavailable, ReplicationError
from ferrymq_broker.replication.postgresql.database_schema import VERSION, initialise
from ferrymq_broker.replication.postgresql.journal import PostgresqlJournal
from ferrymq_broker.replication.shared_journal import Position
from tests.broker.replication.journals import PostgresqlCluster, call, outcome
from tests.support.postgresql import PASSWORD, PASSWORD_ROLE, ROLE, PostgresqlPair

# It is interpreted on both builds.
pytestmark = pytest.mark.once

_numbers = itertools.count(1)


@pytest.fixture
def url(pair: PostgresqlPair) -> Iterator[str]:
    """The URL of an empty database, as a superuser."""
    name = f"empty{next(_numbers)}"
    pair.primary.execute(f"CREATE DATABASE {name}")
    yield pair.url().removesuffix("postgres") + name
    pair.primary.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def problem(url: str, cluster: str = "one") -> Exception:
    """Return the error of a journal of this database."""
    journal = PostgresqlJournal(url, cluster, asyncio.get_running_loop())
    try:
        error = await outcome(journal.figures)
    finally:
        journal.close()
    assert isinstance(error, Exception)
    return error


def test_tables_are_made_once(url: str) -> None:
    assert initialise(url, "one", None) == (0, True)
    assert initialise(url, "one", None) == (VERSION, False)
    assert initialise(url, "two", None) == (VERSION, True)


def test_commands_at_once_make_the_tables_once(url: str) -> None:
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda name: initialise(url, name, ROLE), ["one", "one", "two"]))
    assert sorted(before for before, _ in found) == [0, VERSION, VERSION]
    assert sorted(new for _, new in found) == [False, True, True]


async def test_clusters_in_one_database_do_not_meet(pair: PostgresqlPair) -> None:
    clusters = [PostgresqlCluster(pair) for _ in range(2)]
    first, second = (cluster.join() for cluster in clusters)
    await call(first.acquire, "a", "", 60.0)
    await call(first.append, 1, 1, 1, [b"x"])
    id = await call(first.begin_snapshot, Position(1, 1))
    await call(first.add_piece, id, 0, b"x")
    await call(first.finish_snapshot, id, 1, 1)
    assert (await call(second.observe)).term == 0
    assert await call(second.read, 0, 1000) == []
    assert await call(second.snapshots) == []
    for change in ((second.drop_snapshot, id), (second.trim, 100)):
        await call(*change)
    for refused in (
        (second.read_piece, id, 0),
        (second.add_piece, id, 1, b"y"),
        (second.finish_snapshot, id, 1, 1),
    ):
        with pytest.raises(ReplicationError):
            await call(*refused)
    assert await call(first.read_piece, id, 0) == b"x"
    ids = {(await call(journal.figures)).cluster for journal in (first, second)}
    assert len(ids) == 2
    for cluster in clusters:
        cluster.close()


async def test_newer_tables_are_refused(url: str) -> None:
    initialise(url, "one", None)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE ferrymq.version SET version = 99")
    with pytest.raises(ReplicationError, match="install a newer version of ferrymq"):
        initialise(url, "one", None)
    assert "have version 99" in str(await problem(url))


async def test_what_is_missing_is_said(url: str) -> None:
    assert "run `ferrymq replica init`" in str(await problem(url))
    initialise(url, "one", None)
    assert str(await problem(url, "other")) == (
        "the database has no cluster other: run `ferrymq replica init`"
    )


async def test_members_go_on_when_the_tables_are_made(url: str) -> None:
    journal = PostgresqlJournal(url, "one", asyncio.get_running_loop())
    told = asyncio.Event()
    journal.watch(told.set)
    assert isinstance(await outcome(journal.observe), ReplicationError)
    initialise(url, "one", None)
    await told.wait()
    while isinstance(await outcome(journal.observe), ReplicationError):
        pass
    journal.close()


async def test_a_role_without_rights_is_told_who_can_give_them(
    url: str, pair: PostgresqlPair
) -> None:
    initialise(url, "one", None)
    as_role = url.replace("postgres@", f"{ROLE}@")
    assert "--grant-to ROLE" in str(await problem(as_role))
    initialise(url, "one", ROLE)
    with psycopg.connect(as_role) as connection:
        for forbidden in (
            "DROP TABLE ferrymq.batch",
            "CREATE TABLE ferrymq.other (x integer)",
            "DELETE FROM ferrymq.lease",
            "UPDATE ferrymq.batch SET data = ''",
            "UPDATE ferrymq.version SET version = 2",
            "TRUNCATE ferrymq.batch",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden.encode())
            connection.rollback()


def test_a_failed_init_leaves_nothing(url: str) -> None:
    with pytest.raises(ReplicationError, match='role "nobody" does not exist'):
        initialise(url, "one", "nobody")
    assert initialise(url, "one", None) == (0, True)


async def test_a_password_is_used_and_not_shown(pair: PostgresqlPair) -> None:
    cluster = PostgresqlCluster(pair, PASSWORD_ROLE)
    hosts = pair.url().partition("@")[2]
    loop = asyncio.get_running_loop()
    journal = PostgresqlJournal(
        f"postgresql://{PASSWORD_ROLE}:{PASSWORD}@{hosts}", cluster.name, loop
    )
    assert (await call(journal.observe)).term == 0
    journal.close()
    error = await problem(f"postgresql://{PASSWORD_ROLE}:wrong-secret@{hosts}", cluster.name)
    assert isinstance(error, JournalUnavailable)
    assert "password authentication failed" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:se@cret@127.0.0.1/db",
        "postgresql://user:se/cret@127.0.0.1/db",
        "postgresql://user:12/secret@127.0.0.1/db",
        "postgresql://user:secret%zz@127.0.0.1/db",
        "amqp://user:secret@127.0.0.1/db",
        "host=127.0.0.1 password=secret port=x",
        "secret",
    ],
)
async def test_a_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(ReplicationError, match="is not one of PostgreSQL") as found:
        PostgresqlJournal(url, "one", asyncio.get_running_loop())
    assert "cret" not in str(found.value)


@pytest.mark.parametrize(
    ("host", "reason"),
    [("127.0.0.1", "Connection refused"), ("no-such-host.invalid", "is not known")],
)
async def test_a_database_that_is_not_there(host: str, reason: str) -> None:
    error = await problem(f"postgresql://user:secret@{host}:1/db")
    assert isinstance(error, JournalUnavailable)
    assert reason in str(error) and "secret" not in str(error)


async def test_a_standby_of_postgresql_is_no_database(
    database: PostgresqlCluster, pair: PostgresqlPair
) -> None:
    error = await problem(pair.standby.url(), database.name)
    assert "read-only" in str(error)
