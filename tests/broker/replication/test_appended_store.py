"""A leader's store: the shared journal confirms a batch before anything else gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrymq_broker.replication.errors import LeaseLost
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.format_file import CLEAN_NAME
from ferrymq_broker.store.replica_file import REPLICA_NAME
from ferrymq_broker.store.tables import TERM
from ferrymq_broker.store.term_record import read_term
from tests.broker.replication.kit import CLUSTER, LeaderStore, MemberMachine
from tests.broker.store.kit import SMALL, contents_of

OTHER = "00000000-0000-0000-0000-000000000002"


@pytest.fixture
def machine() -> MemberMachine:
    return MemberMachine()


def lead(machine: MemberMachine, term: int = 1, both: bool = False) -> LeaderStore:
    """A leader whose first batch, with the term, is confirmed and written."""
    leader = LeaderStore(machine.open(), term, both)
    leader.appender.answer()
    leader.executor.run()
    return leader


def numbers_in(store: DurableStore) -> list[int]:
    return [number for table, _, number in contents_of(store) if table == 5]


def test_the_first_batch_of_a_term_has_the_term(machine: MemberMachine) -> None:
    leader = lead(machine, 7)
    assert leader.stable == [1]
    leader.store.close()
    again = machine.open()
    assert read_term(again.records) == 7
    assert (TERM, 0, 0) in contents_of(again)


def test_nothing_happens_before_the_confirmation(machine: MemberMachine) -> None:
    leader = lead(machine)
    leader.put(1)
    assert leader.appender.numbers() == [1, 2]
    assert not leader.executor.writes
    assert leader.stable == [1]
    leader.appender.answer()
    # Acknowledged before the local disk has it.
    assert leader.stable == [1, 2]
    assert len(leader.executor.writes) == 1


def test_the_next_batch_is_appended_while_one_is_written(machine: MemberMachine) -> None:
    leader = lead(machine)
    leader.put(1)
    leader.put(2)
    leader.put(3)
    assert leader.appender.numbers() == [1, 2]
    leader.appender.answer()
    assert leader.appender.numbers() == [1, 2, 3]
    leader.put(4)
    leader.appender.answer()
    assert leader.stable == [1, 2, 3]
    # One is being written, one waits for it: nothing more is appended.
    assert len(leader.executor.writes) == 1
    assert leader.appender.numbers() == [1, 2, 3]
    leader.executor.run()
    assert leader.appender.numbers() == [1, 2, 3, 4]
    leader.appender.answer()
    leader.executor.run()
    leader.store.close()
    assert numbers_in(machine.open()) == [1, 2, 3, 4]


def test_both_disks_confirm(machine: MemberMachine) -> None:
    leader = lead(machine, both=True)
    leader.put(1)
    leader.put(2)
    leader.appender.answer()
    assert leader.stable == [1]
    assert leader.appender.numbers() == [1, 2]
    leader.executor.run()
    assert leader.stable == [1, 2]
    assert leader.appender.numbers() == [1, 2, 3]


@pytest.mark.parametrize("both", [False, True])
def test_only_both_syncs_frames(machine: MemberMachine, both: bool) -> None:
    leader = lead(machine, both=both)
    leader.put(1)
    leader.appender.answer()
    leader.executor.run()
    unsynced = any(content.unsynced for content in machine.disk.names.values())
    assert unsynced is not both


def test_an_unconfirmed_batch_is_in_no_store(machine: MemberMachine) -> None:
    leader = lead(machine)
    leader.put(1)
    leader.appender.answer()
    leader.executor.run()
    leader.put(2)
    leader.store.close()
    assert leader.stable == [1, 2]
    again = machine.open()
    assert numbers_in(again) == [1]
    # The number is free for the next leader's batch, whatever became of the old one.
    assert again.changes.number == 3


def test_a_lost_lease_ends_appending(machine: MemberMachine) -> None:
    leader = lead(machine)
    leader.put(1)
    leader.appender.answer()
    leader.put(2)
    error = LeaseLost("term 2")
    leader.appender.answer(error)
    assert leader.lost == [error]
    leader.put(3)
    leader.executor.run()
    assert leader.appender.numbers() == [1, 2, 3]
    assert leader.stable == [1, 2]
    assert not leader.failures
    leader.store.close(lambda: [b"rows of a memory that is ahead"])
    # Closed properly, but without applying the journal, which takes long.
    assert "clean" in machine.disk.names
    assert not any(name.startswith("journal-") for name in machine.disk.names)
    again = machine.open()
    assert again.take_paged_out() == []
    assert numbers_in(again) == []
    assert again.changes.number == 1


def test_a_lost_lease_while_records_are_written(machine: MemberMachine) -> None:
    leader = lead(machine)
    for number in range(1, 25):
        leader.put(number, bytes(3000))
        leader.appender.answer()
        leader.executor.make(leader.executor.writes)
    while leader.executor.step() and not leader.executor.commits:
        pass
    leader.put(25)
    leader.appender.answer(LeaseLost("term 2"))
    leader.store.close()
    found = numbers_in(machine.open())
    # The full segment that was being applied.
    assert found == list(range(1, len(found) + 1))
    assert 0 < len(found) < 24


def test_an_answer_after_the_close_is_ignored(machine: MemberMachine) -> None:
    leader = lead(machine)
    leader.put(1)
    leader.store.close()
    leader.appender.answer()
    assert leader.stable == [1]


def test_the_journal_of_a_store_that_was_not_closed_is_not_read(machine: MemberMachine) -> None:
    leader = lead(machine)
    for number in range(1, 6):
        leader.put(number)
        leader.appender.answer()
        leader.executor.run()
    machine.kill(leader.executor)
    again = machine.open()
    # All five are in the local journal, but only the shared one counts.
    assert again.applied == 0
    assert numbers_in(again) == []
    assert again.changes.number == 1


@pytest.mark.parametrize("seed", range(30))
def test_a_torn_journal_does_not_matter(seed: int) -> None:
    machine = MemberMachine(seed)
    leader = lead(machine)
    for number in range(1, 60):
        leader.put(number, bytes(3000 + seed))
        if leader.appender.waiting:
            leader.appender.answer()
        if number % 5:
            leader.executor.make(leader.executor.writes)
        if number % 7 == 0:
            leader.executor.run()
    machine.kill(leader.executor, power=True)
    again = machine.open()
    found = numbers_in(again)
    # A first part, up to a batch, without holes.
    assert found == list(range(1, len(found) + 1))
    assert again.changes.number == again.applied + 1
    again.close()
    clean = machine.open()
    assert numbers_in(clean) == found


def test_files_of_the_journal_may_have_any_size(machine: MemberMachine) -> None:
    leader = lead(machine)
    leader.put(1)
    leader.appender.answer()
    leader.executor.run()
    machine.kill(leader.executor)
    [name] = [name for name in machine.disk.names if name.startswith("journal-")]
    del machine.disk.names[name].data[100:]
    machine.disk.names["head"].data[:] = b"nonsense"
    machine.open().close()
    assert not any(name.startswith("journal-") for name in machine.disk.names)


def test_a_full_local_disk_holds_back_batches(machine: MemberMachine) -> None:
    leader = lead(machine)
    machine.disk.capacity = machine.disk.used()
    # Larger than a segment: the disk has no room for it.
    leader.put(1, bytes(2 * SMALL))
    leader.appender.answer()
    leader.executor.run()
    assert leader.full == [True]
    # It is confirmed, so it is acknowledged; the one after it is too, and then nothing more.
    leader.put(2)
    leader.appender.answer()
    leader.put(3)
    assert leader.stable == [1, 2, 3]
    assert leader.appender.numbers() == [1, 2, 3]
    machine.disk.capacity = 1 << 40
    leader.executor.elapse()
    assert leader.appender.numbers() == [1, 2, 3, 4]


# -- the mark ---------------------------------------------------------------------------------


def test_a_store_of_a_cluster_is_opened_only_with_it(machine: MemberMachine) -> None:
    machine.open().close()
    with pytest.raises(StoreError, match=f"a part of the cluster {CLUSTER}.*store restore"):
        machine.open("")
    with pytest.raises(StoreError, match=f"has the cluster {OTHER}"):
        machine.open(OTHER)
    machine.open().close()


def test_a_single_brokers_store_is_not_a_members(machine: MemberMachine) -> None:
    machine.open("").close()
    with pytest.raises(StoreError, match="replica init --from-store"):
        machine.open()
    machine.open("").close()


def test_a_damaged_mark(machine: MemberMachine) -> None:
    machine.open().close()
    machine.disk.names[REPLICA_NAME].data[30] ^= 1
    with pytest.raises(StoreDamaged, match="replica is damaged"):
        machine.open()


def test_an_appender_belongs_to_a_cluster(machine: MemberMachine) -> None:
    with pytest.raises(StoreError, match="only a cluster's store"):
        LeaderStore(machine.open(""))


def test_a_real_directory(tmp_path: Path) -> None:
    store = DurableStore.open(tmp_path, Changes(), cluster=CLUSTER)
    leader = LeaderStore(store, 3)
    leader.put(1)
    leader.appender.answer()
    leader.appender.answer()
    leader.executor.run()
    store.close()
    assert (tmp_path / CLEAN_NAME).exists()
    again = DurableStore.open(tmp_path, Changes(), cluster=CLUSTER)
    assert (again.applied, read_term(again.records), numbers_in(again)) == (2, 3, [1])
    again.close()
    with pytest.raises(StoreError, match="restore"):
        DurableStore.open(tmp_path, Changes())
