"""What every implementation of the shared journal does: see `SharedJournal`."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from ferrymq_broker.replication.errors import JournalUnavailable, LeaseLost, ReplicationError
from ferrymq_broker.replication.shared_journal import Member, Position, SharedJournal
from tests.broker.replication.journals import JournalCluster, call, outcome

# It is interpreted on both builds.
pytestmark = pytest.mark.once


async def leader(cluster: JournalCluster, name: str = "a") -> tuple[SharedJournal, int]:
    """Return the journal of a new leader, and its term."""
    journal = cluster.join()
    lease = await call(journal.acquire, name, f"amqp://{name}", 60.0)
    assert lease.holder == name
    return journal, lease.term


async def fill(cluster: JournalCluster, batches: int) -> SharedJournal:
    """Return the journal of a leader that has appended batches of 10 bytes in term 1."""
    journal, term = await leader(cluster)
    for number in range(1, batches + 1):
        await call(journal.append, term, number, 1, [b"%010d" % number])
    return journal


async def snapshot(journal: SharedJournal, position: Position, *pieces: bytes) -> int:
    """Make a complete snapshot and return its id."""
    id: int = await call(journal.begin_snapshot, position)
    for index, piece in enumerate(pieces):
        await call(journal.add_piece, id, index, piece)
    await call(journal.finish_snapshot, id, len(pieces), sum(map(len, pieces)))
    return id


# -- the lease -------------------------------------------------------------------------------


async def test_a_new_cluster_has_no_leader(cluster: JournalCluster) -> None:
    lease = await call(cluster.join().observe)
    assert (lease.term, lease.holder, lease.address, lease.successor) == (0, "", "", "")
    assert lease.remaining <= 0


async def test_one_of_two_that_acquire_at_once_is_the_leader(cluster: JournalCluster) -> None:
    members = {name: cluster.join() for name in "ab"}
    # Connected, so that the calls leave together.
    await asyncio.gather(*(call(one.observe) for one in members.values()))
    for term in range(1, 6):
        leases = await asyncio.gather(
            *(call(one.acquire, name, name, 60.0) for name, one in members.items())
        )
        assert {(lease.term, lease.holder) for lease in leases} == {(term, leases[0].holder)}
        assert [lease.holder for lease in leases if lease.taken] == [leases[0].holder]
        await call(members["a"].release, term)


async def test_a_lease_is_taken_only_after_its_end(cluster: JournalCluster) -> None:
    first, second = cluster.join(), cluster.join()
    taken = await call(first.acquire, "a", "amqp://a", 60.0)
    assert (taken.term, taken.holder, taken.address) == (1, "a", "amqp://a")
    assert 50 < taken.remaining <= 60
    refused = await call(second.acquire, "b", "amqp://b", 60.0)
    assert (refused.term, refused.holder) == (1, "a")
    await call(first.renew, 1, 0.0)
    assert (await call(second.acquire, "b", "amqp://b", 60.0))[:3] == (2, "b", "amqp://b")


async def test_a_lease_is_renewed_also_after_its_end(cluster: JournalCluster) -> None:
    journal = cluster.join()
    await call(journal.acquire, "a", "amqp://a", 0.0)
    lease = await call(journal.renew, 1, 60.0)
    assert (lease.term, lease.holder) == (1, "a")
    assert 50 < lease.remaining <= 60


async def test_a_lease_of_another_term_is_not_renewed(cluster: JournalCluster) -> None:
    journal = cluster.join()
    await call(journal.acquire, "a", "", 0.0)
    await call(journal.acquire, "b", "", 60.0)
    with pytest.raises(LeaseLost):
        await call(journal.renew, 1, 60.0)


async def test_a_released_lease_is_free(cluster: JournalCluster) -> None:
    journal, term = await leader(cluster)
    await call(journal.release, term - 1)
    assert (await call(journal.observe)).holder == "a"
    await call(journal.release, term)
    assert (await call(journal.observe))[:3] == (1, "", "")
    assert (await call(journal.acquire, "b", "", 60.0)).holder == "b"


async def test_only_the_successor_takes_the_lease(cluster: JournalCluster) -> None:
    journal, term = await leader(cluster)
    assert (await call(journal.name_successor, "c")).successor == "c"
    assert (await call(journal.renew, term, 60.0)).successor == "c"
    await call(journal.release, term)
    assert (await call(journal.acquire, "b", "", 60.0)).holder == ""
    assert (await call(journal.acquire, "c", "", 60.0)) == (
        2,
        "c",
        "",
        pytest.approx(60, 1),
        "",
        True,
    )


async def test_a_successor_that_does_not_come_is_forgotten(cluster: JournalCluster) -> None:
    journal, term = await leader(cluster)
    await call(journal.name_successor, "c")
    # The lease ended a minute ago.
    await call(journal.renew, term, -60.0)
    assert (await call(journal.acquire, "b", "", 60.0)).holder == "b"


async def test_a_fence_leaves_no_leader(cluster: JournalCluster) -> None:
    journal, term = await leader(cluster)
    assert (await call(cluster.join().fence))[:3] == (term + 1, "", "")
    with pytest.raises(LeaseLost):
        await call(journal.renew, term, 60.0)
    with pytest.raises(LeaseLost):
        await call(journal.append, term, 1, 1, [b"x"])


async def test_who_watches_is_told_of_changes(cluster: JournalCluster) -> None:
    told = asyncio.Event()
    watching, other = cluster.join(), cluster.join()
    watching.watch(told.set)
    await call(watching.observe)
    await call(other.observe)
    told.clear()
    for change in (
        (other.acquire, "a", "", 60.0),
        (other.name_successor, "b"),
        (other.release, 1),
        (other.fence,),
    ):
        await call(*change)
        await told.wait()
        told.clear()


# -- batches ---------------------------------------------------------------------------------


async def test_batches_are_read_in_order(cluster: JournalCluster) -> None:
    journal, term = await leader(cluster)
    assert await call(journal.read, 0, 1000) == []
    await call(journal.append, term, 1, 3, [b"one", b"", b"more"])
    await call(journal.append, term, 2, 1, [b"\x00\xff" * 50_000])
    await call(journal.append, term, 3, 1, [b""])
    found = await call(cluster.join().read, 0, 1_000_000)
    assert [one[:4] for one in found] == [
        (1, 1, 3, b"onemore"),
        (2, 1, 1, b"\x00\xff" * 50_000),
        (3, 1, 1, b""),
    ]
    assert found[0].committed <= found[1].committed <= found[2].committed
    assert [one.number for one in await call(journal.read, 2, 1000)] == [3]
    assert await call(journal.read, 3, 1000) == []


async def test_a_read_is_limited_but_makes_progress(cluster: JournalCluster) -> None:
    journal = await fill(cluster, 5)

    async def numbers(after: int, most: int) -> list[int]:
        return [one.number for one in await call(journal.read, after, most)]

    assert await numbers(0, 30) == [1, 2, 3]
    assert await numbers(1, 29) == [2, 3]
    assert await numbers(2, 1) == [3]


async def test_an_append_of_an_older_term_is_refused(cluster: JournalCluster) -> None:
    first, _ = await leader(cluster)
    await call(first.append, 1, 1, 1, [b"x"])
    await call(first.release, 1)
    second, term = await leader(cluster, "b")
    with pytest.raises(LeaseLost):
        await call(first.append, 1, 2, 1, [b"late"])
    await call(second.append, term, 2, 1, [b"next"])
    assert [one[:4] for one in await call(first.read, 1, 1000)] == [(2, 2, 1, b"next")]


async def test_an_append_of_a_term_to_come_is_refused(cluster: JournalCluster) -> None:
    journal, term = await leader(cluster)
    with pytest.raises(LeaseLost):
        await call(journal.append, term + 1, 1, 1, [b"x"])


@pytest.mark.parametrize("number", [2, 4])
async def test_a_batch_follows_the_last(cluster: JournalCluster, number: int) -> None:
    journal = await fill(cluster, 2)
    expected = JournalUnavailable if number == 2 else ReplicationError
    with pytest.raises(expected):
        await call(journal.append, 1, number, 1, [b"x"])
    await call(journal.append, 1, 3, 1, [b"x"])


async def test_an_append_is_confirmed_afterwards(cluster: JournalCluster) -> None:
    journal = await fill(cluster, 1)
    assert await call(journal.confirm, 1, 1) is True
    assert await call(journal.confirm, 1, 2) is False
    await call(journal.append, 1, 2, 1, [b"x"])
    assert await call(journal.confirm, 1, 2) is True
    await call(journal.fence)
    with pytest.raises(LeaseLost):
        await call(journal.confirm, 1, 2)


async def test_a_batch_of_another_term_confirms_nothing(cluster: JournalCluster) -> None:
    journal = await fill(cluster, 1)
    await call(journal.release, 1)
    _, term = await leader(cluster, "b")
    assert await call(journal.confirm, term, 1) is False


async def test_calls_are_carried_out_in_order(cluster: JournalCluster) -> None:
    journal, term = await leader(cluster)
    calls = [outcome(journal.append, term, number, 1, [b"x"]) for number in range(1, 6)]
    assert await asyncio.gather(*calls) == [None] * 5


async def test_a_number_of_another_term_is_not_appended(cluster: JournalCluster) -> None:
    """No further attempt mends it, so the error is not that of an unknown result."""
    journal = await fill(cluster, 1)
    await call(journal.release, 1)
    _, term = await leader(cluster, "b")
    assert type(await outcome(journal.append, term, 1, 1, [b"x"])) is ReplicationError


async def test_a_batch_is_known_by_number_and_term(cluster: JournalCluster) -> None:
    journal = cluster.join()
    assert await call(journal.has, Position(0, 0)) is True
    assert await call(journal.has, Position(1, 1)) is False
    journal = await fill(cluster, 1)
    assert await call(journal.has, Position(0, 0)) is True
    assert await call(journal.has, Position(1, 1)) is True
    assert await call(journal.has, Position(1, 2)) is False


# -- trimming and snapshots ------------------------------------------------------------------


@pytest.mark.parametrize("position", [Position(3, 1), Position(2, 2)])
async def test_a_snapshot_of_a_lost_batch_is_refused(
    cluster: JournalCluster, position: Position
) -> None:
    """The records have a batch that the database has lost, perhaps with another in its place."""
    journal = await fill(cluster, 2)
    with pytest.raises(ReplicationError):
        await snapshot(journal, position, b"lost")
    assert await call(journal.snapshots) == []
    assert await call(journal.has, position) is False
    await snapshot(journal, Position(2, 1), b"kept")


async def test_without_a_snapshot_nothing_is_trimmed(cluster: JournalCluster) -> None:
    journal = await fill(cluster, 3)
    await call(journal.begin_snapshot, Position(2, 1))
    assert await call(journal.trim, 100) == 0


async def test_what_the_oldest_snapshot_needs_stays(cluster: JournalCluster) -> None:
    journal = await fill(cluster, 6)
    older = await snapshot(journal, Position(2, 1), b"records")
    await snapshot(journal, Position(4, 1), b"records")
    assert await call(journal.trim, 2) == 1
    assert await call(journal.trim, 100) == 1
    assert [one.number for one in await call(journal.read, 2, 1000)] == [3, 4, 5, 6]
    with pytest.raises(ReplicationError, match="trimmed"):
        await call(journal.read, 1, 1000)
    # A member whose records are those of the snapshot goes on from there.
    assert await call(journal.has, Position(2, 1)) is True
    assert await call(journal.has, Position(0, 0)) is False
    await call(journal.drop_snapshot, older)
    assert await call(journal.trim, 100) == 2
    assert await call(journal.has, Position(2, 1)) is False


async def test_the_last_batch_stays(cluster: JournalCluster) -> None:
    journal = await fill(cluster, 3)
    await snapshot(journal, Position(3, 1), b"records")
    assert await call(journal.trim, 100) == 2
    assert await call(journal.read, 3, 1000) == []
    await call(journal.append, 1, 4, 1, [b"x"])
    assert [one.number for one in await call(journal.read, 2, 1000)] == [3, 4]


async def test_many_batches_are_trimmed(cluster: JournalCluster) -> None:
    journal = await fill(cluster, 250)
    await snapshot(journal, Position(249, 1), b"records")
    assert await call(journal.trim, 245) == 244
    assert (await call(journal.figures)).first == (245, 1)


async def test_a_cluster_may_begin_with_a_snapshot(cluster: JournalCluster) -> None:
    journal, term = await leader(cluster)
    await snapshot(journal, Position(41, 0), b"records")
    assert await call(journal.has, Position(0, 0)) is False
    assert await call(journal.has, Position(41, 0)) is True
    with pytest.raises(ReplicationError):
        await call(journal.append, term, 1, 1, [b"x"])
    await call(journal.append, term, 42, 1, [b"x"])
    assert await call(journal.has, Position(0, 0)) is False


async def test_a_snapshot_counts_when_it_is_complete(cluster: JournalCluster) -> None:
    journal, _ = await leader(cluster)
    id = await call(journal.begin_snapshot, Position(7, 3))
    await call(journal.add_piece, id, 1, b"second")
    assert await call(journal.snapshots) == []
    with pytest.raises(ReplicationError):
        await call(journal.finish_snapshot, id, 1, 6)
    await call(journal.add_piece, id, 0, b"wrong")
    # An attempt whose result was unknown is made again.
    await call(journal.add_piece, id, 0, b"first")
    with pytest.raises(ReplicationError):
        await call(journal.finish_snapshot, id, 2, 10)
    assert await call(journal.snapshots) == []
    await call(journal.finish_snapshot, id, 2, 11)
    (found,) = await call(cluster.join().snapshots)
    assert found[:4] == (id, (7, 3), 2, 11)
    assert await call(journal.read_piece, id, 0) == b"first"
    assert await call(journal.read_piece, id, 1) == b"second"
    with pytest.raises(ReplicationError):
        await call(journal.read_piece, id, 2)
    with pytest.raises(ReplicationError):
        await call(journal.add_piece, id, 2, b"third")


async def test_the_newest_snapshot_is_first(cluster: JournalCluster) -> None:
    journal = await fill(cluster, 3)
    ids = [await snapshot(journal, Position(number, 1), b"x") for number in (1, 2, 3)]
    assert [one.id for one in await call(journal.snapshots)] == ids[::-1]
    await call(journal.drop_snapshot, ids[1])
    assert [one.id for one in await call(journal.snapshots)] == [ids[2], ids[0]]
    with pytest.raises(ReplicationError):
        await call(journal.read_piece, ids[1], 0)


async def test_a_large_snapshot_is_dropped(cluster: JournalCluster) -> None:
    journal, _ = await leader(cluster)
    id = await snapshot(journal, Position(1, 1), *(b"%d" % index for index in range(70)))
    await call(journal.drop_snapshot, id)
    assert await call(journal.snapshots) == []
    assert (await call(journal.figures)).snapshot_bytes == 0


# -- figures, members, the end ---------------------------------------------------------------


async def test_figures(cluster: JournalCluster) -> None:
    journal = cluster.join()
    empty = await call(journal.figures)
    assert str(uuid.UUID(empty.cluster)) == empty.cluster
    assert empty[1:] == ((0, 0), (0, 0), 0, 0, True)
    await fill(cluster, 5)
    await snapshot(journal, Position(2, 1), b"rec", b"ords")
    await call(journal.trim, 3)
    assert await call(journal.figures) == (empty.cluster, (3, 1), (5, 1), 30, 7, True)


async def test_members_announce_themselves(cluster: JournalCluster) -> None:
    journal = cluster.join()
    await call(journal.announce, Member("b", "standby", "amqp://b", 4, "1.0", 99.0))
    await call(journal.announce, Member("a", "leader", "amqp://a", 7, "1.0", 99.0))
    await call(journal.announce, Member("b", "standby", "amqp://b", 6, "1.1", 99.0))
    first, second = await call(cluster.join().members)
    assert first[:5] == ("a", "leader", "amqp://a", 7, "1.0")
    assert second[:5] == ("b", "standby", "amqp://b", 6, "1.1")
    assert 0 <= first.seen < 60


async def test_nothing_is_called_after_the_end(cluster: JournalCluster) -> None:
    closed, open = cluster.join(), cluster.join()
    await call(closed.observe)
    pending = [outcome(closed.observe), outcome(closed.figures), outcome(closed.figures)]
    closed.close()
    await call(open.observe)
    await call(open.figures)
    assert not any(one.done() for one in pending)
