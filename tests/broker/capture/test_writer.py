"""What the process does that writes files: chunks in, files out, without pipes and clocks."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from ferrymq import Message
from ferrymq.capture import CaptureName, LocalPlace, coverage
from ferrymq.capture.files import CaptureFile
from ferrymq.capture.place import leftovers_in, names_in
from ferrymq.chunks import ChunkBuilder
from ferrymq_broker.capture.frames import (
    CHUNK,
    DROP,
    FLUSH,
    OPEN,
    CaptureFrames,
    chunk_frame,
    frame,
)
from ferrymq_broker.capture.options import CaptureOptions
from ferrymq_broker.capture.writer import FileWriter

HOUR = 3_600_000
T0 = 492_000 * HOUR


class Rig:
    """A writer, with what it has said."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.said: list[dict[str, Any]] = []
        self.options = CaptureOptions(str(path), **options)
        self.frames = CaptureFrames()
        self.writer = FileWriter(self.options, lambda text: self.said.append(json.loads(text)))

    def hand(self, data: bytes, now: float = 0.0) -> None:
        for kind, body in self.frames.feed(data):
            self.writer.handle(kind, body, now)

    def open(self, incarnation: str = "one") -> dict[str, Any]:
        fields: dict[str, object] = {
            "id": 1,
            "stream": "orders",
            "incarnation": incarnation,
            "directory": str(self.path / "orders"),
        }
        self.hand(frame(OPEN, fields))
        return self.said[-1]

    def chunk(
        self, first: int, times: list[int], partition: int = 0, epoch: int = 0, now: float = 0.0
    ) -> None:
        builder = ChunkBuilder()
        builder.begin(first)
        for at, time in enumerate(times):
            builder.add(Message(b"%d" % (first + at)).encode(), time, first + at, 0)
        end = first + len(times)
        self.hand(chunk_frame(1, partition, epoch, builder.build(end, end)), now)

    def files(self) -> list[CaptureName]:
        return sorted(names_in(LocalPlace(self.path / "orders")))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.said if each["kind"] == kind]

    def bodies(self) -> list[int]:
        tables = [
            parquet.ParquetFile(self.path / "orders" / name.path).read() for name in self.files()
        ]
        return [int(body) for table in tables for body in table["body"].to_pylist()]


def test_a_file_ends_with_its_number_of_records(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_records=4)
    assert rig.open() == {"kind": "found", "id": 1, "next": {}}
    rig.chunk(7, [T0] * 10)
    assert [(each["next"], each["records"]) for each in rig.of("closed")] == [(11, 4), (15, 4)]
    rig.hand(frame(FLUSH))
    assert rig.of("closed")[-1]["next"] == 17
    assert rig.said[-1] == {"kind": "flushed"}
    assert rig.bodies() == list(range(7, 17))


