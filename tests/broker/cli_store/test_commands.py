"""`ferrymq store …` on stores that real brokers have left, and beside one that runs."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from ferrymq import Message, blocking
from ferrymq_broker.store.backup_target import BackupTarget
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.lmdb_records import LmdbRecords
from ferrymq_broker.store.tables import BODY
from tests.broker.cli_store.stores import SEGMENT, bodies, fill
from tests.broker.test_process import port_in, run, serve

# The command line is not compiled.
pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test changes."""
    return fill(tmp_path_factory.mktemp("store") / "original")


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    """A copy of it, for a test to do with as it likes."""
    return Path(shutil.copytree(original, tmp_path / "store"))


def command(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    result = run("store", *map(str, arguments))
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    return result


def told(*arguments: str | Path, status: int = 0) -> dict[str, object]:
    found: dict[str, object] = json.loads(command(*arguments, "--json", status=status).stdout)
    return found


def records(path: Path) -> dict[str, int]:
    found = told("info", path)["records"]
    assert isinstance(found, dict)
    return found


# -- verify and info --------------------------------------------------------------------------


def test_a_good_store_is_good(store: Path) -> None:
    before = {file: file.read_bytes() for file in store.iterdir() if file.name != "lock"}
    assert "good; " in command("verify", store).stdout
    report = told("verify", store)
    assert report["good"] is True and report["findings"] == []
    assert report["records"] == sum(records(store).values()) > 60
    assert {file: file.read_bytes() for file in store.iterdir() if file.name != "lock"} == before


def test_every_damaged_record_is_named(store: Path) -> None:
    data = store / "data.mdb"
    content = data.read_bytes()
    for number in (3, 7):
        # Also in pages that are not used any more.
        assert b"orders %d" % number in content
        content = content.replace(b"orders %d" % number, b"borders%d" % number)
    data.write_bytes(content)
    report = told("verify", store, status=1)
    assert report["good"] is False
    findings = report["findings"]
    assert isinstance(findings, list)
    reasons = [finding["reason"] for finding in findings]
    # One is the fourth message of the queue, the other the eighth.
    assert [reason for reason in reasons if "entry 1/4 " in reason]
    assert [reason for reason in reasons if "entry 1/8 " in reason]
    assert report["found"] == len(findings) == 2
    assert {finding["file"] for finding in findings} == {str(data)}
    lines = command("verify", store, status=1).stdout.splitlines()
    assert len(lines) == 3 and "2 damaged" in lines[-1]


@pytest.mark.parametrize("keep", [0, 5000, 9000, 30_000])
def test_records_that_were_cut_off(store: Path, keep: int) -> None:
    data = store / "data.mdb"
    data.write_bytes(data.read_bytes()[:keep])
    assert str(data) in command("verify", store, status=1).stdout


def test_pages_of_nonsense_do_not_take_the_command_with_them(store: Path) -> None:
    data = store / "data.mdb"
    content = bytearray(data.read_bytes())
    for page in range(2 * 4096, len(content), 4096):
        content[page : page + 64] = b"\xff" * 64
    data.write_bytes(content)
    assert told("verify", store, status=1)["good"] is False


def test_missing_files_are_named(store: Path) -> None:
    (store / "data.mdb").unlink()
    assert "data.mdb: the file is missing" in command("verify", store, status=1).stdout
    assert not (store / "data.mdb").exists()
    (store / "format").write_text("something else\n")
    assert "format" in command("verify", store, status=1).stdout


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The store of a broker that was killed: everything is in the journal."""
    path = tmp_path / "killed"
    with serve("--listen", "amqp://127.0.0.1:0", "--data", str(path)) as (process, lines):
        url = f"amqp://127.0.0.1:{port_in(lines[0])}"
        # At once: after some seconds the broker applies what the journal has.
        with blocking.connect(url) as connection:
            sender = connection.sender("q")
            for body in ("one", "two", "three"):
                sender.send(Message(body=body, durable=True))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    return path


def test_the_journal_is_looked_at_too(killed: Path) -> None:
    known = told("info", killed)
    assert known["closed"] is False
    assert (known["batches"], known["changes"]) == (4, 4)
    assert (known["last-batch"], known["applied-batch"], known["records"]) == (4, 0, {})
    assert told("verify", killed)["batches"] == 4
    (segment,) = killed.glob("journal-*")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"two", b"twi"))
    report = command("verify", killed, status=1).stdout
    assert str(segment) in report and "batch 3 cannot be read" in report
    segment.write_bytes(content[: 1 << 16])
    report = command("verify", killed, status=1).stdout
    assert str(segment) in report and f"has {1 << 16} bytes instead of" in report


def test_info_of_a_damaged_store_fails_as_verify_does(store: Path) -> None:
    data = store / "data.mdb"
    data.write_bytes(data.read_bytes().replace(b"orders 3", b"borders3"))
    assert told("info", store, status=1)["damaged"] == 1


def test_info_for_people(original: Path) -> None:
    lines = dict(
        line.split(maxsplit=1) for line in command("info", original).stdout.splitlines() if line
    )
    assert lines["closed"].strip() == "yes"
    assert lines["records.node"].strip() == "5"
    assert lines["spare-bytes"].strip() == f"{2 * SEGMENT // 1024}KiB"


# -- where there is no store ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["verify", "info", "compact", "export"])
def test_to_look_at_a_store_is_not_to_make_one(tmp_path: Path, name: str) -> None:
    missing = tmp_path / "missing"
    assert "no such directory" in command(name, missing, status=1).stderr
    assert not missing.exists()
    assert "no store in this directory" in command(name, tmp_path, status=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_wrong_usage(tmp_path: Path) -> None:
    command("verify", status=2)
    command("backup", tmp_path, status=2)
    command("backup", tmp_path, tmp_path, "--url", "amqp://127.0.0.1:1", status=2)


# -- backup and compact -----------------------------------------------------------------------


def test_a_backup_has_everything_and_is_a_store(killed: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    report = told("backup", killed, target)
    assert report["target"] == str(target)
    assert report["bytes"] == sum(file.stat().st_size for file in target.iterdir())
    assert sorted(file.name for file in target.iterdir()) == ["clean", "data.mdb", "format", "head"]
    assert records(target) == {"entry": 3, "node": 1}
    command("verify", target)
    assert [body for body, _ in bodies(target, "q", 3)] == ["one", "two", "three"]


def test_a_backup_does_not_write_over_anything(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.mkdir()
    (target / "precious").touch()
    assert "not empty" in command("backup", store, target, status=1).stderr
    assert [file.name for file in target.iterdir()] == ["precious"]


def test_a_backup_that_failed_leaves_nothing_behind(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.mkdir()
    (store / "head").unlink()
    command("backup", store, target, status=1)
    assert list(target.iterdir()) == []


def test_a_backup_that_was_killed_is_begun_anew(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    killed = BackupTarget(target)
    killed.begin()
    (target / "data.mdb").write_bytes(b"half of it")
    command("backup", store, target)
    assert "unfinished-backup" not in [file.name for file in target.iterdir()]
    command("verify", target)
    assert records(target) == records(store)


def test_a_store_is_never_taken_for_a_backup_that_was_killed(store: Path) -> None:
    (store / "unfinished-backup").touch()
    before = sorted(store.iterdir())
    with pytest.raises(StoreError, match="is not empty"):
        BackupTarget(store).begin()
    assert sorted(store.iterdir()) == before


def test_compacting_goes_on_after_one_that_was_killed(store: Path) -> None:
    (store / "data.mdb.new").write_bytes(b"half of it")
    command("compact", store)
    assert not (store / "data.mdb.new").exists()
    command("verify", store)


def test_pages_at_the_end_that_were_never_written_are_no_damage(store: Path) -> None:
    lmdb_records = LmdbRecords(store)
    lmdb_records.begin()
    key = encode_key(BODY, 1 << 40, 0)
    lmdb_records.put(key, seal(key, bytes(300_000)))
    lmdb_records.drop(key)
    lmdb_records.commit(lmdb_records.applied)
    pages = lmdb_records._env.info()["last_pgno"] + 1
    lmdb_records.close()
    assert (store / "data.mdb").stat().st_size < pages * 4096
    assert told("verify", store)["good"] is True
    assert len(bodies(store, "copies", 3)) == 3


def test_compacting_gives_room_back_and_loses_nothing(store: Path) -> None:
    before = records(store)
    report = told("compact", store)
    assert report["after-bytes"] < report["before-bytes"]  # type: ignore[operator]
    assert records(store) == before
    command("verify", store)
    assert len(bodies(store, "copies", 3)) == 3


# -- export and import ------------------------------------------------------------------------


def test_what_was_exported_can_be_imported(store: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "all.jsonl", tmp_path / "target"
    counts = told("export", store, file)["records"]
    assert counts == records(store)
    assert file.stat().st_mode & 0o777 == 0o600
    assert told("import", target, file)["records"] == counts
    command("verify", target)
    again = tmp_path / "again.jsonl"
    command("export", target, again)
    assert again.read_text() == file.read_text()
    # A broker has it all, with delivery counts; what was scheduled is not due yet.
    found = bodies(target, "orders", 22)
    assert found[0] == ("orders 0", 1)
    assert [body for body, _ in found] == [
        *(f"orders {number}" for number in range(19)),
        *(f"router {number}" for number in range(3)),
    ]


def test_exports_can_be_compressed_or_go_to_standard_output(store: Path, tmp_path: Path) -> None:
    packed = tmp_path / "all.jsonl.gz"
    command("export", store, packed)
    result = command("export", store)
    with gzip.open(packed, "rt", encoding="utf-8") as lines:
        assert lines.read() == result.stdout
    assert "records of" in result.stderr
    command("import", tmp_path / "target", packed)
    assert records(tmp_path / "target") == records(store)


def test_a_store_with_something_in_it_is_left_alone(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    command("export", store, file)
    before = records(store)
    assert "is not empty" in command("import", store, file, status=1).stderr
    assert "already has node or alias 'orders'" in (
        command("import", store, file, "--merge", status=1).stderr
    )
    assert records(store) == before


def test_two_stores_become_one(store: Path, killed: Path, tmp_path: Path) -> None:
    """Ids are those of the other store, and what refers to them still does."""
    file = tmp_path / "all.jsonl"
    command("export", store, file)
    expected = {**records(store)}
    expected["node"] += 1
    expected["entry"] += 3
    command("import", killed, file, "--merge")
    assert records(killed) == expected
    command("verify", killed)
    assert [body for body, _ in bodies(killed, "q", 3)] == ["one", "two", "three"]
    # Messages that two queues share, and a binding to each.
    assert [body for body, _ in bodies(killed, "copies", 3)] == [
        f"router {number}" for number in range(3)
    ]
    assert len(bodies(killed, "clicks", 10)) == 10


@pytest.mark.parametrize("missing", ["node", "partition", "body"])
def test_messages_whose_queue_is_not_in_the_file_are_refused(
    store: Path, tmp_path: Path, missing: str
) -> None:
    file, target = tmp_path / "all.jsonl", tmp_path / "target"
    command("export", store, file)
    lines = [line for line in file.read_text().splitlines() if f'"table": "{missing}"' not in line]
    assert len(lines) < len(file.read_text().splitlines())
    lines[-1] = json.dumps({"end": len(lines) - 2})
    file.write_text("\n".join(lines) + "\n")
    said = command("import", target, file, status=1).stderr
    assert "is not complete" in said and missing in said and "which does not exist" in said
    assert records(target) == {}


def test_an_alias_and_a_node_of_one_name_are_not_merged(store: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "all.jsonl", tmp_path / "other"
    command("export", store, file)
    header = file.read_text().splitlines()[0]
    value = {"space": "default", "name": "copies", "address": "orders"}
    alias = {"table": "alias", "id": 900, "number": 0, "value": value}
    file.write_text("\n".join([header, json.dumps(alias), json.dumps({"end": 1})]) + "\n")
    said = command("import", store, file, "--merge", status=1).stderr
    assert "already has node or alias 'copies'" in said
    command("import", other, file)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda lines: lines[:-1], "the end is missing"),
        (lambda lines: lines[:-2] + lines[-1:], "the end is missing"),
        (lambda lines: lines[1:], ":1: export did not write this"),
        (lambda lines: ['{"ferrymq-export": 9, "version": "7.0"}', *lines[1:]], "ferrymq 7.0"),
        (lambda lines: [lines[0], "[]", *lines[1:]], ":2: the line is not a record"),
        (lambda lines: [lines[0], "{", *lines[1:]], ":2: "),
        (
            lambda lines: [lines[0], lines[1].replace('"node"', '"nodes"'), *lines[2:]],
            ":2: unknown table 'nodes'",
        ),
        (
            lambda lines: [line.replace('"failures": 1', '"failures": "x"') for line in lines],
            "failures must be a number",
        ),
    ],
)
def test_a_file_that_is_not_whole_changes_nothing(
    store: Path, tmp_path: Path, change: object, reason: str
) -> None:
    file, target = tmp_path / "all.jsonl", tmp_path / "target"
    command("export", store, file)
    assert callable(change)
    file.write_text("\n".join(change(file.read_text().splitlines())))
    assert reason in command("import", target, file, status=1).stderr
    assert not target.exists()


# -- beside a broker --------------------------------------------------------------------------


def test_beside_a_broker_that_runs(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "backup"
    with serve("--listen", "amqp://127.0.0.1:0", "--data", str(data)) as (process, lines):
        url = f"amqp://127.0.0.1:{port_in(lines[0])}"
        run("send", "--url", url, "q", "one", "two", "--durable")
        for name in ("verify", "info", "export", "compact"):
            said = command(name, data, status=1).stderr
            assert f"in use by the process {process.pid}" in said
        said = command("backup", data, target, status=1).stderr
        assert "ferrymq store backup --url URL TARGET" in said
        assert not target.exists()
        report = told("backup", "--url", url, target)
        assert report == {"target": str(target), "bytes": report["bytes"]}
        run("send", "--url", url, "q", "three", "--durable")
        assert "not empty" in command("backup", "--url", url, target, status=1).stderr
        shown = json.loads(run("admin", "show", "store", "store", "--url", url, "--json").stdout)
        assert shown["path"] == str(data) and shown["last-batch"] >= 3
        assert shown["backup"]["state"] == "done"
    command("verify", target)
    assert [body for body, _ in bodies(target, "q", 2)] == ["one", "two"]


def test_there_is_nothing_to_back_up_without_a_store(tmp_path: Path) -> None:
    with serve("--listen", "amqp://127.0.0.1:0") as (_, lines):
        url = f"amqp://127.0.0.1:{port_in(lines[0])}"
        said = command("backup", "--url", url, tmp_path / "backup", status=1).stderr
        assert "unknown entity type 'store'" in said
