"""The files of a member: whenever its process is killed, the next one gets on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrymq_broker.replication.member_files import MemberDirectory
from ferrymq_broker.replication.shared_journal import Position
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.lmdb_records import LmdbRecords
from tests.broker.replication.kit import CLUSTER, LeaderStore
from tests.broker.replication.real_members import SIZES, stored

# What changes a directory.
CALLS = ("replace", "mkdir", "rmdir", "unlink", "open")


class Killed(BaseException):
    """The process is gone."""


class Countdown:
    """Lets some calls of the system pass, and then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.made = 0
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self.left is not None:
                if self.left == 0:
                    raise Killed
                self.left -= 1
                self.made += 1
            return call(*arguments, **options)

        return counted


def fill(files: MemberDirectory, number: int) -> None:
    """A store with one entry of this number, in batch 2."""
    store = files.open()
    leader = LeaderStore(store)
    leader.put(number)
    leader.appender.answer()
    leader.appender.answer()
    leader.executor.run()
    store.close()


def entries(path: Path) -> list[int]:
    return [number for table, _, number in stored(path) if table == 5]


def test_a_kill_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kill loses nothing that was written, synced or not.
    monkeypatch.setenv("FERRYMQ_UNSAFE_NO_SYNC", "1")
    source = MemberDirectory(tmp_path / "source", CLUSTER, SIZES)
    fill(source, 2)
    snapshot = (tmp_path / "source" / "data.mdb").read_bytes()
    countdown = Countdown(monkeypatch)
    steps = 0
    while True:
        path = tmp_path / f"member-{steps}"
        files = MemberDirectory(path, CLUSTER, SIZES)
        fill(files, 1)
        countdown.left = steps
        try:
            files.set_aside()
            files.begin_load()
            files.load(snapshot)
            files.finish_load(Position(2, 1))
        except Killed:
            pass
        else:
            break
        finally:
            countdown.left = None
        again = MemberDirectory(path, CLUSTER, SIZES)
        store = again.open()
        applied = store.applied
        store.close()
        # What it had, what it loads, or nothing.
        assert (applied, entries(path)) in ((0, []), (2, [1]), (2, [2]))
        # What it had is not gone.
        kept = [path, *path.glob("set-aside-*")]
        assert [is_original(one) for one in kept].count(True) == 1
        steps += 1
    assert steps > 15
    assert entries(path) == [2]


def is_original(path: Path) -> bool:
    """Whether the records in a directory are those of `fill` with entry 1."""
    if not (path / "data.mdb").exists():
        return False
    records = LmdbRecords(path)
    try:
        return records.get(5, 1, 1) is not None
    finally:
        records.close()


def test_names_of_sets_do_not_collide(tmp_path: Path) -> None:
    files = MemberDirectory(tmp_path, CLUSTER, SIZES, clock=lambda: 0.0)
    places = []
    for _ in range(3):
        fill(files, 1)
        places.append(Path(files.set_aside()).name)
    assert places == [
        "set-aside-19700101T000000Z",
        "set-aside-19700101T000000Z-2",
        "set-aside-19700101T000000Z-3",
    ]


def test_other_files_stay(tmp_path: Path) -> None:
    files = MemberDirectory(tmp_path, CLUSTER, SIZES)
    fill(files, 1)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "pages").mkdir()
    files.set_aside()
    files.open().close()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "pages").is_dir()


def test_a_copy_that_is_given_up(tmp_path: Path) -> None:
    files = MemberDirectory(tmp_path, CLUSTER, SIZES)
    fill(files, 1)
    store = files.open()
    with pytest.raises(StoreError, match="given up"):
        files.copy(store.records, lambda: True)
    assert not (tmp_path / "snapshot.new").exists()
    copy = files.copy(store.records, lambda: False)
    assert copy.size == len(copy.read(0, 1 << 30)) > 0
    copy.close()
    store.close()
