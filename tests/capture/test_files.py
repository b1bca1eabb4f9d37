"""Writing capture files: whole or not at all, and of one incarnation."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from ferrymq.arrow import schema_of
from ferrymq.capture import (
    CaptureError,
    CaptureName,
    IncarnationError,
    LocalPlace,
    check,
    claim,
    open_place,
    read_stream_file,
)
from ferrymq.capture.files import CaptureFile, capture_columns
from ferrymq.capture.place import Place, RemotePlace, leftovers_in, names_in

SCHEMA = schema_of(("partition", "offset", "body"))


def rows(first: int, count: int) -> pa.RecordBatch:
    offsets = list(range(first, first + count))
    bodies = [b"%d" % offset for offset in offsets]
    return pa.RecordBatch.from_pydict(
        {"partition": [2] * count, "offset": offsets, "body": bodies}, schema=SCHEMA
    )


@pytest.fixture(params=["local", "uri"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The folder of a stream, on this machine and as pyarrow has it."""
    if request.param == "local":
        return open_place(tmp_path, "orders")
    return RemotePlace(tmp_path.as_uri(), "orders")


def test_a_file_has_its_name_when_it_is_complete(place: Place, tmp_path: Path) -> None:
    file = CaptureFile(place, SCHEMA, 48, 2, 10, stream="orders", row_group_rows=20)
    file.add(rows(10, 15))
    file.add(rows(25, 15))
    assert names_in(place) == []
    assert leftovers_in(place) == [file.tmp]
    file.add(rows(40, 5))
    name = file.finish()
    assert name == CaptureName(48, 2, 10, 44)
    assert names_in(place) == [name]
    assert leftovers_in(place) == []
    with parquet.ParquetFile(tmp_path / "orders" / name.path) as read:
        assert read.metadata.num_row_groups == 2
        assert read.metadata.metadata[b"ferrymq.stream"] == b"orders"
        assert read.read()["offset"].to_pylist() == list(range(10, 45))


def test_a_file_that_is_abandoned_leaves_nothing(place: Place) -> None:
    file = CaptureFile(place, SCHEMA, 48, 2, 0)
    file.add(rows(0, 5))
    file.write_out()
    file.abandon()
    assert list(place.paths()) == []


def test_large_rows_do_not_wait_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrymq.capture.files.ROW_GROUP_BYTES", 100)
    file = CaptureFile(LocalPlace(tmp_path), SCHEMA, 48, 2, 0)
    file.add(rows(0, 50))
    assert file.pending == 0
    assert file.finish().last == 49


def test_dictionaries_and_statistics_are_where_they_are_of_use(tmp_path: Path) -> None:
    columns = ("offset", "address", "body", "messageId", "applicationProperties", "raw")
    file = CaptureFile(LocalPlace(tmp_path), schema_of(columns), 48, 2, 0)
    values = {
        "offset": list(range(100)),
        "address": ["orders"] * 100,
        "body": [b"%d" % offset for offset in range(100)],
        "messageId": [f"order-{offset}" for offset in range(100)],
        "applicationProperties": [[("region", "north")]] * 100,
        "raw": [b"%d" % offset for offset in range(100)],
    }
    file.add(pa.RecordBatch.from_pydict(values, schema=schema_of(columns)))
    metadata = parquet.read_metadata(tmp_path / file.finish().path)
    group = metadata.row_group(0)
    found = {}
    for at in range(group.num_columns):
        column = group.column(at)
        found[column.path_in_schema] = (column.has_dictionary_page, column.is_stats_set)
    assert found == {
        "offset": (False, True),
        "address": (True, True),
        "body": (False, False),
        "messageId": (False, True),
        "applicationProperties.key_value.key": (True, True),
        "applicationProperties.key_value.value": (True, True),
        "raw": (False, False),
    }
    statistics = group.column(0).statistics
    assert (statistics.min, statistics.max) == (0, 99)


def test_columns() -> None:
    assert capture_columns()[-1] == "raw"
    assert "raw" not in capture_columns(raw=False)


def test_a_folder_is_of_one_incarnation(place: Place) -> None:
    assert read_stream_file(place) is None
    claim(place, "orders", "one")
    claim(place, "orders", "one")
    assert read_stream_file(place) == ("orders", "one")
    with pytest.raises(IncarnationError, match=r"another incarnation.*move the folder away"):
        claim(place, "orders", "two")
    with pytest.raises(IncarnationError, match="different directories"):
        check(place, "Orders", "one")


def test_files_of_nobody_are_nobodys(place: Place) -> None:
    file = CaptureFile(place, SCHEMA, 48, 2, 0)
    file.add(rows(0, 5))
    file.finish()
    with pytest.raises(CaptureError, match=r"no _stream.json"):
        claim(place, "orders", "one")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 1}'])
def test_a_spoilt_stream_file_is_named(place: Place, content: bytes) -> None:
    with place.create("_stream.json") as file:
        file.write(content)
    with pytest.raises(CaptureError, match=r"_stream.json is not what capture has written"):
        check(place, "orders", "one")


def test_versions_to_come_are_refused(place: Place) -> None:
    with place.create("_stream.json") as file:
        file.write(b'{"version": 2, "stream": "orders", "incarnation": "one"}')
    with pytest.raises(CaptureError, match="has version 2"):
        check(place, "orders", "one")


def test_uris() -> None:
    assert open_place("file:///srv/a%20b", "orders").base == "/srv/a b/orders"
    assert open_place("/srv/capture", "orders").base == "/srv/capture/orders"
    with pytest.raises(CaptureError, match="nosuch://x/y: "):
        open_place("nosuch://x/y", "orders")
