"""The group of user commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.user.options import (
    ConfigFile,
    Groups,
    Name,
    PasswordStdin,
    UsersFile,
    ask_password,
    users_path,
)
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.security.users import MAX_NAME, StoredUser, check_name

user: typer.Typer = typer.Typer(
    name="user",
    help="Manage the users in the file of the setting security.users-file.",
    no_args_is_help=True,
    add_completion=False,
)


@user.command()
def add(
    name: Name,
    group: Groups = None,
    file: UsersFile = None,
    config: ConfigFile = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Add a user, and make the file if needed. A running broker accepts the user at once."""
    from ferrymq_broker.security.hashing import make_user
    from ferrymq_broker.security.users_file import edited_users

    path = users_path(file, config)
    check_name(name)
    groups = _checked(group or [])
    if name in _read(path):
        raise _exists(name, path)
    made = make_user(ask_password(name, password_stdin), groups)
    with edited_users(path) as users:
        if name in users:
            raise _exists(name, path)
        users[name] = made
    _done(f"added user {name} to {path}", path, made)


@user.command()
def passwd(
    name: Name,
    file: UsersFile = None,
    config: ConfigFile = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Change the password of a user. A running broker closes the user's connections."""
    from ferrymq_broker.security.hashing import make_user
    from ferrymq_broker.security.users_file import edited_users

    path = users_path(file, config)
    _need(name, _read(path), path)
    made = make_user(ask_password(name, password_stdin))
    with edited_users(path) as users:
        _need(name, users, path)
        made = StoredUser(made.password, made.scram, users[name].groups)
        users[name] = made
    _done(f"changed the password of user {name} in {path}", path, made)


@user.command()
def groups(
    name: Name,
    group: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP]...", help="All groups of the user."),
    ] = None,
    file: UsersFile = None,
    config: ConfigFile = None,
) -> None:
    """Set the groups of a user. A running broker closes the user's connections."""
    from ferrymq_broker.security.users_file import edited_users

    path = users_path(file, config)
    _need(name, _read(path), path)
    wanted = _checked(group or [])
    with edited_users(path) as users:
        _need(name, users, path)
        changed = StoredUser(users[name].password, users[name].scram, frozenset(wanted))
        users[name] = changed
    said = ", ".join(sorted(changed.groups)) or "no group"
    _done(f"user {name} is in {said} now", path, changed)


@user.command()
def delete(name: Name, file: UsersFile = None, config: ConfigFile = None) -> None:
    """Delete a user. A running broker closes the user's connections."""
    from ferrymq_broker.security.users_file import edited_users

    path = users_path(file, config)
    _need(name, _read(path), path)
    with edited_users(path) as users:
        _need(name, users, path)
        del users[name]
    _done(f"deleted user {name} from {path}", path, None)


@user.command("list")
def list_(file: UsersFile = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Print all users and their groups."""
    path = users_path(file, config)
    users = _read(path, must=True)
    entries = [
        {"name": name, "groups": sorted(entry.groups), "mechanisms": [*entry.scram, "PLAIN"]}
        for name, entry in sorted(users.items())
    ]
    if as_json:
        sys.stdout.write(json.dumps(entries, ensure_ascii=False, indent=2) + "\n")
        return
    width = max((len(name) for name in users), default=0)
    for name, entry in sorted(users.items()):
        sys.stdout.write(f"{name:{width}}  {', '.join(sorted(entry.groups))}".rstrip() + "\n")


def _read(path: Path, must: bool = False) -> dict[str, StoredUser]:
    """Return the users; none if there is no file, unless there `must` be one. Raises
    `ConfigError`."""
    from ferrymq_broker.security.users_file import read_users

    return read_users(path) if must or path.exists() else {}


def _need(name: str, users: dict[str, StoredUser], path: Path) -> None:
    if name not in users:
        raise ConfigError(f"{path}: there is no user {name!r}")


def _exists(name: str, path: Path) -> ConfigError:
    return ConfigError(f"{path}: there is a user {name!r} already; passwd changes the password")


def _checked(groups: list[str]) -> list[str]:
    for group in groups:
        if not group or not group.isprintable() or len(group) > MAX_NAME:
            raise ConfigError(f"{group[:MAX_NAME]!r} cannot be the name of a group")
    return groups


def _done(what: str, path: Path, made: StoredUser | None) -> None:
    from ferrymq_broker.security.users_file import is_readable_by_others

    sys.stdout.write(what + "\n")
    if made is not None and not made.scram:
        sys.stderr.write(
            "ferrymq: SCRAM does not allow some characters of the password: only PLAIN accepts it\n"
        )
    if is_readable_by_others(path):
        sys.stderr.write(
            f"ferrymq: others can read {path}, and try passwords with it; run chmod 600\n"
        )
