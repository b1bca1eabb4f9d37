"""A journal with damage in it: what is behind it decides whether something is missing."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.journal_frames import BLOCK, HEADER_BYTES
from ferrymq_broker.store.segments import find_segments, journal_name, parse_journal
from tests.broker.store.kit import SMALL, Interrupted, Owner, SimulatedMachine
from tests.simulation.disk import SimulatedFolder

# Batches of the first segment, and of the second, which nobody has applied.
FIRST = 12
LAST = 16


def written(machine: SimulatedMachine) -> Owner:
    """A store whose journal has two segments: nothing was applied."""
    owner = machine.open()
    for number in range(1, LAST + 1):
        owner.put(number, b"%d " % number + bytes(4500))
        owner.store.push()
        assert owner.executor.make(owner.executor.writes)
    assert owner.changes.stable == LAST
    assert owner.store.applied == 0
    return owner


def killed() -> SimulatedMachine:
    machine = SimulatedMachine()
    machine.kill(written(machine))
    segments = sorted(name for name in machine.disk.names if name.startswith("journal-"))
    return machine if len(segments) == 2 else pytest.fail(f"{segments}")


def second_of(machine: SimulatedMachine) -> int:
    """The batch with which the second segment begins."""
    parsed = [parse_journal(name) for name in machine.disk.names]
    return max(first for first, _ in filter(None, parsed))


def frame_at(machine: SimulatedMachine, number: int) -> tuple[str, int]:
    """The segment and the offset of a batch: all take two blocks."""
    second = second_of(machine)
    first = second if number >= second else 1
    return journal_name(first, SMALL), (number - first) * 2 * BLOCK


REGIONS = {
    "magic": 0,
    "segment": 11,
    "number": 19,
    "length": 23,
    "changes": 27,
    "checksum": 31,
    "batch": HEADER_BYTES + 40,
    "end": HEADER_BYTES + 4500,
}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("number", [1, 3, 7, 8, 15])
def test_damage_before_the_end_is_named(region: str, number: int) -> None:
    machine = killed()
    name, offset = frame_at(machine, number)
    machine.disk.names[name].data[offset + REGIONS[region]] ^= 0x10
    with pytest.raises(StoreDamaged) as caught:
        machine.open()
    said = str(caught.value)
    if number > 1:
        assert f"simulated/{name} is damaged: at byte {offset}, batch {number} " in said
        assert f"although batch {number + 1} after it can" in said
    else:
        assert name in said
    # Nothing was changed: it is the same the next time.
    with pytest.raises(StoreDamaged) as again:
        machine.open()
    assert str(again.value) == said


@pytest.mark.parametrize("region", REGIONS)
def test_the_last_batch_is_left_out(region: str, caplog: pytest.LogCaptureFixture) -> None:
    machine = killed()
    name, offset = frame_at(machine, LAST)
    machine.disk.names[name].data[offset + REGIONS[region]] ^= 0x10
    owner = machine.open()
    assert owner.changes.stable == LAST - 1
    assert sorted(number for _, _, number in owner.contents()) == list(range(1, LAST))
    told = [record.msg for record in caplog.records if record.levelname == "WARNING"]
    if region in ("magic", "segment", "number"):
        # There it cannot be told from what an earlier use has left.
        assert not told
    else:
        assert isinstance(told[0], dict)
        assert "was not written completely" in told[0]["event"]
        place = {"segment": f"simulated/{name}", "offset": offset, "batch": LAST}
        assert place.items() <= told[0].items()


def test_any_byte_of_a_frame() -> None:
    chance = Random(1)
    for _ in range(150):
        machine = killed()
        number = chance.randrange(1, LAST)
        name, offset = frame_at(machine, number)
        at = offset + chance.randrange(HEADER_BYTES + 4500)
        machine.disk.names[name].data[at] ^= 1 << chance.randrange(8)
        with pytest.raises(StoreDamaged, match=name):
            machine.open()


def test_what_follows_a_frame_is_padding() -> None:
    machine = killed()
    name, offset = frame_at(machine, 3)
    machine.disk.names[name].data[offset + 2 * BLOCK - 1] ^= 0xFF
    assert machine.open().changes.stable == LAST


@pytest.mark.parametrize("which", [0, 1])
def test_a_segment_is_missing(which: int) -> None:
    machine = killed()
    second = second_of(machine)
    name = journal_name((1, second)[which], SMALL)
    del machine.disk.names[name]
    said = "batch 1 is missing" if which == 0 else f"{name} is missing: .* from {second} on"
    # Nothing is changed by trying.
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=said):
            machine.open()


@pytest.mark.parametrize("which", [0, 1])
def test_a_segment_cut_off_anywhere_is_named(which: int) -> None:
    machine = killed()
    name = journal_name((1, second_of(machine))[which], SMALL)
    whole = bytes(machine.disk.names[name].data)
    ends = {0, 1, HEADER_BYTES, SMALL - 1, *range(0, SMALL, BLOCK)}
    for end in sorted(ends | {2 * BLOCK * n + 100 for n in range(3)}):
        machine.disk.names[name].data[:] = whole[:end]
        with pytest.raises(StoreDamaged) as caught:
            machine.open()
        said = f"simulated/{name} was truncated: it has {end} bytes instead of {SMALL}"
        assert said in str(caught.value)
    machine.disk.names[name].data[:] = whole
    assert len(machine.open().contents()) == LAST


def test_a_segment_that_has_grown_is_named() -> None:
    machine = killed()
    machine.disk.names[journal_name(1, SMALL)].data.extend(bytes(BLOCK))
    with pytest.raises(StoreDamaged, match=f"has {SMALL + BLOCK} bytes instead of {SMALL}"):
        machine.open()


@pytest.mark.parametrize("end", [0, BLOCK, 3 * SMALL, 3 * SMALL + BLOCK - 1])
def test_a_segment_of_a_long_batch_cut_off_is_named(end: int) -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    owner.put(1, bytes(3 * SMALL))
    owner.store.push()
    owner.executor.make(owner.executor.writes)
    machine.kill(owner)
    (name,) = (name for name in machine.disk.names if name.startswith("journal-"))
    del machine.disk.names[name].data[end:]
    with pytest.raises(StoreDamaged, match=f"{name} was truncated: it has {end} bytes"):
        machine.open()


def test_a_segment_has_its_size_before_its_name() -> None:
    """Whenever it is interrupted: no file is refused that nobody has cut off."""
    for step in range(12):
        for power in (False, True):
            machine = SimulatedMachine(step)
            owner = machine.open()
            owner.write(1, b"one")
            owner.put(2, bytes(3 * SMALL))
            owner.store.push()
            machine.disk.steps_left = step
            with contextlib.suppress(Interrupted):
                owner.executor.make(owner.executor.writes)
            machine.disk.steps_left = None
            if power:
                machine.disk.lose_power()
            machine.disk.kill()
            for segment in find_segments(SimulatedFolder(machine.disk)):
                segment.file.close()
            assert machine.open().contents()[5, 1, 1] == b"one"


def test_a_segment_under_the_name_of_another() -> None:
    machine = killed()
    first, second = journal_name(1, SMALL), journal_name(second_of(machine), SMALL)
    machine.disk.names[first] = machine.disk.names[second]
    with pytest.raises(StoreDamaged, match=f"{first} is damaged: at byte 0, batch 1 "):
        machine.open()


def test_damage_to_what_was_applied_is_no_matter() -> None:
    machine = SimulatedMachine()
    owner = written(machine)
    # The first segment is applied, and not yet recycled when the process is killed.
    while owner.store.applied == 0:
        assert owner.executor.step() or owner.executor.make(owner.executor.commits)
    owner.executor.commits.clear()
    machine.kill(owner)
    name, offset = frame_at(machine, 3)
    machine.disk.names[name].data[offset] ^= 0xFF
    again = machine.open()
    assert again.changes.stable == LAST
    assert len(again.contents()) == LAST


def test_a_message_that_looks_like_a_frame() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    owner.write(1, b"one")
    first = bytes(machine.disk.names[journal_name(1, SMALL)].data[:BLOCK])
    # Somebody sends what a frame of a later batch would look like, but for the store's secret.
    forged = bytearray(first)
    forged[19] = 9
    owner.put(2, bytes(BLOCK - HEADER_BYTES - 26) + bytes(forged) * 3)
    owner.store.push()
    owner.executor.make(owner.executor.writes)
    # And the write of it was cut short.
    data = machine.disk.names[journal_name(1, SMALL)].data
    assert bytes(forged) in data
    data[BLOCK + 40] ^= 0xFF
    machine.kill(owner)
    assert machine.open().contents() == {(5, 1, 1): b"one"}


def test_records_of_an_earlier_time_are_named() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    for number in range(1, 60):
        owner.write(number, bytes(5000))
    assert owner.store.applied > 0
    stored, applied = dict(machine.records.stored), machine.records.applied
    for number in range(60, 120):
        owner.write(number, bytes(5000))
    assert owner.store.applied > applied
    machine.kill(owner)
    machine.records.stored, machine.records.applied = stored, applied
    with pytest.raises(StoreDamaged, match=r"data\.mdb is too old: the records end with batch"):
        machine.open()


def test_records_of_an_earlier_time_after_it_was_closed() -> None:
    machine = SimulatedMachine()
    machine.open().store.close()
    stored, applied = dict(machine.records.stored), machine.records.applied
    owner = machine.open()
    owner.write(1, b"one")
    owner.store.close()
    machine.records.stored, machine.records.applied = stored, applied
    said = r"simulated/data\.mdb or simulated/clean is damaged: .* clean says that they had batch 1"
    with pytest.raises(StoreDamaged, match=said):
        machine.open()


def test_a_damaged_mark_of_closing_can_be_removed() -> None:
    machine = SimulatedMachine()
    owner = machine.open()
    owner.write(1, b"one")
    owner.store.close()
    machine.disk.names["clean"].data[:] = b"9\n"
    with pytest.raises(StoreDamaged, match=r"simulated/clean is damaged: .* remove clean"):
        machine.open()
    del machine.disk.names["clean"]
    assert machine.open().contents() == {(5, 1, 1): b"one"}
