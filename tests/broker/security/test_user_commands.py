"""`ferrymq user`: users are added, changed, listed and deleted; passwords are never arguments."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ferrymq_broker.cli.app import make_app
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.security.hashing import verify
from ferrymq_broker.security.users_file import UsersFileError, read_users
from tests.broker.test_process import COMMAND, port_in, run, serve

# The command line is not compiled.
pytestmark = pytest.mark.once

Ferrymq = Callable[..., Result]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


@pytest.fixture
def ferrymq(path: Path) -> Ferrymq:
    """Runs a command about the users of the file; the errors that `run` would print are raised."""

    def call(*arguments: str, stdin: str | bytes = "secret\n") -> Result:
        words = ["user", *arguments, "--file", str(path)]
        result = CliRunner().invoke(make_app(), words, input=stdin, catch_exceptions=False)
        assert "secret" not in result.output
        return result

    return call


def test_a_user_is_added(ferrymq: Ferrymq, path: Path) -> None:
    result = ferrymq("add", "alice", "--group", "staff", "--group", "ops", "--password-stdin")
    assert (result.exit_code, result.stdout) == (0, f"added user alice to {path}\n")
    user = read_users(path)["alice"]
    assert verify(user.password, "secret")
    assert user.groups == {"staff", "ops"}
    assert sorted(user.scram) == ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("stdin", ["p w", "p w\n", "p w\r\n"])
def test_the_password_is_a_line(ferrymq: Ferrymq, path: Path, stdin: str) -> None:
    ferrymq("add", "alice", "--password-stdin", stdin=stdin)
    assert verify(read_users(path)["alice"].password, "p w")


@pytest.mark.parametrize(
    ("stdin", "reason"),
    [
        (b"", "must not be empty"),
        (b"\n", "must not be empty"),
        (b"a\nb\n", "one line"),
        (b"\xff\n", "not UTF-8"),
        (b"a\0b", "no NUL"),
        (b"a" * 1025, "at most 1024"),
    ],
)
def test_what_is_no_password(ferrymq: Ferrymq, path: Path, stdin: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ferrymq("add", "alice", "--password-stdin", stdin=stdin)
    assert not path.exists()


def test_a_password_for_plain_only(ferrymq: Ferrymq, path: Path) -> None:
    result = ferrymq("add", "alice", "--password-stdin", stdin="\a\n")
    assert result.exit_code == 0
    assert "SCRAM does not allow" in result.stderr
    assert read_users(path)["alice"].scram == {}


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "x" * 256, "\uff41lice"])
def test_what_is_no_name(ferrymq: Ferrymq, path: Path, name: str) -> None:
    with pytest.raises(ValueError):
        ferrymq("add", name, "--password-stdin")
    assert not path.exists()


def test_a_user_is_changed_and_deleted(ferrymq: Ferrymq, path: Path) -> None:
    ferrymq("add", "alice", "--group", "staff", "--password-stdin")
    ferrymq("add", "bob", "--password-stdin")
    assert (
        "changed the password" in ferrymq("passwd", "alice", "--password-stdin", stdin="n").stdout
    )
    alice = read_users(path)["alice"]
    assert verify(alice.password, "n") and alice.groups == {"staff"}
    ferrymq("groups", "alice", "one", "two")
    assert read_users(path)["alice"].groups == {"one", "two"}
    assert read_users(path)["alice"].password == alice.password
    assert ferrymq("groups", "alice").stdout == "user alice is in no group now\n"
    assert ferrymq("delete", "alice").stdout == f"deleted user alice from {path}\n"
    assert list(read_users(path)) == ["bob"]


def test_users_are_listed_without_what_is_secret(ferrymq: Ferrymq, path: Path) -> None:
    ferrymq("add", "bob", "--password-stdin")
    ferrymq("add", "alice", "--group", "b", "--group", "a", "--password-stdin")
    assert ferrymq("list").stdout == "alice  a, b\nbob\n"
    listed = ferrymq("list", "--json").stdout
    assert [(each["name"], each["groups"]) for each in json.loads(listed)] == [
        ("alice", ["a", "b"]),
        ("bob", []),
    ]
    assert "argon2" not in listed


def test_who_is_there_already_and_who_is_not(ferrymq: Ferrymq) -> None:
    with pytest.raises(UsersFileError, match="No such file"):
        ferrymq("list")
    ferrymq("add", "alice", "--password-stdin")
    with pytest.raises(ConfigError, match="there is a user 'alice' already"):
        ferrymq("add", "alice", "--password-stdin")
    for command in (["passwd", "bob", "--password-stdin"], ["delete", "bob"], ["groups", "bob"]):
        with pytest.raises(ConfigError, match="there is no user 'bob'"):
            ferrymq(*command)


def test_a_file_that_others_can_read_is_pointed_out(ferrymq: Ferrymq, path: Path) -> None:
    assert ferrymq("add", "alice", "--password-stdin").stderr == ""
    path.chmod(0o644)
    assert "others can read" in ferrymq("add", "bob", "--password-stdin").stderr


def test_the_file_that_a_configuration_names(tmp_path: Path) -> None:
    config = tmp_path / "ferrymq.toml"
    config.write_text('[security]\nusers-file = "users.json"\n')
    words = ["user", "add", "alice", "--password-stdin", "--config", str(config)]
    assert CliRunner().invoke(make_app(), words, input="secret").exit_code == 0
    assert list(read_users(tmp_path / "users.json")) == ["alice"]
    config.write_text("")
    with pytest.raises(ConfigError, match="has no users-file"):
        CliRunner().invoke(make_app(), words, input="secret", catch_exceptions=False)


def test_a_broker_takes_users_as_they_come_and_go(tmp_path: Path) -> None:
    """Processes: errors are one line, and a user who is deleted is disconnected."""
    users, config = tmp_path / "users.json", tmp_path / "ferrymq.toml"
    config.write_text(
        'listener = [{url = "amqp://127.0.0.1:0"}]\n[security]\nusers-file = "users.json"\n'
    )
    missing = run("user", "delete", "alice", "--config", str(config))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == f"ferrymq: {users}: there is no user 'alice'\n"
    add = ("user", "add", "--config", str(config), "--password-stdin")
    assert run(*add, "alice", stdin="secret").returncode == 0
    with serve("--config", str(config)) as (broker, lines):
        port = port_in(lines[0])
        url = f"amqp://alice:secret@127.0.0.1:{port}"
        receiver = subprocess.Popen(
            [*COMMAND, "receive", "--url", url, "q"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert run(*add, "bob", stdin="other").returncode == 0
            bob = f"amqp://bob:other@127.0.0.1:{port}"
            assert run("send", "--url", bob, "q", "hello").returncode == 0
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "hello\n"
            assert run("user", "delete", "alice", "--config", str(config)).returncode == 0
            # It would look by itself, a while later.
            broker.send_signal(signal.SIGHUP)
            _, errors = receiver.communicate(timeout=60)
        finally:
            receiver.kill()
            receiver.wait()
        assert "amqp:unauthorized-access" in errors
        assert "Traceback" not in errors


_PROMPT = re.compile(b"(?:New password of alice|Once more): ")


@pytest.mark.parametrize("answers", [[b"geheim"] * 2, [b"geheim", b"geheimer", b"x", b"x"]])
def test_at_a_terminal_the_password_is_asked_for_twice(path: Path, answers: list[bytes]) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "user", "add", "alice", "--file", str(path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = bytearray()
    rest = list(answers)

    def talk() -> None:
        at = 0
        while True:
            try:
                seen.extend(os.read(ours, 4096))
            except OSError:
                return
            while rest and (asked := _PROMPT.search(seen, at)) is not None:
                at = asked.end()
                os.write(ours, rest.pop(0) + b"\n")

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        thread.join(30)
        os.close(ours)
    assert verify(read_users(path)["alice"].password, answers[-1].decode())
    assert b"geheim" not in seen
