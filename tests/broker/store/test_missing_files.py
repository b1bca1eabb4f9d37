"""A file of a store is missing: that is noticed, or nothing is missed."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.format_file import read_format
from ferrymq_broker.store.head_file import HEAD_NAME, read_head
from tests.broker.store.kit import SMALL, Contents, ManualExecutor, SimulatedMachine, contents_of
from tests.simulation.disk import Interrupted, SimulatedFolder

OPTIONS = StoreOptions(segment_bytes=SMALL)
BATCHES = 40


class Used:
    """A store in a directory that has segments nobody has applied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.executor = ManualExecutor()
        self.failures: list[str] = []
        self.store = DurableStore.open(path, Changes(), OPTIONS)
        changes = self.store.changes
        self.store.start(self.executor, changes.settle, self.failures.append, lambda on: None)

    def write(self, first: int, count: int) -> None:
        """Write records, each in a batch of its own."""
        for number in range(first, first + count):
            self.store.changes.put(5, 1, number, b"%d " % number + bytes(5000))
            self.store.push()
            while self.executor.make(self.executor.writes) or self._make_spare():
                pass

    def _make_spare(self) -> bool:
        # Nothing is applied: that is begun in the event loop.
        return not self.store._journal.spares and self.executor.make(self.executor.commits)

    def kill(self) -> None:
        """Let go of what only one can have, and leave the files as they are."""
        self.store._records.close()
        self.store._journal.close()
        self.store._folder.unlock()


def opened(path: Path) -> Contents:
    store = DurableStore.open(path, Changes(), OPTIONS)
    found = contents_of(store)
    store.close()
    return found


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("journal-*"))


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    used = Used(tmp_path / "data")
    used.write(1, BATCHES)
    used.kill()
    assert len(segments(used.path)) >= 4
    return used.path


POSITIONS = {
    "first": slice(0, 1),
    "second": slice(1, 2),
    "all but the first": slice(1, None),
    "last": slice(-1, None),
    "last two": slice(-2, None),
    "all": slice(None),
}


@pytest.mark.parametrize("position", POSITIONS)
def test_segments_of_the_journal(killed: Path, position: str) -> None:
    for file in segments(killed)[POSITIONS[position]]:
        file.unlink()
    left = {file.name for file in killed.iterdir()}
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="missing"):
            DurableStore.open(killed, Changes(), OPTIONS)
    assert {file.name for file in killed.iterdir()} >= left - {"spare"}


@pytest.mark.parametrize("state", ["killed", "closed"])
@pytest.mark.parametrize("name", ["data.mdb", "format", "head"])
def test_files_without_which_it_is_no_store(killed: Path, name: str, state: str) -> None:
    if state == "closed":
        DurableStore.open(killed, Changes(), OPTIONS).close()
    (killed / name).unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match=name):
            DurableStore.open(killed, Changes(), OPTIONS)


@pytest.mark.parametrize("name", ["lock", "in-use", "spare-*", "pages"])
def test_files_that_nobody_misses(killed: Path, name: str) -> None:
    for file in killed.glob(name):
        file.unlink()
    assert len(opened(killed)) == BATCHES


def test_nobody_misses_what_was_removed_when_it_was_closed(killed: Path) -> None:
    assert len(opened(killed)) == BATCHES
    for file in (*killed.glob("spare-*"), killed / "clean", killed / "lock"):
        file.unlink()
    assert not segments(killed)
    assert len(opened(killed)) == BATCHES


def test_records_that_are_older_than_the_head(killed: Path) -> None:
    older = killed.parent / "older.mdb"
    shutil.copy(killed / "data.mdb", older)
    opened(killed)
    (killed / "clean").unlink()
    for spare in killed.glob("spare-*"):
        spare.unlink()
    shutil.copy(older, killed / "data.mdb")
    said = rf"the records end with batch 0, .* that they had batch {BATCHES}"
    with pytest.raises(StoreDamaged, match=said):
        DurableStore.open(killed, Changes(), OPTIONS)


# -- the head -------------------------------------------------------------------------------------


