"""Snapshots of real records: in the journal or in a directory, made, loaded, damaged, dropped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ferrymq_broker.replication.errors import JournalUnavailable, ReplicationError
from ferrymq_broker.replication.shared_journal import Member, Position, SnapshotInfo
from ferrymq_broker.replication.snapshot_policy import (
    LeaderSource,
    SnapshotOptions,
    kept_of,
)
from ferrymq_broker.replication.snapshots import PIECE
from ferrymq_broker.replication.waiting import ask
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.records import Records
from tests.broker.replication.kit import CLUSTER, LeaderStore
from tests.broker.replication.real_members import SIZES, Place, stored
from tests.support.shared_journal import MemorySharedJournal


@pytest.fixture(params=[False, True], ids=["journal", "directory"])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    # No test here cuts the power.
    monkeypatch.setenv("FERRYMQ_UNSAFE_NO_SYNC", "1")
    made = Place(tmp_path, request.param)
    yield made
    for executor in made.executors:
        executor.close()


async def test_a_new_member_begins_with_a_standbys_snapshot(place: Place) -> None:
    place.append(700)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    made = await place.policy("first").make(first)
    assert made == Position(700, 1)
    [info] = place.database.complete()
    assert info.position == made
    if place.directory is None:
        assert info.pieces == -(-info.size // PIECE) > 1
    else:
        assert [file.stat().st_size > PIECE for file in place.directory.iterdir()] == [True]
    place.append(3)
    place.database.trim(701)
    second = place.follower("second")
    second.start()
    await place.caught_up(second)
    await place.caught_up(first)
    first.close()
    second.close()
    found = stored(place.path / "second")
    assert len(found) == 704
    assert found == stored(place.path / "first")
    assert not (place.path / "first" / "snapshot.new").exists()


async def test_a_leader_makes_one_while_it_writes(place: Place) -> None:
    store = DurableStore.open(place.path / "leader", Changes(), SIZES, cluster=CLUSTER)
    leader = LeaderStore(store)
    leader.appender.answer()
    for number in range(1, 80):
        leader.put(number, bytes(4000))
        leader.appender.answer()
        leader.executor.run()
    making = asyncio.ensure_future(place.policy("leader").make(LeaderSource(store)))
    while not making.done():
        leader.put(number := number + 1, bytes(4000))
        leader.appender.answer()
        leader.executor.run()
        await asyncio.sleep(0)
    position = await making
    store.close()
    # What was applied, not what was in the local journal.
    assert 0 < position.number <= 80
    await place.snapshots().load_newest(place.files("copy"), place.database.complete())
    assert [key[2] for key in stored(place.path / "copy") if key[0] == 5] == list(
        range(1, position.number)
    )


def test_a_store_goes_on_after_its_last_pause(tmp_path: Path) -> None:
    """A backup that ends must not change the records that a snapshot copies, nor the reverse."""
    store = DurableStore.open(tmp_path, Changes(), SIZES, cluster=CLUSTER)
    leader = LeaderStore(store)

    def write(numbers: range) -> None:
        for number in numbers:
            leader.put(number, bytes(4000))
            leader.appender.answer()
            leader.executor.run()

    write(range(80))
    began: list[str] = []
    store.pause(lambda: began.append("backup"))
    store.pause(lambda: began.append("snapshot"))
    leader.executor.run()
    assert began == ["backup", "snapshot"]
    applied = store.records.applied
    store.resume()
    write(range(80, 160))
    assert store.records.applied == applied
    store.resume()
    write(range(160, 240))
    assert store.records.applied > applied
    store.close()


async def test_a_damaged_snapshot_is_passed_over(place: Place) -> None:
    place.append(300)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    policy = place.policy("first")
    await policy.make(first)
    place.append(300)
    await place.caught_up(first)
    await policy.make(first)
    first.close()
    newest = place.database.complete()[0]
    if place.directory is None:
        del place.database.snapshots[newest.id].pieces[1]
    else:
        file = max(place.directory.iterdir())
        data = bytearray(file.read_bytes())
        data[5000] ^= 1
        file.write_bytes(data)
    second = place.follower("second")
    second.start()
    await place.caught_up(second)
    second.close()
    assert len(stored(place.path / "second")) == 601


async def test_no_snapshot_can_be_read(place: Place) -> None:
    place.append(10)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    await place.policy("first").make(first)
    first.close()
    [info] = place.database.complete()
    if place.directory is None:
        place.database.snapshots[info.id].pieces.clear()
    else:
        for file in place.directory.iterdir():
            file.unlink()
    with pytest.raises(ReplicationError):
        await place.snapshots().load_newest(place.files("second"), [info])


async def test_a_load_that_was_cut_off_begins_again(place: Place) -> None:
    place.append(300)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    await place.policy("first").make(first)
    files = place.files("second")
    store = files.open()
    store.close()
    files.begin_load()
    files.load(b"some bytes")
    # Another process.
    second = place.follower("second")
    second.start()
    await place.caught_up(second)
    second.close()
    first.close()
    assert stored(place.path / "second") == stored(place.path / "first")
    assert not (place.path / "second" / "loading").exists()


async def test_records_are_set_aside_whole(place: Place) -> None:
    place.append(20)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    del place.database.batches[20]
    await place.caught_up(first)
    first.close()
    [aside] = (place.path / "first").glob("set-aside-*")
    assert len(stored(place.path / "first")) == 20
    # It is a whole store, for whoever wants to look at it.
    assert len(stored(aside)) == 21


async def test_damaged_records_are_set_aside(place: Place) -> None:
    place.append(300)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    first.close()
    path = place.path / "first"
    (path / "clean").unlink()
    data = bytearray((path / "data.mdb").read_bytes())
    data[3 * 4096 : 20 * 4096] = bytes(17 * 4096)
    (path / "data.mdb").write_bytes(data)
    again = place.follower("first")
    again.start()
    await place.caught_up(again)
    again.close()
    assert len(stored(path)) == 301
    [aside] = path.glob("set-aside-*")
    assert (aside / "data.mdb").read_bytes() == data


async def test_a_directory_that_was_killed_while_it_set_records_aside(place: Place) -> None:
    files = place.files("first")
    store = files.open()
    leader = LeaderStore(store)
    leader.appender.answer()
    leader.executor.run()
    store.close()
    path = place.path / "first"
    (path / "loading").mkdir()
    (path / "format").unlink()
    again = files.open()
    assert again.applied == 0
    again.close()
    [aside] = path.glob("set-aside-*")
    assert (aside / "data.mdb").exists()


async def test_a_snapshot_that_fails_leaves_nothing(place: Place) -> None:
    place.append(300)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    policy = place.policy("first")
    journal = policy._snapshots.journal
    assert isinstance(journal, MemorySharedJournal)
    original = journal.finish_snapshot

    def fail(id: int, pieces: int, size: int, done: Callable[[Exception | None], None]) -> None:
        journal.finish_snapshot = original  # type: ignore[method-assign]
        done(JournalUnavailable("gone"))

    journal.finish_snapshot = fail  # type: ignore[method-assign]
    with pytest.raises(JournalUnavailable):
        await policy.make(first)
    await ask(journal.figures)
    assert place.database.snapshots == {}
    assert place.directory is None or list(place.directory.iterdir()) == []
    # The standby goes on.
    place.append(1)
    await place.caught_up(first)
    first.close()


async def test_what_a_killed_member_began_is_deleted(place: Place) -> None:
    place.append(100)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    id = place.database.begin_snapshot(Position(50, 1))
    place.database.add_piece(id, 0, b"piece")
    if place.directory is not None:
        (place.directory / f"{id:08}.snapshot.part").touch()
    policy = place.policy("first", SnapshotOptions(after=1))
    policy.source = first
    place.database.members["first"] = (Member("first", "standby", "", 0, "", 0), place.loop.time())
    await policy.look()
    first.close()
    [info] = place.database.complete()
    assert list(place.database.snapshots) == [info.id]
    assert place.directory is None or len(list(place.directory.iterdir())) == 1


async def test_a_member_that_ends_while_it_opens_its_store(place: Place) -> None:
    first = place.follower("first")
    first.start()
    # The task begins, and gives the opening to a thread.
    await asyncio.sleep(0)
    first.close()
    # The directory is not locked, and was closed properly.
    assert stored(place.path / "first") == {}


async def test_a_copy_is_given_up_for_a_takeover(place: Place) -> None:
    place.append(300)
    first = place.follower("first")
    first.start()
    await place.caught_up(first)
    policy = place.policy("first", SnapshotOptions(after=1))
    place.database.members["first"] = (Member("first", "standby", "", 0, "", 0), place.loop.time())
    policy.source = first
    copying, goes_on = asyncio.Event(), threading.Event()
    original = policy._files.copy

    def copy(records: Records, is_cancelled: Callable[[], bool]) -> object:
        place.loop.call_soon_threadsafe(copying.set)
        goes_on.wait()
        return original(records, is_cancelled)

    policy._files.copy = copy  # type: ignore[method-assign,assignment]
    looking = policy._task = place.loop.create_task(policy.look())
    await copying.wait()
    stopping = asyncio.ensure_future(policy.stop())
    place.append(5)
    await asyncio.sleep(0)
    # Nothing is applied while the thread may still read.
    assert not stopping.done()
    goes_on.set()
    await stopping
    assert looking.cancelled()
    await place.caught_up(first)
    first.close()
    assert place.database.snapshots == {}


# -- what is made and kept ---------------------------------------------------------------------


async def test_it_is_time_for_a_snapshot(place: Place) -> None:
    first = place.follower("first")
    first.start()
    policy = place.policy("first", SnapshotOptions(after=100_000, keep=2))
    policy.source = first
    database = place.database
    members = database.members
    members["first"] = (Member("first", "leader", "", 0, "", 0), place.loop.time())
    for count in (30, 30, 30, 30, 30, 30):
        place.append(count)
        await place.caught_up(first)
        await policy.look()
    # 60 kB a time: one snapshot for two times.
    assert [info.position.number for info in database.complete()] == [180, 120]
    assert min(database.batches) == 121
    if place.directory is not None:
        assert len(list(place.directory.iterdir())) == 2
    # Another member has the turn: it is a standby, and alive.
    members["second"] = (Member("second", "standby", "", 0, "", 0), place.loop.time())
    place.append(60)
    await place.caught_up(first)
    await policy.look()
    assert len(database.complete()) == 2
    assert policy.newer_bytes > 100_000
    # It was not seen for long.
    members["second"] = (Member("second", "standby", "", 0, "", 0), place.loop.time() - 60)
    await policy.look()
    assert database.complete()[0].position.number == 240
    first.close()


async def test_a_journal_that_grows_is_told(place: Place) -> None:
    told: list[bool] = []
    policy = place.policy("first", SnapshotOptions(after=10_000))
    policy._too_large = told.append
    place.append(10)
    await policy.look()
    assert (told, policy.is_too_large) == ([], False)
    place.append(10)
    await policy.look()
    assert (told, policy.is_too_large) == ([True], True)
    assert policy.newer_bytes == sum(len(one.data) for one in place.database.batches.values())


async def test_a_full_store_is_not_copied(place: Place) -> None:
    class Full(LeaderSource):
        def pause(self, call: Callable[[DurableStore], None]) -> None:
            raise StoreError("the disk is full")

    store = place.files("leader").open()
    with pytest.raises(StoreError, match="full"):
        await place.policy("leader").make(Full(store))
    store.close()


def kept(times: list[float], options: SnapshotOptions, now: float) -> list[float]:
    infos = [
        SnapshotInfo(id, Position(id, 1), 1, 1, created)
        for id, created in enumerate(sorted(times), 1)
    ]
    return [info.created for info in kept_of(infos[::-1], options, now)]


def test_the_newest_are_kept() -> None:
    assert kept([1, 2, 3, 4], SnapshotOptions(keep=2), 10) == [4, 3]
    assert kept([1], SnapshotOptions(keep=2), 10) == [1]
    assert kept([], SnapshotOptions(keep=2, keep_journal=5), 10) == []


def test_every_moment_of_a_time_can_be_restored() -> None:
    options = SnapshotOptions(keep=1, keep_journal=100)
    # The base for the moment 900 is 880, not 500.
    assert kept([500, 880, 920, 990], options, 1000) == [990, 880]
    # None is old enough: the oldest stays.
    assert kept([950, 990], options, 1000) == [990, 950]
    # In the long run a base is replaced, and few are kept.
    present: list[float] = []
    for now in range(0, 2000, 10):
        present = kept([*present, float(now)], options, now)
        assert min(present) <= max(0, now - 100)
        assert min(present) >= now - 200
        assert len(present) <= 5
