"""What a directory may have in it when a store is opened there."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.errors import StoreDamaged, StoreLocked, StoreVersionError
from ferrymq_broker.store.executor import Executor
from tests.broker.store.kit import SMALL, ManualExecutor, contents_of

OPTIONS = StoreOptions(segment_bytes=SMALL)


def open_store(path: Path, executor: Executor | None = None) -> DurableStore:
    store = DurableStore.open(path, Changes(), OPTIONS)
    changes = store.changes
    store.start(executor or ManualExecutor(), changes.settle, pytest.fail, lambda on: None)
    return store


def write(path: Path, count: int) -> None:
    """Write so many records, each in a batch of its own, and close the store."""
    executor = ManualExecutor()
    store = open_store(path, executor)
    for number in range(count):
        store.changes.put(5, 1, number, b"%d" % number)
        store.push()
        executor.run()
    store.close()


def count(path: Path) -> int:
    store = DurableStore.open(path, Changes(), OPTIONS)
    found = len(contents_of(store))
    store.close()
    return found


def test_it_is_made_where_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down"
    write(path, 3)
    assert count(path) == 3
    assert path.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in path.iterdir())


def test_ids_and_numbers_go_on(tmp_path: Path) -> None:
    write(tmp_path, 3)
    store = DurableStore.open(tmp_path, Changes(), OPTIONS)
    assert (store.changes.number, store.changes.stable, store.applied) == (4, 3, 3)
    assert store.changes.enabled
    store.close()


def test_progress_is_told(tmp_path: Path) -> None:
    executor = ManualExecutor()
    store = open_store(tmp_path, executor)
    store.changes.put(5, 1, 1, b"x")
    store.push()
    executor.make(executor.writes)
    # As if the process were killed: nothing is closed but what only one can have.
    store._records.close()
    store._folder.unlock()
    told: list[tuple[int, int]] = []
    DurableStore.open(
        tmp_path, Changes(), OPTIONS, lambda done, total: told.append((done, total))
    ).close()
    assert told[-1] == (SMALL, SMALL)


def test_another_process_is_kept_out(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from ferrymq_broker.store.disk import RealFolder\n"
        "RealFolder(pathlib.Path(sys.argv[1])).lock()\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
            with pytest.raises(StoreLocked, match=rf"in use by the process {process.pid}\b"):
                DurableStore.open(tmp_path, Changes(), OPTIONS)
        finally:
            process.kill()
    # The lock ends with the process, however it ends.
    assert count(tmp_path) == 0


def test_the_same_process_is_kept_out(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        DurableStore.open(tmp_path, Changes(), OPTIONS)
    store.close()
    assert count(tmp_path) == 0


@pytest.mark.parametrize(
    ("version", "said"), [(3, "Start the version that wrote the store"), (0, "Export it")]
)
def test_other_formats(tmp_path: Path, version: int, said: str) -> None:
    write(tmp_path, 1)
    file = tmp_path / "format"
    text = file.read_text()
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir() if f.name != "lock"}
    file.write_text(text.replace("format: 2", f"format: {version}"))
    with pytest.raises(StoreVersionError, match=rf"has format {version}[,;].*{said}"):
        DurableStore.open(tmp_path, Changes(), OPTIONS)
    file.write_text(text)
    assert before == {f.name: f.read_bytes() for f in tmp_path.iterdir() if f.name != "lock"}
    assert count(tmp_path) == 1


@pytest.mark.parametrize("text", ["", "ferrymq store\n", "something else\nformat: 1\n"])
def test_a_format_that_is_none(tmp_path: Path, text: str) -> None:
    write(tmp_path, 1)
    (tmp_path / "format").write_text(text)
    with pytest.raises(StoreDamaged, match="format is damaged: it has no format number"):
        DurableStore.open(tmp_path, Changes(), OPTIONS)


def test_a_secret_that_is_another(tmp_path: Path) -> None:
    write(tmp_path, 1)
    file = tmp_path / "format"
    file.write_text(file.read_text().replace("secret: ", "secret: x"))
    with pytest.raises(StoreDamaged, match="format is damaged"):
        DurableStore.open(tmp_path, Changes(), OPTIONS)


def test_the_format_is_missing(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "format").unlink()
    with pytest.raises(StoreDamaged, match="format is missing"):
        DurableStore.open(tmp_path, Changes(), OPTIONS)


@pytest.mark.parametrize("left", [None, b"", b"x" * 100, b"x" * 10_000])
def test_the_records_are_missing(tmp_path: Path, left: bytes | None) -> None:
    write(tmp_path, 1)
    if left is None:
        (tmp_path / "data.mdb").unlink()
    else:
        (tmp_path / "data.mdb").write_bytes(left)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"data\.mdb"):
            DurableStore.open(tmp_path, Changes(), OPTIONS)


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    names = ("notes.txt", "journal-old", "spare-1", "new-one", "spare-x-1")
    for name in names:
        (tmp_path / name).write_text("mine")
    write(tmp_path, 2)
    assert count(tmp_path) == 2
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def test_a_spare_that_was_not_finished_is_removed(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "new-77").write_bytes(bytes(1000))
    assert count(tmp_path) == 1
    assert not (tmp_path / "new-77").exists()


def _make_until(path: Path, step: int) -> None:
    """Make a store, and end at some call."""
    left = step

    def counting(*args: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(9)

    sys.setprofile(lambda frame, event, arg: counting() if event == "c_call" else None)
    DurableStore.open(path, Changes(), OPTIONS)
    os._exit(0)


def test_making_it_can_be_interrupted_anywhere(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ended = set()
    for step in (*range(5, 400, 11), 100_000):
        path = tmp_path / str(step)
        child = context.Process(target=_make_until, args=(path, step))
        child.start()
        child.join()
        ended.add(child.exitcode)
        write(path, 2)
        assert count(path) == 2
    assert ended == {0, 9}