def test_a_file_ends_with_its_bytes_with_its_age_and_with_its_hour(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_bytes=1024, max_age=5000)
    rig.open()
    assert rig.writer.tick(0.0) is None
    rig.chunk(0, [T0] * 200)
    assert [each["next"] for each in rig.of("closed")] == [200]
    rig.chunk(200, [T0], now=10.0)
    assert rig.writer.tick(12.0) == 3.0
    assert rig.writer.tick(15.0) is None
    assert [each["next"] for each in rig.of("closed")] == [200, 201]
    rig.chunk(201, [T0, T0 + HOUR - 1, T0 + HOUR, T0 + 3 * HOUR])
    assert [each["next"] for each in rig.of("closed")] == [200, 201, 203, 204]
    rig.hand(frame(DROP, {"id": 1}))
    assert [name.hour - T0 // HOUR for name in rig.files()] == [0, 0, 0, 1, 3]


def test_the_next_process_goes_on_behind_the_last_file(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_records=3)
    rig.open()
    rig.chunk(0, [T0] * 5)
    rig.chunk(0, [T0] * 2, partition=1)
    assert len(leftovers_in(LocalPlace(tmp_path / "orders"))) == 2
    # It is no more.
    other = Rig(tmp_path, max_records=3)
    assert other.open() == {"kind": "found", "id": 1, "next": {"0": 3}}
    assert leftovers_in(LocalPlace(tmp_path / "orders")) == []
    other.chunk(3, [T0] * 3)
    assert coverage(other.files())[0].ranges == [(0, 6)]


def test_a_gap_ends_a_file(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.open()
    rig.chunk(0, [T0] * 2)
    rig.chunk(2, [T0] * 2)
    rig.chunk(9, [T0])
    rig.hand(frame(FLUSH))
    assert [name[2:] for name in rig.files()] == [(0, 3), (9, 9)]


def test_another_incarnation_is_refused(tmp_path: Path) -> None:
    Rig(tmp_path).open()
    said = Rig(tmp_path).open("two")
    assert said["kind"] == "refused"
    assert "another incarnation" in said["reason"]
    assert "move the folder away" in said["reason"]


@pytest.mark.parametrize("step", ["write_out", "close", "settle"])
def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Nothing of the file is there; what comes of that epoch is of no use, the next is."""
    rig = Rig(tmp_path)
    rig.open()
    rig.chunk(0, [T0] * 2)
    rig.hand(frame(FLUSH))

    def fail(*args: object) -> None:
        if step == "settle":
            real(*args)
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "x"))

    owner: Any = LocalPlace if step == "settle" else CaptureFile
    real = getattr(owner, step)
    with monkeypatch.context() as full:
        full.setattr(owner, step, fail)
        rig.chunk(2, [T0] * 3)
        rig.hand(frame(FLUSH))
    [failed] = rig.of("failed")
    assert (failed["partition"], failed["epoch"], failed["next"]) == (0, 0, 2)
    assert failed["reason"] == f"{tmp_path}/x: No space left on device"
    assert [name[2:] for name in rig.files()] == [(0, 1)]
    rig.chunk(5, [T0] * 3)
    rig.chunk(2, [T0] * 3, epoch=1)
    rig.hand(frame(FLUSH))
    assert [name[2:] for name in rig.files()] == [(0, 1), (2, 4)]
    # All chunks are dealt with, whatever became of them.
    assert len(rig.of("taken")) == 4
    assert leftovers_in(LocalPlace(tmp_path / "orders")) == []


def test_much_that_waits_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrymq_broker.capture.writer._PENDING", 100)
    rig = Rig(tmp_path)
    rig.open()
    for first in range(0, 30, 10):
        rig.chunk(first, [T0] * 10)
    rig.hand(frame(FLUSH))
    [name] = rig.files()
    assert parquet.ParquetFile(tmp_path / "orders" / name.path).metadata.num_row_groups == 3


def test_without_raw(tmp_path: Path) -> None:
    rig = Rig(tmp_path, raw=False)
    rig.open()
    rig.chunk(0, [T0])
    rig.hand(frame(FLUSH))
    [name] = rig.files()
    columns = parquet.ParquetFile(tmp_path / "orders" / name.path).schema_arrow.names
    assert "raw" not in columns
    assert "body" in columns


@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_nothing_is_missing_or_twice(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Chunks, ends of processes and failures in any order; the broker goes on where it is told."""
    path = tmp_path_factory.mktemp("capture")
    rig = Rig(path, max_records=data.draw(st.integers(1, 12)))
    position = rig.open()["next"].get("0", 0)
    time = T0
    epoch = 0
    times: dict[int, int] = {}
    for step in data.draw(st.lists(st.sampled_from("cccckfa"), max_size=25)):
        if step == "c":
            count = data.draw(st.integers(1, 8))
            for offset in range(position, position + count):
                if offset not in times:
                    time += data.draw(st.sampled_from([0, 0, 0, HOUR // 2]))
                    times[offset] = time
            rig.chunk(position, [times[o] for o in range(position, position + count)], epoch=epoch)
            position += count
        elif step == "k":
            rig = Rig(path, max_records=rig.options.max_records)
            position = rig.open()["next"].get("0", 0)
            epoch = 0
        elif step == "f":
            with pytest.MonkeyPatch.context() as full:
                full.setattr(CaptureFile, "close", _fail)
                rig.hand(frame(FLUSH))
            failed = rig.of("failed")
            if failed and failed[-1]["epoch"] == epoch:
                position = failed[-1]["next"]
                epoch += 1
        else:
            rig.writer.tick(1e9)
    rig.hand(frame(FLUSH))
    assert rig.bodies() == list(range(position))


def _fail(file: CaptureFile) -> CaptureName:
    raise OSError(errno.ENOSPC, "No space left on device")


@given(st.lists(st.tuples(st.integers(1, 4), st.binary(max_size=50))), st.integers(1, 20))
def test_frames_come_out_as_they_went_in(sent: list[tuple[int, bytes]], cut: int) -> None:
    data = b"".join(
        chunk_frame(1, 2, 3, body) if kind == CHUNK else frame(kind) for kind, body in sent
    )
    frames = CaptureFrames()
    found = [each for at in range(0, len(data), cut) for each in frames.feed(data[at : at + cut])]
    assert [kind for kind, _ in found] == [kind for kind, _ in sent]
    bodies = [body[12:] for kind, body in found if kind == CHUNK]
    assert bodies == [body for kind, body in sent if kind == CHUNK]
