"""Before records are committed it is known whether the disk has room for what LMDB writes."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import Any

import lmdb
import pytest

from ferrymq_broker.store import lmdb_records
from ferrymq_broker.store.disk import is_full
from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.lmdb_records import LmdbRecords

PAGE = 4096


class Listened:
    """A footprint that says that everything fits; what it would have said is in a list."""

    def __init__(self, records: LmdbRecords, foretold: list[int]) -> None:
        self._footprint = records._footprint
        self._foretold = foretold

    def __getattr__(self, name: str) -> Any:
        return getattr(self._footprint, name)

    def growth(self, *arguments: Any) -> int:
        self._foretold.append(self._footprint.growth(*arguments))
        return -(1 << 40)


class Watched:
    """Records whose every commit is looked at closely: what was foretold, and what came of it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = LmdbRecords(path)
        self.foretold: list[int] = []
        self.grown: list[int] = []
        monkeypatch.setattr(self.records, "_footprint", Listened(self.records, self.foretold))
        monkeypatch.setattr(lmdb_records, "free_bytes", lambda path: 0)

    def pages(self) -> int:
        return int(self.records._env.info()["last_pgno"]) + 1

    def commit(self, number: int) -> None:
        before = self.pages()
        self.records.commit(number)
        self.grown.append(self.pages() - before)

    def put(self, number: int, size: int, id: int = 1) -> None:
        key = encode_key(5, id, number)
        self.records.put(key, seal(key, bytes(size)))


@pytest.mark.parametrize("seed", range(30))
def test_the_file_never_grows_by_more_than_was_foretold(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    watched = Watched(tmp_path, monkeypatch)
    records = watched.records
    largest = random.choice((100, 1500, 6000, 40_000))
    there: list[int] = []
    following = 0
    for batch in range(60):
        records.begin()
        # What is there grows for a while, then becomes less.
        puts, drops = (40, 10) if batch // 15 % 2 == 0 else (8, 60)
        for _ in range(random.randrange(puts)):
            number = following
            if random.random() < 0.2:
                number = random.randrange(1 << 40)
            elif there and random.random() < 0.2:
                number = random.choice(there)
            following += 1
            watched.put(number, random.randrange(largest))
            if number not in there:
                there.append(number)
        for _ in range(random.randrange(drops)):
            if not there:
                break
            at = 0 if random.random() < 0.5 else random.randrange(len(there))
            records.drop(encode_key(5, 1, there.pop(at)))
        if random.random() < 0.1 and there:
            there.sort()
            first, last = there[len(there) // 3], there[2 * len(there) // 3]
            while not records.drop_range(encode_key(5, 1, first), encode_key(5, 1, last), 7):
                pass
            there = [number for number in there if not first <= number <= last]
        watched.commit(batch)
    assert len(watched.foretold) == len(watched.grown) == 60
    both = enumerate(zip(watched.grown, watched.foretold, strict=True))
    assert [(batch, *two) for batch, two in both if two[0] > two[1]] == []
    # And it is not said that everything is too much.
    assert min(watched.foretold) <= 16
    records.close()


def fill(records: LmdbRecords, count: int, size: int) -> None:
    for first in range(0, count, 100):
        records.begin()
        for number in range(first, first + 100):
            key = encode_key(5, 1, number)
            records.put(key, seal(key, bytes(size)))
        records.commit(first + 1)


@pytest.mark.parametrize("size", [200, 3000, 20_000])
def test_what_is_taken_out_needs_no_room(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk with hardly anything left: from the first message, and out of order."""
    records = LmdbRecords(tmp_path)
    fill(records, 2000, size)
    for batch in range(3):
        # Something is free in the file: once it was full and had to wait, there is.
        records.begin()
        records.drop(encode_key(5, 1, 1999 - batch))
        records.commit(3000 + batch)
    numbers = list(range(1900))
    random = Random(size)
    for at in range(0, len(numbers) - 8, 8):
        few = numbers[at : at + 8]
        random.shuffle(few)
        numbers[at : at + 8] = few
    monkeypatch.setattr(lmdb_records, "free_bytes", lambda path: 40 * PAGE)
    for at in range(0, len(numbers), 100):
        records.begin()
        for number in numbers[at : at + 100]:
            records.drop(encode_key(5, 1, number))
        records.commit(4000 + at)
    # What became free is enough for what comes then.
    records.begin()
    for number in range(5000, 5200):
        key = encode_key(5, 1, number)
        records.put(key, seal(key, bytes(size)))
    records.commit(9000)
    assert records.count() == 100 - 3 + 200 + 1
    records.close()


def test_nothing_is_written_when_it_may_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = LmdbRecords(tmp_path)
    fill(records, 100, 1000)
    content = records.path.read_bytes()
    monkeypatch.setattr(lmdb_records, "free_bytes", lambda path: 50 * PAGE)
    for _ in range(2):
        records.begin()
        key = encode_key(5, 1, 1000)
        records.put(key, seal(key, bytes(80 * PAGE)))
        with pytest.raises(OSError) as caught:
            records.commit(200)
        assert caught.value.errno == errno.ENOSPC
        assert str(records.path) in str(caught.value)
        assert records.path.read_bytes() == content
    monkeypatch.setattr(lmdb_records, "free_bytes", lambda path: 200 * PAGE)
    records.begin()
    records.put(key, seal(key, bytes(80 * PAGE)))
    records.commit(200)
    assert records.applied == 200
    records.close()


def test_what_is_long_is_looked_at_before_it_is_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB writes before the commit when a transaction is very large."""
    monkeypatch.setattr(lmdb_records, "_LOOK_AFTER", 100_000)
    monkeypatch.setattr(lmdb_records, "free_bytes", lambda path: 100 * PAGE)
    records = LmdbRecords(tmp_path)
    records.begin()
    put = 0
    with pytest.raises(OSError, match="may be needed"):
        for put in range(1000):
            key = encode_key(5, 1, put)
            records.put(key, seal(key, bytes(10_000)))
    assert put < 60
    records.close()


class FailingTransaction:
    """A transaction of LMDB whose commit fails as LMDB says it."""

    def __init__(self, transaction: Any, said: str) -> None:
        self._transaction = transaction
        self._said = said

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def commit(self) -> None:
        raise lmdb.DiskError(self._said)


@pytest.mark.parametrize(
    ("said", "code"),
    [("Input/output error", errno.EIO), ("No space left on device", errno.ENOSPC)],
)
@pytest.mark.parametrize("free", [0, 1 << 40])
def test_an_error_of_the_disk_is_never_taken_for_a_full_one(
    said: str, code: int, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = LmdbRecords(tmp_path)
    fill(records, 100, 100)
    records.begin()
    records._txn = FailingTransaction(records._txn, f"mdb_txn_commit: {said}")
    monkeypatch.setattr(records, "_look_for_room", lambda: None)
    monkeypatch.setattr(lmdb_records, "free_bytes", lambda path: free)
    with pytest.raises(OSError) as caught:
        records.commit(200)
    assert caught.value.errno == code
    assert is_full(caught.value) == (code == errno.ENOSPC)
    assert str(records.path) in str(caught.value)
    records.close()