def test_the_head_is_written_when_a_segment_is_begun_and_not_for_a_batch(tmp_path: Path) -> None:
    used = Used(tmp_path / "data")
    said = set()
    for number in range(1, BATCHES + 1):
        used.write(number, 1)
        said.add((used.path / HEAD_NAME).read_bytes())
        last, segment = read_head(RealFolder(used.path))
        assert segment == segments(used.path)[-1].name
        assert last < number
    assert len(said) == len(segments(used.path))
    used.kill()


@pytest.mark.parametrize("slot", [0, 1])
def test_a_head_that_was_torn_is_the_one_before(killed: Path, slot: int) -> None:
    head = killed / HEAD_NAME
    data = bytearray(head.read_bytes())
    data[slot * 4096 + 20 : slot * 4096 + 200] = bytes(180)
    head.write_bytes(data)
    assert len(opened(killed)) == BATCHES


def test_a_head_that_cannot_be_read_is_named(killed: Path) -> None:
    (killed / HEAD_NAME).write_bytes(b"x" * 8192)
    with pytest.raises(StoreDamaged, match="head is damaged"):
        DurableStore.open(killed, Changes(), OPTIONS)


def test_whenever_the_power_goes_while_a_segment_is_begun(tmp_path: Path) -> None:
    """No store is refused that lacks nothing."""
    for seed in range(300):
        machine = SimulatedMachine(seed)
        owner = machine.open()
        number = 0
        while True:
            number += 1
            owner.put(number, b"%d " % number + bytes(9000 + 100 * (seed % 7)))
            owner.store.push()
            placement = owner.store._placement
            if number > 4 and placement is not None and placement.is_first:
                break
            owner.executor.run()
        acknowledged = owner.changes.stable
        machine.kill(owner, power=seed % 3 > 0)
        again = machine.open()
        assert set(again.contents()) >= {(5, 1, one) for one in range(1, acknowledged + 1)}
        assert read_head(SimulatedFolder(machine.disk)).last == again.changes.stable


def test_a_head_that_a_process_has_read_is_on_disk_before_it_counts() -> None:
    """One process is killed while it writes the head, the next one reads it from the cache, and
    then the power goes."""
    for seed in range(400):
        machine = SimulatedMachine(seed)
        owner = machine.open()
        for number in range(1, 12):
            owner.put(number, bytes(9000))
            owner.store.push()
            owner.executor.make(owner.executor.writes)
            owner.executor.make(owner.executor.commits)
        acknowledged = owner.changes.stable
        machine.kill(owner)
        machine.disk.steps_left = 1 + seed % 60
        with contextlib.suppress(Interrupted):
            machine.open()
        machine.disk.steps_left = None
        machine.disk.kill()
        machine.disk.steps_left = 1 + seed // 7
        with contextlib.suppress(Interrupted):
            machine.open()
        machine.disk.steps_left = None
        machine.disk.lose_power()
        machine.disk.kill()
        assert len(machine.open().contents()) == acknowledged


# -- stores of format 1 ---------------------------------------------------------------------------


def make_older(path: Path) -> None:
    """Let a store be as a version has left it that knew format 1."""
    for name in ("head", "in-use"):
        (path / name).unlink(missing_ok=True)
    format = read_format(RealFolder(path))
    assert format is not None
    text = f"ferrymq store\nformat: 1\nsecret: {format.secret.hex()}\n"
    from google_crc32c import value as crc

    (path / "format").write_text(f"{text}check: {crc(text.encode()):08x}\n")


@pytest.mark.parametrize("state", ["killed", "closed"])
def test_a_store_of_format_1_opens_and_has_a_head_then(killed: Path, state: str) -> None:
    if state == "closed":
        opened(killed)
    make_older(killed)
    used = Used(killed)
    assert len(contents_of(used.store)) == BATCHES
    used.write(BATCHES + 1, 3)
    used.kill()
    assert "format: 2" in (killed / "format").read_text()
    for file in segments(killed):
        file.unlink()
    with pytest.raises(StoreDamaged, match="missing"):
        DurableStore.open(killed, Changes(), OPTIONS)


