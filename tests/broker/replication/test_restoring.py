"""A single broker's store becomes a cluster, and a moment of a cluster a single broker's store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrymq_broker.replication.bootstrap import begin_with_store
from ferrymq_broker.replication.errors import JournalUnavailable, ReplicationError
from ferrymq_broker.replication.restoring import RestoredStore, RestorePoint, restore_store
from ferrymq_broker.replication.shared_journal import Position
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError
from tests.broker.replication.real_members import SIZES, Place, stored


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    # No test here cuts the power.
    monkeypatch.setenv("FERRYMQ_UNSAFE_NO_SYNC", "1")
    made = Place(tmp_path, False)
    yield made
    for executor in made.executors:
        executor.close()


async def snapshot(place: Place, name: str = "standby") -> None:
    """A snapshot of everything that was appended."""
    follower = place.follower(name)
    follower.start()
    await place.caught_up(follower)
    await place.policy(name).make(follower)
    follower.close()


async def restored(place: Place, until: RestorePoint) -> RestoredStore:
    return await restore_store(
        place.path / "restored",
        until,
        place.snapshots(),
        place.executor(),
        lambda what, done, total: None,
    )


def numbers(path: Path) -> list[int]:
    """The entries of a single broker's store, which has nothing else."""
    found = stored(path, "")
    assert {table for table, _, _ in found} <= {5}
    return [number for _, _, number in found]


# -- restoring ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 19, 20, 21, 49, 50])
async def test_each_batch_can_be_the_last(place: Place, number: int) -> None:
    place.append(20)
    await snapshot(place)
    place.append(30)
    found = await restored(place, RestorePoint(number))
    assert found.position == Position(number, 1)
    assert numbers(place.path / "restored") == list(range(1, number + 1))
    # A broker goes on with the next number.
    changes = Changes()
    DurableStore.open(place.path / "restored", changes, SIZES).close()
    assert changes.number == number + 1


async def test_the_last_batch_before_a_time(place: Place) -> None:
    place.append(50)
    batches = place.database.batches
    for number, batch in batches.items():
        batches[number] = batch._replace(committed=1000.0 + number)
    found = await restored(place, RestorePoint(time=1030.5))
    assert (found.position.number, found.committed) == (30, 1030.0)
    assert len(numbers(place.path / "restored")) == 30


async def test_a_snapshot_that_was_made_later_is_not_used(place: Place) -> None:
    place.append(10)
    await snapshot(place)
    place.append(10)
    await snapshot(place)
    first, second = reversed(place.database.complete())
    for number, batch in place.database.batches.items():
        place.database.batches[number] = batch._replace(committed=float(number))
    place.database.snapshots[first.id].info = first._replace(created=12.0)
    place.database.snapshots[second.id].info = second._replace(created=22.0)
    found = await restored(place, RestorePoint(time=15.0))
    assert found.position.number == 15


async def test_the_newest(place: Place) -> None:
    place.append(10)
    await snapshot(place)
    found = await restored(place, RestorePoint())
    assert (found.position.number, found.committed) == (10, None)
    assert numbers(place.path / "restored") == list(range(1, 11))


async def test_nothing_older_than_the_oldest_snapshot(place: Place) -> None:
    place.append(20)
    await snapshot(place)
    place.append(5)
    place.database.trim(21)
    with pytest.raises(ReplicationError, match="the batches up to 20: nothing older"):
        await restored(place, RestorePoint(19))
    with pytest.raises(ReplicationError, match="no batch 26: the journal ends with 25"):
        await restored(place, RestorePoint(26))
    assert not (place.path / "restored").exists()


async def test_only_into_an_empty_directory(place: Place) -> None:
    place.append(5)
    target = place.path / "restored"
    target.mkdir()
    (target / "notes").touch()
    with pytest.raises(StoreError, match="not empty"):
        await restored(place, RestorePoint())
    assert [file.name for file in target.iterdir()] == ["notes"]


async def test_a_failure_leaves_an_empty_directory(place: Place) -> None:
    place.append(20)
    await snapshot(place)
    place.append(5)
    good = place.database.batches[23]
    place.database.batches[23] = good._replace(data=good.data[:-1])
    target = place.path / "restored"
    with pytest.raises(ReplicationError, match="batch 23"):
        await restored(place, RestorePoint())
    assert list(target.iterdir()) == []


async def test_a_restoring_that_was_killed_is_no_brokers_store(place: Place) -> None:
    place.append(20)
    files = place.files("restored")
    # What is there before the end of `restore_store`: the store of a member.
    store = files.open()
    store.close()
    with pytest.raises(StoreError, match="part of the cluster"):
        stored(place.path / "restored", "")


# -- a cluster that begins with a store --------------------------------------------------------


def fill(path: Path, count: int) -> None:
    """A single broker's store whose records have some batches."""
    changes = Changes()
    store = DurableStore.open(path, changes, SIZES)
    for number in range(1, count + 1):
        store.records.begin()
        store.records.commit(number)
    store.close()


async def test_a_store_is_the_first_snapshot(place: Place) -> None:
    fill(place.path / "single", 41)
    position = await begin_with_store(place.path / "single", place.snapshots(), place.executor())
    assert position == Position(41, 0)
    place.append(3)
    assert min(place.database.batches) == 42
    follower = place.follower("member")
    follower.start()
    await place.caught_up(follower)
    assert follower.position == Position(44, 1)
    follower.close()
    assert [key[2] for key in stored(place.path / "member") if key[0] == 5] == [42, 43, 44]
    # The original is as it was.
    assert stored(place.path / "single", "") == {}
    found = await restored(place, RestorePoint(43))
    assert found.position == Position(43, 1)


async def test_only_a_new_cluster_begins_with_a_store(place: Place) -> None:
    fill(place.path / "single", 3)
    place.append(1)
    with pytest.raises(ReplicationError, match="data already"):
        await begin_with_store(place.path / "single", place.snapshots(), place.executor())
    assert place.database.snapshots == {}


async def test_an_empty_or_foreign_store(place: Place) -> None:
    fill(place.path / "single", 0)
    snapshots, executor = place.snapshots(), place.executor()
    with pytest.raises(ReplicationError, match="is empty"):
        await begin_with_store(place.path / "single", snapshots, executor)
    place.files("member").open().close()
    with pytest.raises(StoreError, match="part of the cluster"):
        await begin_with_store(place.path / "member", snapshots, executor)


async def test_the_database_goes_away(place: Place) -> None:
    fill(place.path / "single", 3)
    snapshots = place.snapshots()
    snapshots.journal.reachable = False  # type: ignore[attr-defined]
    with pytest.raises(JournalUnavailable):
        await begin_with_store(place.path / "single", snapshots, place.executor())
