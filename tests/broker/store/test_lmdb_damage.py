"""LMDB's file, damaged anywhere: what is wrong is named, or nothing is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.lmdb_file import check_file, main
from ferrymq_broker.store.lmdb_records import LmdbRecords

PAGE = 4096
Record = tuple[int, int, int, bytes]


@pytest.fixture(scope="module")
def specimen(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Record]]:
    """A file with branches, long values and free pages, and what is in it."""
    folder = tmp_path_factory.mktemp("specimen")
    records = LmdbRecords(folder)
    for batch in range(6):
        records.begin()
        for number in range(50):
            key = encode_key(5, 1 + number % 3, batch * 50 + number)
            records.put(key, seal(key, b"%d " % number + bytes(300)))
        for number in range(3):
            key = encode_key(7, batch, number)
            records.put(key, seal(key, b"long" + bytes(9000)))
        if batch > 2:
            records.drop_range(encode_key(5, 2, 0), encode_key(5, 2, batch * 50), 1000)
        records.commit(batch + 1)
    found = contents(records)
    records.close()
    return (folder / "data.mdb").read_bytes(), found


def contents(records: LmdbRecords) -> list[Record]:
    return [(table, *record) for table in range(1, 15) for record in records.scan(table)]


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Bits, bytes, whole pages and the end: each page in several ways."""
    chance = random.Random(5)
    pages = range(0, len(data), PAGE)
    for at in pages:
        for _ in range(8):
            # Half of them where pages say what they are.
            offset = at + chance.randrange(chance.choice((24, 200, PAGE)))
            flipped = data[offset] ^ 1 << chance.randrange(8)
            yield f"bit in {offset}", data[:offset] + bytes((flipped,)) + data[offset + 1 :]
        yield f"zeros at {at}", data[:at] + bytes(PAGE) + data[at + PAGE :]
        other = chance.choice(pages)
        yield (
            f"page {other} at {at}",
            data[:at] + data[other : other + PAGE] + data[at + PAGE :],
        )
        yield f"cut at {at}", data[:at]
        cut = at + chance.randrange(PAGE)
        yield f"cut at {cut}", data[:cut]


def test_all_of_it(specimen: tuple[bytes, list[Record]], tmp_path: Path) -> None:
    data, found = specimen
    file = tmp_path / "data.mdb"
    refused = harmless = 0
    for what, damaged in damages(data):
        file.write_bytes(damaged)
        try:
            check_file(file)
        except StoreDamaged as error:
            assert str(file) in str(error)
            refused += 1
            continue
        # LMDB can have it: it finds all there was, and changes it.
        records = LmdbRecords(tmp_path)
        assert contents(records) == found, what
        records.begin()
        for id in (1, 2, 3):
            records.drop_range(encode_key(5, id, 0), encode_key(5, id, 10_000), 100_000)
        for number in range(400):
            key = encode_key(6, 1, number)
            records.put(key, seal(key, bytes(500)))
        records.commit(100)
        records.close()
        check_file(file)
        harmless += 1
    assert refused > harmless > 0


def test_without_values_what_lmdb_believes_is_looked_at(
    specimen: tuple[bytes, list[Record]], tmp_path: Path
) -> None:
    data, found = specimen
    file = tmp_path / "data.mdb"
    refused = found_later = harmless = 0
    for what, damaged in damages(data):
        file.write_bytes(damaged)
        try:
            check_file(file, values=False)
        except StoreDamaged as error:
            assert str(file) in str(error)
            refused += 1
            continue
        # LMDB can have it: what is damaged is noticed by whoever reads it.
        records = LmdbRecords(tmp_path)
        good = True
        try:
            assert contents(records) == found, what
            harmless += 1
        except StoreDamaged:
            good = False
            found_later += 1
        records.begin()
        for id in (1, 2, 3):
            records.drop_range(encode_key(5, id, 0), encode_key(5, id, 10_000), 100_000)
        for number in range(400):
            key = encode_key(6, 1, number)
            records.put(key, seal(key, bytes(500)))
        records.commit(100)
        records.close()
        if good:
            check_file(file)
    assert refused > 0 and found_later > 0 and harmless > 0


def test_the_file_is_good_at_any_time(tmp_path: Path) -> None:
    records = LmdbRecords(tmp_path)
    check_file(tmp_path / "data.mdb")
    chance = random.Random(3)
    for batch in range(150):
        records.begin()
        for _ in range(chance.randrange(60)):
            key = encode_key(5, chance.randrange(3), chance.randrange(3000))
            if chance.random() < 0.5:
                records.put(key, seal(key, bytes(chance.choice((0, 10, 500, 1500, 2500, 20_000)))))
            else:
                records.drop(key)
        if chance.random() < 0.1:
            first = chance.randrange(3000)
            last = encode_key(5, 1, first + chance.randrange(1000))
            records.drop_range(encode_key(5, 1, first), last, 10_000)
        records.commit(batch)
        check_file(tmp_path / "data.mdb")
        check_file(tmp_path / "data.mdb", values=False)
    records.close()


def test_progress_is_told(specimen: tuple[bytes, list[Record]], tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(specimen[0])
    told: list[tuple[int, int]] = []
    check_file(tmp_path / "data.mdb", lambda done, total: told.append((done, total)), 10)
    assert told == sorted(told)
    assert {total for _, total in told} == {len(specimen[1]) + 1}


def test_the_command(
    specimen: tuple[bytes, list[Record]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["check", str(tmp_path)])
    file = tmp_path / "data.mdb"
    file.write_bytes(specimen[0])
    assert main() == 0
    file.write_bytes(b"")
    assert main() == 1
    assert f"{file} is damaged: the file is empty" in capsys.readouterr().err
    file.unlink()
    assert main() == 1
