"""A standby's records follow the journal, whatever happens to the journal or to the member."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.shared_journal import Position
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.term_record import read_term
from tests.broker.replication.kit import Cluster, ClusterMember
from tests.support.memory_records import MemoryRecords


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    found.elect()
    yield found


def upto(number: int) -> list[int]:
    return list(range(1, number + 1))


async def snapshot(cluster: Cluster, member: ClusterMember) -> None:
    """A snapshot of what a member has."""
    database = cluster.database
    data = member.files.copy(MemoryRecords(member.machine.records), lambda: False)
    id = database.begin_snapshot(member.follower.position)
    database.add_piece(id, 0, data.read(0, data.size))
    database.finish_snapshot(id, 1, data.size)


def test_it_applies_what_is_there_and_what_comes(cluster: Cluster) -> None:
    async def test() -> None:
        member = await cluster.following(20)
        assert member.entries() == upto(20)
        cluster.append(5)
        await member.applied(25)
        assert member.entries() == upto(25)
        assert member.follower.position == Position(25, 1)
        assert member.follower.behind == 0
        assert member.follower.bytes == sum(
            len(one.data) for one in cluster.database.batches.values()
        )
        assert not member.failures

    cluster.run(test())


def test_much_is_applied_in_parts_while_more_is_read(cluster: Cluster) -> None:
    async def test() -> None:
        member = cluster.member()
        cluster.append(40, 600_000)
        commits = 0
        original = member.executor.commit

        def commit(call, done):  # type: ignore[no-untyped-def]
            nonlocal commits
            commits += 1
            original(call, done)

        member.executor.commit = commit  # type: ignore[method-assign]
        member.follower.start()
        await member.applied(40)
        # 24 MB, at most 4 MiB and a batch at a time; and the opening.
        assert 6 <= commits <= 8
        assert member.entries() == upto(40)

    cluster.run(test())


def test_a_takeover_needs_no_recovery(cluster: Cluster) -> None:
    async def test() -> None:
        member = cluster.member()
        cluster.append(30)
        member.follower.start()
        await member.caught_up()
        member.follower.close()
        assert "clean" in member.machine.disk.names
        store = member.machine.open()
        assert (store.applied, read_term(store.records)) == (30, 1)
        assert store.changes.number == 31

    cluster.run(test())


def test_a_takeover_waits_for_the_last_batch(cluster: Cluster) -> None:
    async def test() -> None:
        member = await cluster.following(3)
        member.journal.reachable = False
        cluster.append(10)
        catching = asyncio.ensure_future(member.caught_up())
        await asyncio.sleep(5)
        assert not catching.done()
        assert member.follower.silence > 4
        assert member.follower.error
        member.journal.reachable = True
        await catching
        assert member.entries() == upto(13)
        assert member.follower.error == ""

    cluster.run(test())


@pytest.mark.parametrize("power", [False, True])
def test_a_killed_standby_goes_on(cluster: Cluster, power: bool) -> None:
    async def test() -> None:
        member = cluster.member()
        for _ in range(30):
            cluster.append(7, 2000)
            member.follower.start()
            await asyncio.sleep(0.03)
            member.kill()
            if power:
                member.machine.disk.lose_power()
            # The task of a killed process does not go on, because nothing answers it.
            found = member.entries()
            assert found == upto(len(found))
            member = cluster.member(member.machine)
        member.follower.start()
        await member.applied(210)
        assert member.entries() == upto(210)
        assert member.files.asides == []

    cluster.run(test())


def test_an_empty_member_begins_with_the_newest_snapshot(cluster: Cluster) -> None:
    async def test() -> None:
        first = await cluster.following(10)
        await snapshot(cluster, first)
        cluster.append(5)
        cluster.database.trim(11)
        second = cluster.member()
        second.follower.start()
        await second.applied(15)
        assert second.entries() == upto(15)
        assert second.files.asides == []

    cluster.run(test())


def test_a_member_that_was_away_too_long_begins_with_a_snapshot(cluster: Cluster) -> None:
    async def test() -> None:
        first, second = cluster.member(), cluster.member()
        cluster.append(5)
        for member in (first, second):
            member.follower.start()
            await member.applied(5)
        second.follower.close()
        cluster.append(10)
        await first.applied(15)
        await snapshot(cluster, first)
        cluster.append(1)
        cluster.database.trim(16)
        again = cluster.member(second.machine)
        again.follower.start()
        await again.applied(16)
        assert again.entries() == upto(16)
        assert [aside.applied for aside in again.files.asides] == [5]

    cluster.run(test())


def test_a_batch_that_the_database_lost(cluster: Cluster) -> None:
    """A standby has read a commit that was not replicated when the database failed over."""

    async def test() -> None:
        member = await cluster.following(8)
        await snapshot(cluster, member)
        cluster.append(2)
        await member.applied(10)
        cluster.forget(9)
        cluster.elect()
        # Another leader's batch 10, and 11, which follows the member's batch 10 by its number.
        cluster.append(2)
        await member.applied(11)
        assert len(member.files.asides) == 1
        stored = member.machine.records.stored
        value = next(stored[key] for key in stored if key[0] == 5 and key[-1] == 10)
        assert value[4:].startswith(b"2 ")
        assert member.entries() == upto(11)

    cluster.run(test())


def test_a_takeover_with_a_batch_that_the_database_lost(cluster: Cluster) -> None:
    async def test() -> None:
        member = await cluster.following(10)
        cluster.forget(9)
        # Without a snapshot, the member begins with batch 1.
        await member.caught_up()
        assert member.entries() == upto(9)
        assert len(member.files.asides) == 1

    cluster.run(test())


def test_the_same_batch_again_is_no_fork(cluster: Cluster) -> None:
    """The leader has appended a batch again that a standby has read before it was lost."""

    async def test() -> None:
        member = await cluster.following(10)
        cluster.forget(9)
        cluster.append(2)
        await member.applied(11)
        assert member.files.asides == []

    cluster.run(test())


def test_a_fork_without_a_snapshot_to_begin_with(cluster: Cluster) -> None:
    async def test() -> None:
        member = await cluster.following(10)
        database = cluster.database
        cluster.elect()
        for number in range(1, 6):
            del database.batches[number]
        database.batches[10] = database.batches[10]._replace(term=2)
        with pytest.raises(ReplicationError, match="make a snapshot on another member"):
            await member.caught_up()
        # What it has is not thrown away.
        assert member.entries() == upto(10)
        assert member.files.asides == []
        assert not member.failures

    cluster.run(test())


def test_nothing_is_applied_in_a_pause(cluster: Cluster) -> None:
    async def test() -> None:
        member = cluster.member()
        paused: asyncio.Future[DurableStore] = asyncio.get_running_loop().create_future()
        member.follower.start()
        cluster.append(10)
        await member.applied(10)
        member.follower.pause(paused.set_result)
        store = await paused
        cluster.append(10)
        await asyncio.sleep(10)
        assert store.applied == 10
        assert member.follower.behind == 10
        # Another pause begins and ends meanwhile.
        member.follower.pause(lambda store: member.follower.resume())
        await asyncio.sleep(10)
        assert store.applied == 10
        member.follower.resume()
        await member.applied(20)

    cluster.run(test())


def test_a_damaged_batch_is_not_applied(cluster: Cluster) -> None:
    async def test() -> None:
        member = cluster.member()
        cluster.append(10)
        good = cluster.database.batches[10]
        cluster.database.batches[10] = good._replace(data=good.data[:-1])
        member.follower.start()
        await asyncio.sleep(1)
        assert "batch 10" in member.follower.error
        assert member.entries() == []
        cluster.database.batches[10] = good
        await member.applied(10)
        assert member.follower.error == ""

    cluster.run(test())