def test_the_first_opening_of_a_store_of_format_1_can_be_interrupted(killed: Path) -> None:
    make_older(killed)
    # The head is there, and the format is still the old one.
    (killed / HEAD_NAME).write_bytes(b"")
    assert len(opened(killed)) == BATCHES
    assert "format: 2" in (killed / "format").read_text()


# -- copies ---------------------------------------------------------------------------------------


def test_the_copy_of_a_store_in_use_is_none(tmp_path: Path) -> None:
    used = Used(tmp_path / "data")
    used.write(1, 3)
    copy = Path(shutil.copytree(used.path, tmp_path / "copy", copy_function=shutil.copy2))
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="a copy of a store that was not closed"):
            DurableStore.open(copy, Changes(), OPTIONS)
    used.write(4, 3)
    used.kill()
    assert len(opened(used.path)) == 6
    # Whoever knows that nobody used it meanwhile can say so.
    (copy / "in-use").unlink()
    assert len(opened(copy)) == 3


def test_a_store_that_was_killed_can_be_moved(killed: Path, tmp_path: Path) -> None:
    moved = killed.rename(tmp_path / "moved")
    assert len(opened(moved)) == BATCHES


def test_a_store_that_was_closed_can_be_copied(killed: Path, tmp_path: Path) -> None:
    opened(killed)
    copy = Path(shutil.copytree(killed, tmp_path / "copy"))
    assert len(opened(copy)) == BATCHES


@pytest.mark.parametrize("text", [b"", b"ferrymq store in use\nthis-file: 1\n", bytes(4096)])
def test_a_mark_that_cannot_be_read_is_named(killed: Path, text: bytes) -> None:
    (killed / "in-use").write_bytes(text)
    with pytest.raises(StoreDamaged, match=r"in-use is damaged"):
        DurableStore.open(killed, Changes(), OPTIONS)


def test_a_copy_with_records_of_a_later_moment(killed: Path, tmp_path: Path) -> None:
    """The mark of closing was copied before somebody opened the store, the records after that."""
    opened(killed)
    copy = Path(shutil.copytree(killed, tmp_path / "copy"))
    used = Used(killed)
    used.write(BATCHES + 1, BATCHES)
    used.store.close()
    shutil.copy(killed / "data.mdb", copy / "data.mdb")
    with pytest.raises(StoreDamaged, match="when the store was closed"):
        DurableStore.open(copy, Changes(), OPTIONS)


# -- files that go while they are in use -----------------------------------------------------------


def test_the_lock_does_not_go_with_its_file(tmp_path: Path) -> None:
    used = Used(tmp_path / "data")
    (used.path / "lock").unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match="in use by the process"):
            DurableStore.open(used.path, Changes(), OPTIONS)
    used.kill()
    assert opened(used.path) == {}


@pytest.mark.parametrize("way", ["removed", "moved", "replaced", "segment removed"])
def test_a_directory_that_goes_ends_it_at_the_next_sync(tmp_path: Path, way: str) -> None:
    used = Used(tmp_path / "data")
    used.write(1, 3)
    assert used.store.changes.stable == 3
    if way == "removed":
        shutil.rmtree(used.path)
    elif way == "segment removed":
        segments(used.path)[0].unlink()
    else:
        used.path.rename(tmp_path / "elsewhere")
        if way == "replaced":
            shutil.copytree(tmp_path / "elsewhere", used.path)
    used.write(4, 3)
    assert used.store.changes.stable == 3
    assert len(used.failures) == 1
    assert "is not in its place any more" in used.failures[0]
    used.store.close()


def test_records_that_go_end_it_when_they_are_written(tmp_path: Path) -> None:
    used = Used(tmp_path / "data")
    used.write(1, BATCHES)
    (used.path / "data.mdb").unlink()
    used.executor.run()
    assert len(used.failures) == 1
    assert "data.mdb" in used.failures[0] and "not in its place" in used.failures[0]
    # What was acknowledged is still there, if only the records were.
    assert len(segments(used.path)) >= 4
    used.store.close()
