"""The file of the audit log: its mode, a new one when it is asked for, and disks that are full."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrymq_broker import audit
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.log import Log
from ferrymq_broker.server.logs import configure_logging, reopen_logs


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """An audit log that is configured."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    found = tmp_path / "audit.jsonl"
    mask = os.umask(0)
    try:
        configure_logging(Log(audit=found))
    finally:
        os.umask(mask)
    yield found
    configure_logging(Log())
    root.handlers[:] = before
    root.setLevel(level)


def entries(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_only_its_owner_may_read_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_of_json_for_each(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit.logged_in("10.0.0.1:1", "alice", "SCRAM-SHA-256", True)
    audit.reloaded("users")
    first, second = entries(path)
    assert first["event"] == "login" and first["user"] == "alice" and first["encrypted"] is True
    assert {"peer", "mechanism", "timestamp", "level"} <= first.keys()
    assert second["event"] == "reload" and "error" not in second
    # Nothing of it is anywhere else.
    assert capsys.readouterr().err == ""


def test_it_goes_on_in_a_new_file(path: Path) -> None:
    audit.reloaded("one")
    path.rename(path.with_suffix(".1"))
    audit.reloaded("two")
    reopen_logs()
    audit.reloaded("three")
    assert [e["what"] for e in entries(path.with_suffix(".1"))] == ["one", "two"]
    assert [e["what"] for e in entries(path)] == ["three"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_written_is_told(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    logging.getLogger().addHandler(caplog.handler)
    whole = os.write

    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for number in range(50):
        audit.reloaded(str(number))
    monkeypatch.setattr(os, "write", whole)
    audit.reloaded("again")
    told = [dict(r.msg) for r in caplog.records if r.name == "ferrymq.broker"]
    assert [e["event"] for e in told] == [
        "the audit log cannot be written",
        "the audit log can be written again",
    ]
    assert told[0]["reason"] == "No space left on device"
    assert told[1]["missing"] == 50
    assert [e["what"] for e in entries(path)] == ["again"]


def test_an_entry_that_was_torn_spoils_no_other(path: Path) -> None:
    whole = os.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: whole(file, data[:10]))
        audit.reloaded("torn")
    audit.reloaded("whole")
    lines = path.read_text().splitlines()
    assert len(lines) == 2 and json.loads(lines[1])["what"] == "whole"


@pytest.mark.parametrize("kind", ["folder", "missing", "pipe"])
def test_a_file_that_cannot_be_opened_is_a_mistake_in_the_configuration(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "audit"
    if kind == "folder":
        path.mkdir()
    elif kind == "missing":
        path = tmp_path / "no" / "audit"
    else:
        os.mkfifo(path)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        with pytest.raises(ConfigError, match=r"log\.audit: .* cannot be opened"):
            configure_logging(Log(audit=path))
    finally:
        configure_logging(Log())
        root.handlers[:] = before
        root.setLevel(level)
