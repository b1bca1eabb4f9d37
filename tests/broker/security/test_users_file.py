"""The file of users: what is in it, how it is replaced, and what is wrong with it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.security.hashing import make_user, verify
from ferrymq_broker.security.users_file import (
    UsersFileError,
    _read,
    edited_users,
    read_users,
    write_users,
)
from tests.broker.security.logins import ALICE, BOB


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users.json"
    write_users(path, {"alice": ALICE, "bob": BOB})
    return path


def content(path: Path) -> Any:
    return json.loads(path.read_bytes())


def test_what_was_written_is_read(path: Path) -> None:
    users = read_users(path)
    assert users == {"alice": ALICE, "bob": BOB}
    for name, user in (("alice", ALICE), ("bob", BOB)):
        for mechanism, keys in user.scram.items():
            read = users[name].scram[mechanism]
            assert (read.salt, read.stored_key, read.server_key, read.iterations) == (
                keys.salt,
                keys.stored_key,
                keys.server_key,
                keys.iterations,
            )


def test_no_password_is_in_it(path: Path) -> None:
    assert "sésame".encode() not in path.read_bytes()
    assert "sésame" not in repr(ALICE)
    assert ALICE.password not in repr(ALICE)


def test_hashes_are_those_of_argon2id() -> None:
    user = make_user("secret")
    assert user.password.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert verify(user.password, "secret")
    assert not verify(user.password, "Secret")
    assert not verify("no hash", "secret")
    assert make_user("secret").password != user.password


def test_a_password_that_scram_does_not_allow_has_no_keys() -> None:
    user = make_user("\a")
    assert user.scram == {}
    assert verify(user.password, "\a")


def test_a_new_file_is_its_owners_only(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


def test_permissions_stay_and_so_does_a_link(path: Path) -> None:
    path.chmod(0o640)
    link = path.with_name("link.json")
    link.symlink_to(path)
    with edited_users(link) as users:
        del users["bob"]
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in path.parent.iterdir() if each not in (path, link)] == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_the_file_stays_that_of_the_broker(path: Path) -> None:
    os.chown(path, 12345, 12346)
    with edited_users(path) as users:
        del users["bob"]
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


def test_an_error_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(KeyError), edited_users(path) as users:
        del users["alice"]
        del users["nobody"]
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_edits_wait_for_each_other(path: Path) -> None:
    def edit(number: int) -> None:
        with edited_users(path) as users:
            users[f"user{number}"] = BOB

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_users(path)) == 22


def broken(path: Path, change: str) -> None:
    """Break the file."""
    data = content(path)
    alice = data["users"]["alice"]
    keys = alice["scram"]["SCRAM-SHA-256"]
    match change:
        case "newer":
            data["format"] = 2
        case "no format":
            del data["format"]
        case "unknown key":
            data["more"] = 1
        case "unknown key of a user":
            alice["passwort"] = "geheim"
        case "plain password":
            alice["password"] = "geheim"
        case "other argon2":
            alice["password"] = alice["password"].replace("argon2id", "argon2i")
        case "a gigabyte":
            alice["password"] = alice["password"].replace("m=19456", "m=1048576")
        case "no password":
            del alice["password"]
        case "few iterations":
            keys["iterations"] = 1
        case "many iterations":
            keys["iterations"] = 10**9
        case "bad base64":
            keys["salt"] = "geheim!!"
        case "short key":
            keys["stored-key"] = "AAAA"
        case "unknown mechanism":
            alice["scram"]["SCRAM-MD5"] = keys
        case "bad name":
            data["users"]["a\u0000b"] = alice
        case "empty name":
            data["users"][""] = alice
        case "list":
            data = [data]
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("newer", "the file has format 2"),
        ("no format", "format"),
        ("unknown key", "more"),
        ("unknown key of a user", "users.alice.passwort"),
        ("plain password", "users.alice.password: the text is not an argon2 hash"),
        ("other argon2", "not an argon2id hash"),
        ("a gigabyte", "the hash is too expensive"),
        ("no password", "users.alice.password"),
        ("few iterations", "users.alice.scram.SCRAM-SHA-256.iterations"),
        ("many iterations", "users.alice.scram.SCRAM-SHA-256.iterations"),
        ("bad base64", "users.alice.scram.SCRAM-SHA-256.salt"),
        ("short key", "users.alice.scram.SCRAM-SHA-256.stored-key"),
        ("unknown mechanism", "SCRAM-MD5"),
        ("bad name", "control characters"),
        ("empty name", "not empty"),
        ("list", ""),
    ],
)
def test_what_is_wrong_is_said(path: Path, change: str, reason: str) -> None:
    broken(path, change)
    with pytest.raises(UsersFileError) as caught:
        read_users(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and reason in message
    assert "geheim" not in message and "argon2id$" not in message


def test_a_user_twice(path: Path) -> None:
    path.write_text('{"format": 1, "users": {"a": {}, "a": {}}}')
    with pytest.raises(UsersFileError, match="twice"):
        read_users(path)


def test_a_file_that_everybody_may_write_is_not_believed(path: Path) -> None:
    path.chmod(0o666)
    with pytest.raises(UsersFileError, match="everybody may write"):
        read_users(path)


@pytest.mark.parametrize("mode", [0o620, 0o660, 0o670])
def test_a_file_that_its_group_may_write_is_not_believed(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(UsersFileError, match="its group may write"):
        read_users(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsersFileError, match="No such file"):
        read_users(tmp_path / "none.json")
    with pytest.raises(UsersFileError, match="directory"):
        read_users(tmp_path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.binary()
    | _JSON.map(lambda value: json.dumps(value).encode())
    | _JSON.map(lambda value: json.dumps({"format": 1, "users": value}).encode())
    | _JSON.map(lambda value: json.dumps({"format": 1, "users": {"alice": value}}).encode())
    | st.integers(1, 100_000).map(lambda depth: b"[" * depth)
)
def test_rubbish_is_an_error_of_the_file(data: bytes) -> None:
    try:
        users = _read(Path("users.json"), data, 0o600)
    except UsersFileError as error:
        assert str(error).startswith("users.json: ")
    else:
        assert users == {}
