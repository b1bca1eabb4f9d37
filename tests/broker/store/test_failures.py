"""Disks that fail, and disks that are full."""

from __future__ import annotations

import errno

import pytest

from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.segments import journal_name
from tests.broker.store.kit import (
    SMALL,
    Contents,
    FaultyFolder,
    FaultyRecords,
    Owner,
    SimulatedMachine,
)
from tests.support.memory_records import MemoryDisk, MemoryRecords


class FaultyMachine(SimulatedMachine):
    """A machine with a folder and records that fail when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = FaultyFolder(self.disk)
        self.faulty: FaultyRecords | None = None

    def open(self, segment_bytes: int = SMALL, max_bytes: int = 0) -> Owner:
        def open_records() -> FaultyRecords:
            self.faulty = FaultyRecords(self.records)
            return self.faulty

        return Owner(self.folder, open_records, segment_bytes, max_bytes)

    def fail_commits(self, error: int) -> None:
        assert self.faulty is not None
        self.faulty.error = error

    def recovered(self, owner: Owner) -> Contents:
        """What there is after the process is gone, on a disk that works."""
        self.folder.errors.clear()
        self.kill(owner)
        return super().open().contents()


def fill(owner: Owner, first: int, count: int, size: int = 3000) -> None:
    for number in range(first, first + count):
        owner.write(number, bytes(size))


# -- failing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EBADF])
def test_a_write_that_fails_is_the_end(code: int) -> None:
    machine = FaultyMachine()
    owner = machine.open()
    owner.write(1, b"one")
    machine.folder.errors["write"] = code
    owner.write(2, b"two")
    assert len(owner.failures) == 1
    assert errno.errorcode[code] in owner.failures[0]
    # The disk works again, but it is not asked any more: who knows what it has forgotten.
    machine.folder.errors.clear()
    machine.folder.made.clear()
    owner.write(3, b"three")
    owner.executor.elapse()
    assert owner.stable == [1]
    assert len(owner.failures) == 1
    owner.store.close()
    assert machine.folder.made == []
    assert machine.recovered(owner) == {(5, 1, 1): b"one"}


@pytest.mark.parametrize("operation", ["rename", "sync", "fill", "create"])
def test_anything_else_that_fails_is_the_end_as_well(operation: str) -> None:
    machine = FaultyMachine()
    owner = machine.open()
    owner.write(1, b"one")
    machine.folder.errors[operation] = errno.EIO
    fill(owner, 2, 200)
    assert len(owner.failures) == 1
    stable = owner.changes.stable
    assert stable < 201
    found = machine.recovered(owner)
    assert len(found) >= stable


def test_records_that_cannot_be_written_are_the_end() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    machine.fail_commits(errno.EIO)
    fill(owner, 1, 100)
    assert len(owner.failures) == 1
    stable = owner.changes.stable
    assert owner.store.applied == 0
    assert len(machine.recovered(owner)) == stable


def test_a_journal_that_changed_under_way_is_the_end() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    for number in range(1, 9):
        owner.put(number, bytes(7000))
        owner.store.push()
        owner.executor.make(owner.executor.writes)
    machine.disk.names[journal_name(1, SMALL)].data[9000] ^= 1
    fill(owner, 9, 3)
    assert len(owner.failures) == 1
    assert f"{journal_name(1, SMALL)} is damaged: at byte 8192" in owner.failures[0]


def test_what_cannot_be_written_at_the_end_is_said() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    owner.write(1, b"one")
    machine.fail_commits(errno.EIO)
    with pytest.raises(StoreError, match="the next start will apply it"):
        owner.store.close()
    assert "clean" not in machine.disk.names
    assert not machine.disk.locked
    assert machine.recovered(owner) == {(5, 1, 1): b"one"}


# -- full ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("operation", ["fill", "create", "write", "rename", "sync"])
def test_it_goes_on_when_there_is_room_again(operation: str, code: int) -> None:
    machine = FaultyMachine()
    owner = machine.open()
    fill(owner, 1, 10)
    machine.folder.errors[operation] = code
    for number in range(11, 200):
        owner.put(number, bytes(3000))
        owner.store.push()
        owner.executor.run()
    owner.executor.elapse()
    assert not owner.failures
    machine.folder.errors.clear()
    for _ in range(5):
        owner.executor.elapse()
    # Two segments are enough to go on with, if they can be used again.
    assert owner.full == ([] if operation in ("fill", "create") else [True, False])
    assert owner.changes.stable == owner.changes.number - 1
    assert len(machine.recovered(owner)) == 199


def test_a_batch_waits_while_there_is_no_room_for_it() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    owner.write(1, b"one")
    machine.folder.errors["write"] = errno.ENOSPC
    owner.write(2, b"two")
    owner.write(3, b"three")
    owner.executor.elapse()
    assert owner.stable == [1]
    assert owner.full == [True]
    machine.folder.errors.clear()
    owner.executor.elapse()
    # The batch that waited, then all that came meanwhile in another.
    assert owner.stable == [1, 2, 3]
    assert owner.full == [True, False]


def test_what_consumers_settle_has_room_when_records_have_none() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    machine.fail_commits(errno.ENOSPC)
    fill(owner, 1, 25)
    assert owner.full == [True]
    # The alarm keeps producers back; consumers go on, and their batches are written.
    for number in range(1, 24):
        owner.changes.drop(5, 1, number)
        owner.store.push()
        owner.executor.run()
    assert owner.changes.stable == owner.changes.number - 1
    owner.executor.elapse()
    assert owner.full == [True]
    machine.fail_commits(0)
    owner.executor.elapse()
    assert owner.full == [True, False]
    # What was settled meanwhile never got there.
    assert {key[2] for key in owner.contents()} <= {24, 25}
    assert len(machine.recovered(owner)) == 2


def test_a_segment_that_becomes_full_while_its_beginning_is_applied() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    executor = owner.executor
    machine.fail_commits(errno.ENOSPC)
    fill(owner, 1, 25)
    assert owner.full == [True]
    machine.fail_commits(0)
    # It is tried again with the segment that is being written, which goes on meanwhile.
    timers, executor.timers = executor.timers, []
    for _, call in timers:
        call()
    while executor.step():
        pass
    assert executor.commits
    number = 25
    while len(owner.store._journal.full) < 2:
        number += 1
        owner.put(number, bytes(3000))
        owner.store.push()
        assert executor.make(executor.writes)
    applied = owner.store.applied
    assert executor.make(executor.commits)
    assert applied < owner.store.applied < number
    # What was recycled then was all applied: the rest is still in the journal.
    while executor.make(executor.commits):
        pass
    assert len(machine.recovered(owner)) == number


def test_a_full_disk_for_real() -> None:
    """Journal and nothing else fill a disk: everything that was acknowledged is there."""
    machine = SimulatedMachine(capacity=3 * SMALL + 2000)
    owner = machine.open()
    for number in range(300):
        owner.put(number, bytes(3000))
        owner.store.push()
        owner.executor.run()
    # Three segments are enough for as many batches as there are.
    assert owner.changes.stable == 300
    assert not owner.failures
    machine.kill(owner)
    assert len(machine.open().contents()) == 300


def test_it_opens_where_there_is_no_room_for_a_spare() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    owner.write(1, b"one")
    machine.kill(owner)
    for name in list(machine.disk.names):
        if name.startswith("spare-"):
            del machine.disk.names[name]
    machine.folder.errors["fill"] = errno.ENOSPC
    again = machine.open()
    assert again.contents() == {(5, 1, 1): b"one"}
    # What it recovered from is the spare: it can be written to.
    again.write(2, b"two")
    assert again.stable == [2]
    again.executor.elapse()
    assert again.full == [True]
    machine.folder.errors.clear()
    again.executor.elapse()
    assert again.full == [True, False]


def test_recovery_makes_room_with_spares() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    owner.write(1, b"one")
    machine.kill(owner)

    class TightRecords(MemoryRecords):
        """Records that have room once there is no spare any more."""

        def commit(self, applied: int) -> None:
            if any(name.startswith("spare-") for name in machine.disk.names):
                self.abort()
                raise OSError(errno.ENOSPC, "ENOSPC")
            super().commit(applied)

    again = Owner(machine.folder, lambda: TightRecords(machine.records))
    assert again.contents() == {(5, 1, 1): b"one"}


def test_recovery_without_any_room_says_what_to_do() -> None:
    machine = FaultyMachine()
    owner = machine.open()
    owner.write(1, b"one")
    machine.kill(owner)

    class FullRecords(MemoryRecords):
        def commit(self, applied: int) -> None:
            self.abort()
            raise OSError(errno.ENOSPC, "ENOSPC")

    with pytest.raises(StoreError, match=r"the disk has no room .* free at least"):
        Owner(machine.folder, lambda: FullRecords(machine.records))
    # Nothing is lost by having tried.
    assert machine.open().contents() == {(5, 1, 1): b"one"}


# -- the limit ----------------------------------------------------------------------------------


def test_max_bytes_raises_the_alarm_until_there_is_a_tenth_to_spare() -> None:
    machine = SimulatedMachine()
    owner = machine.open(max_bytes=10 * SMALL)
    number = 0
    while not owner.full:
        number += 1
        assert number < 300
        owner.write(number, bytes(3000))
    assert owner.full == [True]
    assert owner.store.used_bytes() > 10 * SMALL
    # A little less is not enough.
    for settled in range(1, 20):
        owner.changes.drop(5, 1, settled)
    owner.store.push()
    owner.executor.run()
    owner.executor.elapse()
    assert 9 * SMALL < owner.store.used_bytes() < 10 * SMALL
    assert owner.full == [True]
    # It is noticed without a segment being full of what was settled.
    for settled in range(20, 60):
        owner.changes.drop(5, 1, settled)
    owner.store.push()
    owner.executor.run()
    owner.executor.elapse()
    assert owner.full == [True, False]
    assert owner.store.used_bytes() < 9 * SMALL


def test_no_limit_is_none() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    fill(owner, 1, 300)
    assert owner.full == []


def test_a_backup_has_the_journal_to_itself() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    begun: list[int] = []
    owner.store.pause(lambda: begun.append(owner.store.applied))
    assert begun == [0]
    fill(owner, 1, 400)
    # However long it takes: nothing is applied, nobody waits.
    assert owner.store.applied == 0
    assert owner.changes.stable == 400
    owner.store.resume()
    owner.executor.run()
    assert owner.store.applied > 350
    owner.store.close()
    assert len(machine.open().contents()) == 400
    assert MemoryDisk().applied == -1
