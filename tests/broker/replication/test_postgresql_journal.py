"""What can happen to a journal on PostgreSQL: waits, canceled waits, terms that change meanwhile,
servers that go away, damage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from ferrymq_broker.replication.errors import JournalUnavailable, LeaseLost, ReplicationError
from ferrymq_broker.replication.postgresql import batch_appends
from ferrymq_broker.replication.shared_journal import Position
from tests.broker.replication.journals import PostgresqlCluster, call, outcome
from tests.support.postgresql import PostgresqlPair, PostgresqlServer

# It is interpreted on both builds.
pytestmark = pytest.mark.once


@pytest.fixture
def standby(pair: PostgresqlPair) -> Iterator[PostgresqlServer]:
    """The standby of PostgreSQL, which a test pauses; it is resumed in the end."""
    yield pair.standby
    pair.standby.resume()


@pytest.fixture
def whole(pair: PostgresqlPair) -> Iterator[None]:
    """After the test, both servers run, whatever it has done to them."""
    yield
    if not pair.primary.running:
        pair.primary.start()
    if pair.primary.execute("SHOW synchronous_standby_names") == [("",)]:
        # It was promoted.
        pair.rejoin()
    elif not pair.standby.running:
        pair.standby.start()
    pair.wait_until_synchronous()


@pytest.fixture
def hidden(database: PostgresqlCluster, pair: PostgresqlPair) -> Iterator[None]:
    """The role of the members has settings that would hide that a commit was not replicated."""
    for setting in ("client_min_messages = error", "synchronous_commit = off"):
        pair.primary.execute(f"ALTER ROLE {database.role} SET {setting}")
    yield
    pair.primary.execute(f"ALTER ROLE {database.role} RESET ALL")


async def taken_by(cluster: PostgresqlCluster) -> None:
    """Let the member "a" have the lease, with term 1."""
    assert (await call(cluster.join().acquire, "a", "", 60.0)).term == 1


# -- terms -----------------------------------------------------------------------------------


async def test_an_append_that_was_sent_before_the_new_term(database: PostgresqlCluster) -> None:
    """The new term is taken first, and committed only after the append has begun to wait for it."""
    await taken_by(database)
    journal = database.join()
    await call(journal.observe)
    with psycopg.connect(database.pair.url()) as other:
        other.execute(
            "UPDATE ferrymq.lease SET term = term + 1 WHERE cluster = %s", [database.name]
        )
        append = outcome(journal.append, 1, 1, 1, [b"late"])
        await database.waiting("Lock")
        other.commit()
    assert isinstance(await append, LeaseLost)
    assert await call(journal.read, 0, 1000) == []


async def test_a_new_term_waits_for_the_append_under_way(
    database: PostgresqlCluster, standby: PostgresqlServer
) -> None:
    await taken_by(database)
    first, second = database.join(), database.join()
    standby.pause()
    append = outcome(first.append, 1, 1, 1, [b"x"])
    await database.waiting("SyncRep")
    fence = outcome(second.fence)
    await database.waiting("Lock")
    standby.resume()
    assert await append is None
    assert (await fence).term == 2
    with pytest.raises(LeaseLost):
        await call(first.append, 1, 2, 1, [b"late"])


async def test_a_renewal_does_not_wait_for_an_append(database: PostgresqlCluster) -> None:
    await taken_by(database)
    journal = database.join()
    with psycopg.connect(database.pair.url()) as other:
        other.execute("SELECT FROM ferrymq.lease WHERE cluster = %s FOR KEY SHARE", [database.name])
        assert (await call(journal.renew, 1, 60.0)).term == 1
    # Nor the other way round.
    with psycopg.connect(database.pair.url()) as other:
        other.execute("UPDATE ferrymq.lease SET ends = ends WHERE cluster = %s", [database.name])
        await call(journal.append, 1, 1, 1, [b"x"])


# -- the standby of PostgreSQL ----------------------------------------------------------------


@pytest.mark.usefixtures("whole")
async def test_an_append_waits_for_the_standby(
    database: PostgresqlCluster, pair: PostgresqlPair
) -> None:
    await taken_by(database)
    journal = database.join()
    pair.standby.stop()
    append = outcome(journal.append, 1, 1, 1, [b"x"])
    await database.waiting("SyncRep")
    assert not append.done()
    # Others do not see the batch either.
    assert await call(database.join().read, 0, 1000) == []
    pair.standby.start()
    assert await append is None


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_a_canceled_wait_is_no_commit(
    database: PostgresqlCluster, pair: PostgresqlPair, standby: PostgresqlServer, how: str
) -> None:
    """PostgreSQL says that the commit succeeded, with a warning."""
    await taken_by(database)
    journal = database.join()
    standby.pause()
    append = outcome(journal.append, 1, 1, 1, [b"x"])
    pair.primary.execute(f"SELECT {how}({await database.waiting('SyncRep')})")
    assert isinstance(await append, JournalUnavailable)
    # The batch is there, and the confirmation waits for the standby too.
    confirmation = outcome(journal.confirm, 1, 1)
    await database.waiting("SyncRep")
    assert not confirmation.done()
    standby.resume()
    assert await confirmation is True


async def test_a_canceled_wait_is_no_lease(
    database: PostgresqlCluster, pair: PostgresqlPair, standby: PostgresqlServer
) -> None:
    journal = database.join()
    standby.pause()
    acquire = outcome(journal.acquire, "a", "", 60.0)
    pair.primary.execute(f"SELECT pg_cancel_backend({await database.waiting('SyncRep')})")
    assert isinstance(await acquire, JournalUnavailable)


async def test_an_append_that_is_still_under_way_is_not_doubled(
    database: PostgresqlCluster, standby: PostgresqlServer
) -> None:
    """The first attempt counts as unanswered, and is committed after the second has begun."""
    await taken_by(database)
    first, second = database.join_with(0.2), database.join()
    await call(first.figures)
    await call(second.figures)
    standby.pause()
    assert isinstance(await outcome(first.append, 1, 1, 1, [b"x"]), JournalUnavailable)
    repeated = outcome(second.append, 1, 1, 1, [b"x"])
    await database.waiting("Lock")
    standby.resume()
    assert isinstance(await repeated, JournalUnavailable)
    assert await call(second.confirm, 1, 1) is True
    assert len(await call(second.read, 0, 1000)) == 1


async def test_without_synchronous_commits_nothing_waits(
    database: PostgresqlCluster, standby: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above would notice: this is what FERRYMQ_UNSAFE_NO_SYNC is for."""
    monkeypatch.setenv("FERRYMQ_UNSAFE_NO_SYNC", "1")
    standby.pause()
    journal = database.join()
    assert (await call(journal.acquire, "a", "", 60.0)).term == 1
    await call(journal.append, 1, 1, 1, [b"x"])
    assert (await call(journal.figures)).synchronous is False


