"""What records take of the disk, and what they give back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.hole_punching import _find_fallocate
from ferrymq_broker.store.journal_replay import apply_now
from ferrymq_broker.store.keys import encode_key
from ferrymq_broker.store.lmdb_file import check_file
from ferrymq_broker.store.lmdb_records import DATA_NAME, LmdbRecords
from ferrymq_broker.store.net_effect import NetEffect
from ferrymq_broker.store.tables import ENTRY, STATE
from tests.broker.store.kit import Owner

punches = pytest.mark.skipif(_find_fallocate() is None, reason="no holes in files here")


def apply(records: LmdbRecords, number: int, fill: Callable[[Changes], None]) -> None:
    """Apply one batch, as a segment of the journal is applied."""
    changes = Changes()
    changes.enabled = True
    fill(changes)
    effect = NetEffect()
    effect.begin(b"".join(changes.close()))
    while not effect.read(1000):
        pass
    apply_now(effect, records, number)


def fill(records: LmdbRecords, queues: int, count: int, size: int) -> None:
    """Put `count` values of `size` bytes each into the queues, in turns and in order."""
    value = bytes(size)
    records.begin()
    records.commit(0)
    for batch in range(4):

        def put(changes: Changes, batch: int = batch) -> None:
            for number in range(batch * count // 4, (batch + 1) * count // 4):
                changes.put(ENTRY, 1 + number % queues, number // queues, value)
                changes.put(STATE, 1 + number % queues, number // queues, b"x")

        apply(records, batch + 1, put)


@pytest.mark.parametrize("queues", [1, 5])
@pytest.mark.parametrize("size", [700, 1024, 1900])
def test_messages_in_order_take_no_more_than_half_as_much_again(
    tmp_path: Path, size: int, queues: int
) -> None:
    records = LmdbRecords(tmp_path)
    count = 3000
    fill(records, queues, count, size)
    taken = records.used_bytes()
    # What lies behind records while they are put is not there any more.
    assert records.count() == 2 * count + 1
    assert [record.number for record in records.scan(ENTRY)] == [
        number for _ in range(queues) for number in range(count // queues)
    ]
    records.close()
    check_file(tmp_path / DATA_NAME)
    assert taken <= 1.5 * count * size + 64 * 1024


@punches
def test_what_is_drained_is_given_back(tmp_path: Path) -> None:
    records = LmdbRecords(tmp_path)
    records.holes.waste = 1 << 20
    count = 4000
    fill(records, 2, count, 1024)
    full = records.file_bytes()
    assert full > 4_000_000 and records.holes.given == 0

    def drop(changes: Changes) -> None:
        for queue in (1, 2):
            changes.drop_range(ENTRY, queue, 0, count)
            changes.drop_range(STATE, queue, 10, count)

    apply(records, 5, drop)
    assert records.file_bytes() < full // 10
    assert (tmp_path / DATA_NAME).stat().st_size >= full
    # It is as good as before: what was given back is used again, now and by whoever opens it next.
    check_file(tmp_path / DATA_NAME)
    records.close()
    records = LmdbRecords(tmp_path)
    assert records.count() == 21

    def put(changes: Changes) -> None:
        for number in range(count):
            changes.put(ENTRY, 1, number, b"%04d" % number + bytes(1020))

    apply(records, 6, put)
    assert [record.value[:4] for record in records.scan(ENTRY)] == [
        b"%04d" % n for n in range(count)
    ]
    assert records.file_bytes() > 4_000_000
    records.close()
    check_file(tmp_path / DATA_NAME)


@punches
def test_what_is_read_during_a_commit_stays_until_it_is_given_back(tmp_path: Path) -> None:
    records = LmdbRecords(tmp_path)
    records.holes.waste = 1 << 20
    fill(records, 1, 4000, 1024)
    reading = records.scan(ENTRY)
    first = next(reading)
    records.begin()
    for number in range(4000):
        records.drop(encode_key(ENTRY, 1, number))
    records.commit(5)
    assert [record.number for record in (first, *reading)] == list(range(4000))
    records.give_back()
    assert records.holes.given > 4_000_000
    records.close()
    check_file(tmp_path / DATA_NAME)


@punches
def test_little_that_is_free_stays(tmp_path: Path) -> None:
    records = LmdbRecords(tmp_path)
    records.holes.waste = 1 << 20
    fill(records, 1, 4000, 1024)

    def drop(changes: Changes) -> None:
        changes.drop_range(ENTRY, 1, 0, 1500)

    apply(records, 5, drop)
    assert records.holes.given == 0, "it is less than what is in use"
    records.close()


def test_a_journal_to_which_nothing_is_added_is_applied(tmp_path: Path) -> None:
    owner = Owner(RealFolder(tmp_path), lambda: LmdbRecords(tmp_path))
    store = owner.store
    owner.write(1, b"one")
    assert store.get(5, 1, 1) is None
    store.tidy()
    owner.executor.run()
    assert store.get(5, 1, 1) is None, "perhaps there is more to come"
    store.tidy()
    owner.executor.run()
    assert store.get(5, 1, 1) == b"one"
    applied = store.applied
    store.tidy()
    owner.executor.run()
    assert store.applied == applied
    store.close()
