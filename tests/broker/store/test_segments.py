"""Segments are filled, applied and used again; a batch of any size finds its place."""

from __future__ import annotations

import pytest

from ferrymq_broker.store.durable_store import StoreOptions
from ferrymq_broker.store.journal_frames import HEADER_BYTES
from tests.broker.store.kit import SMALL, Owner, SimulatedMachine


def journal_files(machine: SimulatedMachine) -> list[str]:
    return sorted(n for n in machine.disk.names if n.startswith(("journal-", "spare-", "new-")))


def test_segments_are_used_again() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    most = 0
    contents = set()
    for number in range(400):
        owner.write(number, bytes(3000))
        contents |= {id(content) for content in machine.disk.names.values()}
        most = max(most, len(journal_files(machine)))
    assert most <= 4
    assert owner.store.applied > 350
    machine.kill(owner)
    assert len(machine.open().contents()) == 400


def test_what_came_and_went_is_never_in_the_records() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    put = 0
    for number in range(300):
        owner.put(number, bytes(3000))
        if number > 3:
            owner.changes.drop(5, 1, number - 3)
        owner.store.push()
        owner.executor.run()
        put = max(put, len(machine.records.stored))
    assert owner.store.applied > 200
    assert put <= 6


@pytest.mark.parametrize("size", [SMALL - HEADER_BYTES - 26, SMALL, 10 * SMALL])
def test_a_batch_that_no_segment_has_room_for(size: int) -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    owner.write(1, b"before")
    owner.write(2, b"x" * size)
    for number in range(3, 40):
        owner.write(number, bytes(3000))
    # It had a segment of its own, which is gone.
    assert machine.disk.used() <= 4 * SMALL + 200
    machine.kill(owner)
    again = machine.open()
    assert again.contents()[5, 1, 2] == b"x" * size
    assert len(again.contents()) == 39


def test_a_batch_of_its_own_segment_after_a_crash() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    for number in range(4):
        owner.put(number, b"%d" % number * 3 * SMALL)
        owner.store.push()
        owner.executor.make(owner.executor.writes)
    machine.kill(owner, power=True)
    again = machine.open()
    assert [len(value) for value in again.contents().values()] == [3 * SMALL] * 4
    assert again.store.used_bytes() < 16 * SMALL


def test_frames_of_an_earlier_use_are_never_replayed() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    # The same two records, over and over, in batches of all lengths: old frames of every kind are
    # left behind new ones.
    values: list[bytes] = []
    for round in range(200):
        value = b"%d " % round * (1 + 997 * round % 9000)
        owner.write(round % 2, value)
        values.append(value)
        if round % 7 == 0:
            machine.kill(owner, power=round % 2 == 0)
            owner = machine.open()
            expected = dict(
                zip((round % 2, 1 - round % 2), (values[-1], *values[-2:-1]), strict=False)
            )
            assert {number: v for (_, _, number), v in owner.contents().items()} == expected


def test_the_size_of_segments_can_be_changed() -> None:
    machine = SimulatedMachine()
    for segment_bytes in (SMALL, 4 * SMALL, SMALL, 2 * SMALL):
        owner = machine.open(segment_bytes)
        for number in range(100):
            owner.write(number, b"%d" % segment_bytes * 500)
        machine.kill(owner)
    again = machine.open()
    assert set(again.contents().values()) == {b"%d" % (2 * SMALL) * 500}
    assert {len(machine.disk.names[name].data) for name in journal_files(machine)} == {SMALL}


def test_many_full_segments_make_the_next_batch_wait() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    executor = owner.executor
    taken = 0
    # Nothing is applied, and spares are made all the time.
    for number in range(1000):
        owner.put(number, bytes(30_000))
        owner.store.push()
        if executor.make(executor.writes):
            taken = number
        executor.make(executor.commits)
    assert taken < 40
    assert owner.changes.stable < 40
    # When there is room all of it goes on, the batch that waited first.
    executor.run()
    assert owner.changes.stable == owner.changes.number - 1
    assert len(owner.contents()) > 0
    owner.store.close()
    assert len(machine.open().contents()) == 1000


@pytest.mark.parametrize("segment_bytes", [0, SMALL - 4096, SMALL + 1])
def test_sizes_that_there_cannot_be(segment_bytes: int) -> None:
    with pytest.raises(ValueError, match="multiple of 4096"):
        StoreOptions(segment_bytes=segment_bytes)


def test_on_stable_hears_of_every_batch_once() -> None:
    owner: Owner = SimulatedMachine().open()
    for number in range(1, 30):
        owner.put(number, b"")
        owner.store.push()
        # Another push while it is under way is none.
        owner.put(number + 100, b"")
        owner.store.push()
        owner.executor.run()
    assert owner.stable == list(range(1, 59))
    # With nothing to write nothing is written.
    owner.store.push()
    assert not owner.executor.writes