# -- servers that go away ---------------------------------------------------------------------


@pytest.mark.usefixtures("whole")
async def test_the_connection_is_made_again(
    database: PostgresqlCluster, pair: PostgresqlPair
) -> None:
    told = asyncio.Event()
    journal = database.join()
    journal.watch(told.set)
    await call(journal.figures)
    await told.wait()
    pair.primary.kill()
    for method in (journal.observe, journal.figures):
        while not isinstance(error := await outcome(method), JournalUnavailable):
            pass
        assert "cannot be reached" in str(error) or "broke" in str(error)
    told.clear()
    pair.primary.start()
    # What was notified meanwhile is lost, so who watches looks again.
    await told.wait()
    while isinstance(await outcome(journal.figures), JournalUnavailable):
        pass


@pytest.mark.usefixtures("whole")
async def test_a_member_finds_the_new_primary(
    database: PostgresqlCluster, pair: PostgresqlPair
) -> None:
    await taken_by(database)
    journal = database.join()
    await call(journal.append, 1, 1, 1, [b"x"])
    pair.primary.kill()
    pair.promote()
    while isinstance(await outcome(journal.append, 1, 2, 1, [b"y"]), JournalUnavailable):
        pass
    assert [one.data for one in await call(journal.read, 0, 1000)] == [b"x", b"y"]
    assert (await call(journal.figures)).synchronous is False


