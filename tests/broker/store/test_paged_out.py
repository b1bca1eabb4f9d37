"""What a broker leaves in the file `paged-out` is there at the next start, or not at all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.disk import RealFile
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.paged_out_file import PAGED_OUT_NAME
from tests.broker.store.kit import SMALL, ManualExecutor

OPTIONS = StoreOptions(segment_bytes=SMALL)
BLOCKS = [b"one", b"", b"three" * 1000]


def opened(path: Path) -> DurableStore:
    return DurableStore.open(path, Changes(), OPTIONS)


def found(path: Path) -> list[bytes]:
    """What there is at the next start, which leaves nothing."""
    store = opened(path)
    blocks = store.take_paged_out()
    assert store.take_paged_out() == []
    store.close()
    return blocks


def write(store: DurableStore) -> ManualExecutor:
    """Store a record."""
    executor = ManualExecutor()
    store.start(executor, store.changes.settle, pytest.fail, lambda on: None)
    store.changes.put(5, 1, 1, b"value")
    store.push()
    executor.run()
    return executor


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A store that was closed with blocks."""
    path = tmp_path / "data"
    store = opened(path)
    write(store)
    store.close(lambda: BLOCKS)
    return path


def test_it_is_there_once(left: Path) -> None:
    assert (left / PAGED_OUT_NAME).stat().st_mode & 0o077 == 0
    assert found(left) == BLOCKS
    assert not (left / PAGED_OUT_NAME).exists()
    assert found(left) == []


def test_the_file_of_a_store_that_was_used_since_is_not_read(left: Path) -> None:
    old = (left / PAGED_OUT_NAME).read_bytes()
    store = opened(left)
    write(store)
    store.close()
    (left / PAGED_OUT_NAME).write_bytes(old)
    assert found(left) == []
    assert not (left / PAGED_OUT_NAME).exists()


def test_the_file_of_a_store_that_was_killed_is_not_read(left: Path) -> None:
    (left / "clean").unlink()
    assert found(left) == []


def test_the_file_beside_other_records_is_not_read(left: Path, tmp_path: Path) -> None:
    shutil.copytree(left, tmp_path / "copy")
    assert found(tmp_path / "copy") == []


@pytest.mark.parametrize("place", ["label", "length", "block", "end"])
def test_a_damaged_file_is_not_read(left: Path, place: str) -> None:
    file = left / PAGED_OUT_NAME
    data = bytearray(file.read_bytes())
    if place == "end":
        del data[-1]
    else:
        data[{"label": 20, "length": 4096, "block": -1}[place]] ^= 1
    file.write_bytes(data)
    assert found(left) == []


def test_where_it_cannot_be_written_the_store_is_closed_all_the_same(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RealFile.write

    def write_nothing(file: RealFile, position: int, parts: Sequence[bytes]) -> None:
        if file.path.name == PAGED_OUT_NAME:
            raise OSError(errno.ENOSPC, "no room", str(file.path))
        real(file, position, parts)

    monkeypatch.setattr(RealFile, "write", write_nothing)
    opened(left).close(lambda: BLOCKS)
    assert not (left / PAGED_OUT_NAME).exists() and (left / "clean").exists()
    assert found(left) == []
