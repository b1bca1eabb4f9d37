"""Files that `export` has not written: one line says so, and the memory it takes is bounded."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.cli.store.json_lines import TABLES
from ferrymq_broker.cli.store.json_reader import MAX_LINE, read_lines
from ferrymq_broker.store.errors import StoreError
from tests.broker.test_process import run

MIB = 1 << 20
HEAD = b'{"ferrymq-export": 1, "version": "1.0"}\n'
NODE = b'{"table": "node", "id": 1, "number": 0, "value": {"space": "default", "address": "a%d"}}\n'


def refused(file: Path, max_line: int = MAX_LINE, by: int = 0) -> tuple[str, int]:
    """What is said of a file, and how many bytes were had at most."""
    tracemalloc.start()
    try:
        with pytest.raises((StoreError, OSError)) as caught:
            for _ in read_lines(file, max_line, by):
                pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    said = str(caught.value)
    assert "\n" not in said and len(said) < 400
    return said, peak


def packed(file: Path, parts: Iterator[bytes]) -> Path:
    with gzip.open(file, "wb", compresslevel=1) as output:
        for part in parts:
            output.write(part)
    return file


def endless(begin: bytes, piece: bytes, size: int = 300 * MIB) -> Iterator[bytes]:
    """So much that it must not be had at once."""
    yield begin
    whole = piece * (MIB // len(piece))
    for _ in range(0, size, MIB):
        yield whole


@pytest.mark.parametrize(
    ("begin", "piece", "reason"),
    [
        (b"", b"\0", ":1: export did not write this"),
        (b"{", b" ", ":1: export did not write this"),
        (HEAD, b"\0", ":2: the line is not a record"),
        (HEAD, b"[", ":2: the line is not a record"),
        (HEAD + b'{"table": "entry", "value": {"message": "', b"A", "more than 140MiB; --max-line"),
        (HEAD + b'{"a": [', b"[],", "more than 140MiB"),
    ],
    ids=["zeros", "spaces", "zeros later", "lists", "a string", "values"],
)
def test_a_small_file_that_unpacks_to_a_large_one(
    tmp_path: Path, begin: bytes, piece: bytes, reason: str
) -> None:
    file = packed(tmp_path / "bomb.gz", endless(begin, piece))
    assert file.stat().st_size < 4 * MIB
    said, peak = refused(file)
    assert reason in said and str(file) in said
    # A line that may be a message is had twice while it is read.
    assert peak < (3 * MAX_LINE if "140MiB" in reason else 2 * MIB)


def test_lines_without_end(tmp_path: Path) -> None:
    """What is kept does not grow with their number."""
    lines = (NODE % number for number in range(30_000))
    said, peak = refused(packed(tmp_path / "lines.gz", iter([HEAD, *lines])))
    assert "the end is missing, after 30000 records" in said
    assert peak < MIB


def test_a_line_of_many_small_values(tmp_path: Path) -> None:
    line = b'{"table": "node", "value": {"a": [' + b"{}," * (8 * MIB) + b"{}]}}\n"
    file = tmp_path / "values.jsonl"
    file.write_bytes(HEAD + line)
    said, peak = refused(file)
    assert "more values than a record can have" in said
    assert peak < 3 * len(line)


def test_a_line_may_be_as_long_as_one_says(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    record = {"table": "body", "id": 1, "number": 0, "value": {"message": "A" * 4 * MIB}}
    file.write_bytes(HEAD + json.dumps(record).encode() + b'\n{"end": 1}\n')
    assert "more than 3MiB; --max-line" in refused(file, 3 * MIB)[0]
    (line,) = read_lines(file, 5 * MIB)
    assert line.record.value == bytes(3 * MIB)


WRONG = [
    b"",
    b"\xff\xfe\x00",
    b"{",
    b"null",
    b"[]",
    b"{}",
    b'{"ferrymq-export": true}',
    b'{"ferrymq-export": "1"}',
    b'{"ferrymq-export": 99, "version": ["x"]}',
    b'{"ferrymq-export": 1e999}',
    b'{"ferrymq-export": ' + b"9" * 4000 + b"}",
    b'{"ferrymq-export": ' + b"[" * 4000,
]


@pytest.mark.parametrize("first", WRONG, ids=range(len(WRONG)))
def test_a_first_line_that_is_wrong(tmp_path: Path, first: bytes) -> None:
    file = tmp_path / "file.jsonl"
    file.write_bytes(first)
    assert str(file) in refused(file)[0]
    file.write_bytes(first + b"\n")
    assert str(file) in refused(file)[0]


@pytest.mark.parametrize(
    "line",
    [
        b'{"table": 1}',
        b'{"table": {"a": []}}',
        b'{"table": "entry", "id": 1, "number": 1}',
        b'{"table": "entry", "id": -1, "number": 1, "value": {"message": ""}}',
        b'{"table": "entry", "id": 1, "number": 1, "value": {"arrived": 1, "format": 1e9}}',
        b'{"table": "entry", "id": 1, "number": 1, "value": {"arrived": ' + b"9" * 5000 + b"}}",
        b'{"table": "entry", "id": 1, "number": 1, "value": {"arrived": NaN}}',
        b'{"table": "entry", "id": 1, "number": 1, "value": {"message": "%%%"}}',
        b'{"table": "node", "id": 1, "number": 0, "value": {"address": {"$amqp": "/w=="}}}',
        b'{"table": "node", "id": 1, "number": 0, "value": {"address": ["a"]}}',
        b'{"table": "node", "id": 1, "number": 0, "value": {"address": "\\ud800"}}',
        b'{"table": "node", "id": 1, "number": 0, "value": {"size": 36893488147419103232}}',
        b'{"table": "node", "id": 1, "number": 0, "value": {"$symbol": "x"}}',
        b'{"table": "body", "id": 9999999999999999999, "number": 0, "value": {"message": ""}}',
        b'{"table": "node", "value": ' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}",
        b"\xc3\x28",
        b'{"table": "\xff"}',
    ],
)
def test_a_line_that_is_wrong(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "file.jsonl"
    file.write_bytes(HEAD + line + b'\n{"end": 1}\n')
    for by in (0, 7):
        said, peak = refused(file, by=by)
        assert f"{file}:2: " in said
        assert peak < MIB


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=5)
    | st.sampled_from(["AAAA", "AA==", "QQ=="]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["$binary", "$symbol", "$amqp", "message", "body", "address", "a"]),
        inner,
        max_size=3,
    ),
    max_leaves=6,
)
NUMBERS = st.integers(0, 2**40) | VALUES
FIELDS = [
    *("arrived", "due", "expires", "format", "level", "body", "message", "failures", "time"),
    "excluded",
    *("identity", "origin", "stream", "number", "first", "next", "queue", "node", "space", "name"),
    "address",
]


@given(
    table=st.sampled_from(sorted(TABLES)),
    id=NUMBERS,
    number=NUMBERS,
    value=st.dictionaries(st.sampled_from(FIELDS), NUMBERS, max_size=6) | VALUES,
    by=st.sampled_from([0, 3]),
)
def test_any_values(
    tmp_path_factory: pytest.TempPathFactory,
    table: str,
    id: object,
    number: object,
    value: object,
    by: int,
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    record = {"table": table, "id": id, "number": number, "value": value}
    file.write_bytes(HEAD + json.dumps(record).encode() + b'\n{"end": 1}\n')
    try:
        assert len(list(read_lines(file, MAX_LINE, by))) == 1
    except StoreError as error:
        assert f"{file}:2: " in str(error)


@pytest.mark.parametrize("cut", [1, 9, 20, 40])
def test_a_packed_file_that_is_cut_or_damaged(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "file.jsonl.gz"
    whole = gzip.compress(HEAD + b"".join(NODE % n for n in range(50)) + b'{"end": 50}\n')
    file.write_bytes(whole[: len(whole) - cut])
    said, _ = refused(file) if cut > 8 else ("", 0)
    assert cut <= 8 or str(file) in said
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    file.write_bytes(damaged)
    try:
        refused(file)
    except zlib.error as error:
        pytest.fail(f"{error!r}")
    file.write_bytes(b"no gzip at all")
    assert "cannot be unpacked" in refused(file)[0]


def test_the_command_says_it_in_one_line_and_makes_nothing(tmp_path: Path) -> None:
    file = packed(tmp_path / "bomb.gz", endless(HEAD, b"\0"))
    result = run("store", "import", str(tmp_path / "data"), str(file))
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and f"{file}:2: the line is not a record" in result.stderr
    assert not (tmp_path / "data").exists()