async def test_a_primary_that_confirms_nothing_is_left(
    database: PostgresqlCluster, pair: PostgresqlPair
) -> None:
    """Its standby was promoted, and it does not know that."""
    await taken_by(database)
    journal = database.join_with(0.5)
    await call(journal.figures)
    pair.promote()
    assert isinstance(await outcome(journal.append, 1, 1, 1, [b"x"]), JournalUnavailable)
    while isinstance(await outcome(journal.append, 1, 1, 1, [b"x"]), JournalUnavailable):
        pass
    assert pair.primary.execute(f"SELECT 1 FROM ferrymq.batch WHERE cluster = '{database.name}'")
    pair.rejoin()


# -- large batches, damage --------------------------------------------------------------------


async def test_a_large_batch_is_written_in_parts(
    database: PostgresqlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_appends, "PART_BYTES", 1000)
    await taken_by(database)
    journal = database.join()
    await call(journal.append, 1, 1, 1, [b"small"])
    large = bytes(range(256)) * 10
    with pytest.raises(LeaseLost):
        await call(journal.append, 2, 2, 1, [large])
    with pytest.raises(ReplicationError):
        await call(journal.append, 1, 3, 1, [large])
    await call(journal.append, 1, 2, 7, [large[:1500], large[1500:]])
    await call(journal.append, 1, 3, 1, [large])
    found = await call(journal.read, 0, 10_000)
    assert [one[:4] for one in found] == [(1, 1, 1, b"small"), (2, 1, 7, large), (3, 1, 1, large)]
    assert [one.number for one in await call(journal.read, 1, 1)] == [2]
    assert (await call(journal.figures)).batch_bytes == 5 + 2 * 2560
    id = await call(journal.begin_snapshot, Position(2, 1))
    await call(journal.finish_snapshot, id, 0, 0)
    assert await call(journal.trim, 3) == 2
    assert (await call(journal.figures)).batch_bytes == 2560


@pytest.mark.parametrize(
    "damage", ["data = 'other'", "term = term + 1", "changes = 9", "part = 1, parts = 2"]
)
async def test_a_damaged_batch_is_noticed(
    database: PostgresqlCluster, pair: PostgresqlPair, damage: str
) -> None:
    await taken_by(database)
    journal = database.join()
    await call(journal.append, 1, 1, 1, [b"x"])
    pair.primary.execute(f"UPDATE ferrymq.batch SET {damage} WHERE cluster = '{database.name}'")
    with pytest.raises(ReplicationError, match="batch 1 in the database is damaged"):
        await call(journal.read, 0, 1000)


async def test_a_damaged_piece_is_noticed(
    database: PostgresqlCluster, pair: PostgresqlPair
) -> None:
    journal = database.join()
    id = await call(journal.begin_snapshot, Position(1, 1))
    await call(journal.add_piece, id, 0, b"x")
    await call(journal.finish_snapshot, id, 1, 1)
    pair.primary.execute(f"UPDATE ferrymq.snapshot_piece SET data = 'y' WHERE snapshot = {id}")
    with pytest.raises(ReplicationError, match=f"piece 0 of snapshot {id} is damaged"):
        await call(journal.read_piece, id, 0)


async def test_a_lost_piece_is_noticed(database: PostgresqlCluster, pair: PostgresqlPair) -> None:
    journal = database.join()
    id = await call(journal.begin_snapshot, Position(1, 1))
    await call(journal.add_piece, id, 0, b"x")
    await call(journal.finish_snapshot, id, 1, 1)
    pair.primary.execute(f"DELETE FROM ferrymq.snapshot_piece WHERE snapshot = {id}")
    with pytest.raises(ReplicationError, match="has no piece 0"):
        await call(journal.read_piece, id, 0)
