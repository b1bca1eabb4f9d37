"""`ferrymq admin` as somebody: where the password comes from, and what it says to who may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.commands import Commands, Done
from tests.broker.test_process import port_in, serve

# The command line is not compiled.
pytestmark = pytest.mark.once

PASSWORD = "pass:word/with @ signs"
CONFIG = f"""
[[listener]]
url = "amqp://127.0.0.1:0"

[security.users]
carol = "{PASSWORD}"
eve = "{PASSWORD}"

[[rule]]
who = "user:carol"
may = "*"
where = ["*", "$management"]

[[rule]]
who = "*"
may = "create"
where = "dynamic.*"
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path = tmp_path_factory.mktemp("broker") / "broker.toml"
    path.write_text(CONFIG)
    with serve("--config", str(path)) as (_, lines):
        yield port_in(lines[0])


class Admin(Commands):
    """`ferrymq admin` at the broker."""

    port = 0

    def __call__(self, *words: str, stdin: str = "", user: str = "", **variables: str) -> Done:
        url = f"amqp://{user}127.0.0.1:{self.port}"
        return super().__call__("admin", *words, "--url", url, stdin=stdin, **variables)


@pytest.fixture
def admin(port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Admin:
    admin = Admin(monkeypatch, capsys)
    admin.port = port
    return admin


def test_the_password_comes_from_a_file(admin: Admin, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o600)
    done = admin("--user", "carol", "--password-file", str(path), "list", "queues")
    assert (done.returncode, done.stderr) == (0, "")
    path.chmod(0o644)
    done = admin("--user", "carol", "--password-file", str(path), "list", "queues")
    assert done.returncode == 0 and "others can read" in done.stderr
    done = admin("--user", "carol", "--password-file", "-", "list", "queues", stdin=PASSWORD + "\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_password_comes_from_the_environment(admin: Admin) -> None:
    done = admin("--user", "carol", "list", "queues", FERRYMQ_PASSWORD=PASSWORD)
    assert (done.returncode, done.stderr) == (0, "")
    done = admin("list", "queues", FERRYMQ_USER="carol", FERRYMQ_PASSWORD=PASSWORD)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_terminal_nobody_is_asked(admin: Admin) -> None:
    done = admin("--user", "carol", "list", "queues", stdin="")
    assert done.returncode == 1
    assert "there is no terminal to ask" in done.stderr


def test_a_password_on_the_command_line_is_worth_a_warning(admin: Admin) -> None:
    quoted = "carol:pass%3Aword%2Fwith%20%40%20signs@"
    done = admin("list", "queues", user=quoted)
    assert done.returncode == 0
    assert "WARNING" in done.stderr and "pass" not in done.stderr.replace("password", "")


def test_a_wrong_password_and_none(admin: Admin) -> None:
    done = admin("--user", "carol", "list", "queues", FERRYMQ_PASSWORD="sesame 1234")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "sesame" not in done.stderr
    done = admin("--password-file", "/dev/null", "list", "queues")
    assert done.returncode == 1 and "needs --user" in done.stderr


def test_who_may_not_is_told_so(admin: Admin) -> None:
    done = admin("--user", "eve", "create", "queue", "q", FERRYMQ_PASSWORD=PASSWORD)
    assert done.returncode == 1
    assert "CREATE of queue 'q' is not allowed to you, 'eve'" in done.stderr
    assert "Traceback" not in done.stderr
