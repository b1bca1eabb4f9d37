"""Pages in LMDB: what is put is there, what is taken is not, and nothing is after a restart."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from ferrymq_broker.store.page_store import LmdbPageStore


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_what_is_put_can_be_looked_at_and_taken(tmp_path: Path) -> None:
    pages = LmdbPageStore(tmp_path / "pages")
    assert pages.get(key(1)) is None
    assert pages.take([key(1)]) == [None]
    pages.put([(key(n), b"%d" % n * 1000) for n in range(100)])
    assert pages.get(key(7)) == b"7" * 1000
    assert pages.take([key(7), key(8), key(200)]) == [b"7" * 1000, b"8" * 1000, None]
    assert pages.get(key(7)) is None
    pages.drop([key(9), key(300)])
    assert pages.get(key(9)) is None and pages.get(key(10)) == b"10" * 1000
    assert pages.used_bytes() > 90_000
    pages.close()
    assert pages.get(key(10)) is None
    assert not (tmp_path / "pages").exists()


def test_the_map_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrymq_broker.store.page_store._MIN_MAP", 1 << 20)
    monkeypatch.setattr("ferrymq_broker.store.page_store._HEADROOM", 1 << 16)
    pages = LmdbPageStore(tmp_path / "pages")
    for n in range(40):
        pages.put([(key(n), bytes([n]) * 100_000)])
    assert [pages.get(key(n)) for n in (0, 39)] == [bytes(100_000), bytes([39]) * 100_000]
    pages.close()


def test_a_damaged_page_is_no_page(tmp_path: Path) -> None:
    pages = LmdbPageStore(tmp_path / "pages")
    pages.put([(key(1), b"one" * 3000), (key(2), b"two" * 3000)])
    with pages._env.begin(write=True) as txn:
        stored = bytearray(txn.get(key(1)))
        stored[100] ^= 1
        txn.put(key(1), bytes(stored))
        # In the place of another one it is as wrong.
        txn.put(key(3), txn.get(key(2)))
    assert pages.get(key(1)) is None and pages.get(key(3)) is None
    assert pages.take([key(1), key(2)]) == [None, b"two" * 3000]
    pages.close()


def test_nothing_is_there_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    lmdb.open(str(folder)).close()
    LmdbPageStore(folder)
    assert not folder.exists()


def test_a_large_file_with_nothing_in_it_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrymq_broker.store.page_store._WASTE", 100_000)
    pages = LmdbPageStore(tmp_path / "pages")
    pages.put([(key(n), b"x" * 10_000) for n in range(20)])
    pages.tidy()
    assert pages.used_bytes() > 100_000
    pages.take([key(n) for n in range(20)])
    pages.tidy()
    assert pages.used_bytes() == 0
    pages.put([(key(1), b"again")])
    assert pages.get(key(1)) == b"again"
    pages.close()


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        LmdbPageStore(tmp_path / "file" / "pages").put([(key(1), b"x")])
