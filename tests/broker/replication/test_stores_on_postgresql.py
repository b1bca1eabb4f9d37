"""Stores, followers, snapshots and restoring with a real database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from ferrymq_broker.replication.follower import JournalFollower
from ferrymq_broker.replication.member_files import MemberDirectory
from ferrymq_broker.replication.shared_journal import Position, SharedJournal
from ferrymq_broker.replication.snapshot_policy import SnapshotOptions, SnapshotPolicy
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.replication.waiting import ask
from ferrymq_broker.store.appender import AppenderOptions, BatchAppender
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.executor import LoopExecutor
from tests.broker.commands import Commands
from tests.broker.replication.journals import PostgresqlCluster
from tests.broker.replication.real_members import SIZES, stored
from tests.support.postgresql import PostgresqlPair


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(monkeypatch, capsys)


class TermAppender(BatchAppender):
    """Appends the batches of one term, as long as nothing breaks."""

    def __init__(self, journal: SharedJournal, term: int) -> None:
        self._journal = journal
        self._term = term

    def append(
        self,
        number: int,
        changes: int,
        parts: Sequence[bytes],
        done: Callable[[Exception | None], None],
    ) -> None:
        self._journal.append(self._term, number, changes, parts, done)


class PostgresqlMember:
    """A member by hand: first it follows, then it leads."""

    def __init__(self, cluster: PostgresqlCluster, path: Path) -> None:
        self.path = path
        self.loop = asyncio.get_running_loop()
        self.cluster = cluster
        self.journal = cluster.join()
        self.heard = asyncio.Event()
        self.changes = Changes()

    async def follow(self) -> JournalFollower:
        figures = await ask(self.journal.figures)
        self.id = figures.cluster
        self.files = MemberDirectory(self.path, self.id, SIZES)
        executor = LoopExecutor(self.loop)
        snapshots = Snapshots(self.journal, executor)
        self.follower = JournalFollower(self.files, snapshots, executor, pytest.fail)
        self.follower.start()
        return self.follower

    async def catch_up(self) -> Position:
        figures = await ask(self.journal.figures)
        await ask(partial(self.follower.catch_up, figures.last))
        return self.follower.position

    async def lead(self) -> DurableStore:
        """Take the lease, the rest of the journal, and lead."""
        lease = await ask(partial(self.journal.acquire, self.path.name, "", 60.0))
        await self.catch_up()
        self.follower.close()
        self.store = DurableStore.open(self.path, self.changes, SIZES, cluster=self.id)
        appender = TermAppender(self.journal, lease.term)
        options = AppenderOptions(appender, lease.term, pytest.fail)
        executor = LoopExecutor(self.loop)
        self.store.start(executor, self._on_stable, pytest.fail, pytest.fail, options)
        self.term = lease.term
        return self.store

    def _on_stable(self) -> None:
        self.changes.settle()
        self.heard.set()

    async def put(self, first: int, end: int) -> None:
        """Entries in batches, one after the other."""
        for number in range(first, end):
            self.changes.put(5, 1, number, b"%d" % number + bytes(1000))
            self.store.push()
            while self.changes.stable < self.changes.latest():
                self.heard.clear()
                await self.heard.wait()

    async def end(self) -> None:
        """Stop, and give the lease back."""
        self.store.close()
        await ask(partial(self.journal.release, self.term))


def numbers(path: Path, cluster: str) -> list[int]:
    return [number for table, _, number in stored(path, cluster) if table == 5]


async def lives_of_two(pair: PostgresqlPair, path: Path) -> str:
    """Two members lead by turns; a third one joins. Return the name of the cluster."""
    cluster = PostgresqlCluster(pair)
    one, two, three = (PostgresqlMember(cluster, path / name) for name in ("one", "two", "three"))
    await one.follow()
    await two.follow()
    await one.lead()
    await one.put(1, 40)
    await two.catch_up()
    await one.end()
    await two.lead()
    await two.put(40, 60)
    # The one that led follows now.
    one.changes = Changes()
    await one.follow()
    assert await one.catch_up() == Position(two.changes.stable, two.term)
    executor = LoopExecutor(one.loop)
    policy = SnapshotPolicy(
        Snapshots(cluster.join(), executor),
        one.files,
        executor,
        "one",
        SnapshotOptions(),
        lambda: 0.0,
        lambda on: None,
    )
    position = await policy.make(one.follower)
    await two.put(60, 70)
    assert await ask(partial(two.journal.trim, position.number + 1)) > 50
    await three.follow()
    await three.catch_up()
    one_id = one.id
    await one.catch_up()
    await two.end()
    for member in (one, three):
        member.follower.close()
    executor.close()
    for name in ("one", "two", "three"):
        assert numbers(path / name, one_id) == list(range(1, 70))
    assert stored(path / "one", one_id) == stored(path / "two", one_id)
    cluster.close()
    return cluster.name


def test_two_members_and_a_third(pair: PostgresqlPair, tmp_path: Path, commands: Commands) -> None:
    name = asyncio.run(lives_of_two(pair, tmp_path))
    source = ("--url", pair.url(), "--cluster", name)
    done = commands("store", "restore", "--to", str(tmp_path / "all"), *source, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["last-batch"], told["term"]) == (71, 2)
    assert numbers(tmp_path / "all", "") == list(range(1, 70))
    done = commands(
        "store", "restore", "--until", told["committed"], "--to", str(tmp_path / "then"), *source
    )
    assert done.returncode == 0, done.stderr
    assert f"everything up to batch 71, committed at {told['committed']}" in done.stdout
    done = commands("store", "restore", "--until", "65", "--to", str(tmp_path / "part"), *source)
    assert done.returncode == 0, done.stderr
    assert numbers(tmp_path / "part", "") == list(range(1, 64))
    config = tmp_path / "ferrymq.toml"
    config.write_text(f"""
        [store]
        path = "data"
        [replication]
        engine = "postgresql"
        url = "{pair.url()}"
        cluster = "{name}"
        """)
    words = ("store", "restore", "--config", str(config), "--to", str(tmp_path / "again"))
    assert commands(*words).returncode == 0
    done = commands("store", "restore", "--until", "3", "--to", str(tmp_path / "no"), *source)
    assert done.returncode == 1
    assert "nothing older can be restored" in done.stderr


def test_mistakes(tmp_path: Path, commands: Commands) -> None:
    done = commands("store", "restore", "--to", str(tmp_path / "x"))
    assert done.returncode == 1 and "no database is given" in done.stderr
    url = ("--url", "postgresql://127.0.0.1:1/none")
    done = commands("store", "restore", "--to", str(tmp_path / "x"), *url, "--until", "noon")
    assert done.returncode == 2 and "neither the number" in done.stderr
    config = tmp_path / "ferrymq.toml"
    config.write_text("")
    done = commands("store", "restore", "--to", str(tmp_path / "x"), "--config", str(config))
    assert done.returncode == 1 and "there is no [replication]" in done.stderr
    done = commands("store", "restore", "--to", str(tmp_path / "x"), *url)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_cluster_that_begins_with_a_store(
    pair: PostgresqlPair, tmp_path: Path, commands: Commands
) -> None:
    single = tmp_path / "single"
    store = DurableStore.open(single, Changes(), SIZES)
    store.records.begin()
    store.records.commit(17)
    store.close()
    cluster = PostgresqlCluster(pair)
    words = ("replica", "init", "--url", pair.url(), "--cluster", cluster.name, "--from-store")
    done = commands(*words, str(tmp_path / "none"))
    assert done.returncode == 1 and "there is no such directory" in done.stderr
    done = commands(*words, str(single))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"it begins with {single}, up to batch 17\n")
    done = commands(*words, str(single))
    assert done.returncode == 1 and "has data already" in done.stderr

    async def test() -> None:
        member = PostgresqlMember(cluster, tmp_path / "member")
        await member.follow()
        await member.lead()
        await member.put(1, 3)
        # The first batch of the term is 18.
        assert member.changes.stable == 20
        await member.end()
        cluster.close()

    asyncio.run(test())
