"""What `ferrymq check-config` says of the files that a configuration names, and of strangers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import structlog.testing
from typer.testing import Result

from ferrymq_broker.config import Config
from ferrymq_broker.security.config_checks import warnings_of_strangers
from ferrymq_broker.security.users_file import write_users
from ferrymq_broker.server import BrokerServer
from tests.broker.config.checking import check
from tests.broker.security.logins import ALICE

USERS = "[security]\nusers-file = 'users.json'\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text)
    return path


def said_by(result: Result) -> str:
    """What a command that failed says to people."""
    assert result.exit_code == 1
    return f"{result.output}{result.exception}"


def test_a_good_file_of_users_is_good(tmp_path: Path) -> None:
    write_users(tmp_path / "users.json", {"alice": ALICE})
    result = check(written(tmp_path, USERS))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0, "No such file"),
        ("not JSON", 0o600, "users.json"),
        ('{"format": 1, "users": {"a": {"password": "x"}}}', 0o600, "users.a.password"),
        ('{"format": 1, "users": {}}', 0o666, "everybody may write to it"),
        ('{"format": 1, "users": {}}', 0o660, "its group may write to it"),
    ],
    ids=["missing", "malformed", "no hash", "everybody", "group"],
)
def test_a_bad_file_of_users_is_a_mistake(
    tmp_path: Path, content: str | None, mode: int, reason: str
) -> None:
    path = tmp_path / "users.json"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    said = said_by(check(written(tmp_path, USERS)))
    assert "broker.toml:2: security.users-file: " in said and reason in said


def test_a_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    write_users(path, {"alice": ALICE})
    path.chmod(0o644)
    result = check(written(tmp_path, USERS))
    assert result.exit_code == 0 and "others can read the hashes" in result.output


@pytest.mark.parametrize("name", ["data", "not/there/yet"])
def test_a_store_that_can_be_made_is_good(tmp_path: Path, name: str) -> None:
    result = check(written(tmp_path, f"[store]\npath = '{tmp_path / name}'"))
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["broker.toml", "broker.toml/data"])
def test_a_store_that_is_no_folder_is_a_mistake(tmp_path: Path, name: str) -> None:
    said = said_by(check(written(tmp_path, f"[store]\npath = '{tmp_path / name}'")))
    assert "broker.toml:2: store.path: " in said and "is not a directory" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_where_nobody_may_write_is_a_mistake(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(0o500)
    said = said_by(check(written(tmp_path, f"[store]\npath = '{folder}/data'")))
    assert "may not write there" in said


# -- strangers ------------------------------------------------------------------------------------


def config_of(**tables: object) -> Config:
    tables.setdefault("listener", [{"url": "amqp://0.0.0.0:0"}])
    tables.setdefault("security", {"anonymous": True})
    return Config.model_validate(tables)


@pytest.mark.parametrize(
    ("tables", "warnings"),
    [
        ({}, ["may do everything"]),
        ({"rule": [{"who": "*", "may": "*", "where": ["*", "$*"]}]}, ["may manage *, $*"]),
        ({"rule": [{"who": "anonymous", "may": "manage", "where": "q"}]}, ["may manage q"]),
        ({"rule": [{"who": "*", "may": "send", "where": "q"}]}, []),
        ({"rule": [{"who": "key:k", "may": "manage", "where": "q"}]}, []),
        ({"listener": [{"url": "amqp://127.0.0.1:0"}]}, []),
        (
            {
                "rule": [{"who": "*", "may": "send", "where": "q"}],
                "virtual-host": [
                    {"name": "v", "rule": [{"who": "*", "may": "manage", "where": "q"}]}
                ],
            },
            ["may manage q in the virtual host v"],
        ),
    ],
)
async def test_strangers_who_may_manage_are_warned_of(
    tables: dict[str, object], warnings: list[str]
) -> None:
    config = config_of(**tables)
    found = warnings_of_strangers(config)
    assert len(found) == len(warnings)
    assert all(said in text for said, text in zip(warnings, found, strict=True))
    if "listener" not in tables:
        # It is said where the broker starts, too; here on this machine only.
        return
    with structlog.testing.capture_logs() as logs:
        async with BrokerServer(config):
            pass
    assert not [entry for entry in logs if "anonymous" in entry["event"]]


def test_monitoring_beyond_this_machine_takes_users_as_amqp_does(tmp_path: Path) -> None:
    text = "[http]\nurl = 'http://0.0.0.0:9090'\n"
    said = said_by(check(written(tmp_path, text)))
    assert "2: http.url: http://0.0.0.0:9090 is open to other machines" in said
    for more in ("[security]\nanonymous = true\n", "[security.users]\nalice = 'secret of alice'\n"):
        assert check(written(tmp_path, text + more)).exit_code == 0
